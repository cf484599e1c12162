"""The blocks of README and of the pages of commands work as typed.

The first block of README runs in a fresh shell, with a shortened config. Of the others every
command is parsed, and every file must exist; the slow test runs them all in order.
"""

import ast
import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

import motet
from motet.commands.main import whole_app
from motet.config.paths import named_configs

ROOT = Path(__file__).parent.parent
PAGES = {
    name: (ROOT / name).read_text()
    for name in ("README.md", "docs/commands.md", "docs/configs.md", "docs/features.md")
}


def blocks_of(page: str) -> list[list[str]]:
    """Return the indented blocks, without their comments."""
    return [
        [line[4:].partition("  #")[0].rstrip() for line in block.splitlines()]
        for block in re.findall(r"(?<=\n\n)((?:    \S.*\n)+)", page)
    ]


COMMANDS = [block for page in PAGES.values() for block in blocks_of(page)]
PYTHON = [
    block
    for page in PAGES.values()
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
]
SHORT = {
    "quickstart": {"warmup": {"steps": 2}, "train": {"steps": 2}, "evaluation": {"tasks": 4}},
    "relay": {
        "warmup": {"steps": 2, "batch_size": 8, "learning_rate": 5e-3},
        "rollout": {"samples": [2, 1]},
        "train": {"steps": 12, "tasks_per_step": 2},
        "evaluation": {"tasks": 4, "samples": 2},
    },
}
"""Config -> keys that make it quick."""


def words() -> list[list[str]]:
    return [shlex.split(line) for block in COMMANDS for line in block]


def test_readme_has_the_blocks_that_are_tried_here():
    assert COMMANDS[0] == ["make quickstart", "source .venv/bin/activate"]
    assert sum(line[0] == "motet" for line in words()) >= 15
    assert {line[0] for line in words()} == {"make", "source", "motet", "python", "pip"}
    assert len(PYTHON) == 2


def test_every_command_has_its_options_and_every_file_is_there(tmp_path):
    commands = typer.main.get_command(whole_app()).commands
    made = (ROOT / "Makefile").read_text()
    for program, *rest in words():
        if program == "motet":
            commands[rest[0]].make_context(rest[0], rest[1:])  # refuses what it does not know
        if program == "make":
            assert re.search(rf"^{rest[0]}:", made, re.MULTILINE), rest
        files = [word for word in rest if word.endswith((".yaml", ".py"))]
        for name in files:
            typed = not name.startswith(("runs/", "my_team/")) and name != "same_number.yaml"
            assert not typed or (ROOT / name).is_file(), name
        if program == "motet" and rest[0] in ("train", "check", "show") and not files:
            assert rest[1] in named_configs(), rest


@pytest.mark.parametrize("page", PAGES)
def test_every_path_of_a_page_is_there(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGES[page])
    assert len(links) > 5
    for name in links:
        assert ((ROOT / page).parent / name).exists(), name


def test_readme_is_read_in_a_minute():
    assert len(PAGES["README.md"].splitlines()) <= 80


def test_the_table_of_configs_has_every_config_and_its_package():
    """A row names configs in its first cell and, as variants, in that of the task."""
    there = {
        name: path.relative_to(ROOT / "packages").parts[0]
        for name, path in named_configs().items()
        if "/" not in name
    }
    page = PAGES["docs/configs.md"]
    table = page.partition("| config | package | task | needs |\n")[2].partition("\n\n")[0]
    found = {}
    for row in table.splitlines()[1:]:
        configs, package, task, _ = (cell.strip() for cell in row[1:-1].split("|"))
        patterns = re.findall(r"`([\w*]+)`", configs + task)
        found |= {name: package for one in patterns for name in fnmatch.filter(there, one)}
        assert all(fnmatch.filter(there, one) for one in patterns), row
    assert found == there


def test_the_python_of_the_page_calls_what_there_is():
    for block in PYTHON:
        for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
            name = ast.unparse(call.func)
            if name.startswith("motet.") and name.count(".") == 1:
                assert callable(getattr(motet, name.removeprefix("motet.")))


@pytest.fixture
def place(tmp_path):
    """A copy of the repository with short configs, and with an environment that is installed."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    home = tmp_path / "packages" / "motet"
    shutil.copytree(ROOT / "packages" / "motet" / "src" / "motet", home / "motet")
    for name in ("Makefile", "pyproject.toml", "requirements-dev.txt", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("own_environment.py", "same_number.yaml"):
        shutil.copy(ROOT / "examples" / name, tmp_path)
    for name, short in SHORT.items():
        path = home / "motet" / "configs" / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **short}))
    make = [sys.executable, "-m", "venv", "--without-pip", ".venv"]
    subprocess.run(make, cwd=tmp_path, check=True)
    (packages,) = (tmp_path / ".venv" / "lib").glob("python*/site-packages")
    (packages / "installed.pth").write_text("\n".join([str(home), *filter(None, sys.path)]))
    script = tmp_path / ".venv" / "bin" / "motet"
    script.write_text('#!/bin/sh\nexec "$(dirname "$0")/python" -m motet "$@"\n')
    script.chmod(0o755)
    (tmp_path / ".venv" / ".installed").touch()
    return tmp_path


def typed(place: Path, lines: list[str], said: str = "") -> str:
    """Type lines into a fresh shell, which ends at the first error."""
    clean = {"HOME": str(place), "PATH": os.defpath, "OMP_NUM_THREADS": "1", "COLUMNS": "100"}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-c", "\n".join(lines)],
        cwd=place, env=clean, input=said, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


needs_a_shell = pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("make")), reason="bash and make are missing"
)


@pytest.mark.examples
@needs_a_shell
def test_the_first_block_works_as_typed_and_then_motet_is_a_command(place):
    out = typed(place, [*COMMANDS[0], "motet --version", "motet show relay"])
    assert f"motet {motet.__version__}" in out
    assert (place / "runs" / "quickstart" / "team" / "aux").is_dir()


@needs_a_shell
@pytest.mark.slow
def test_all_commands_work_as_typed_in_their_order(place):
    others = ("pip", "python", "motet view", "motet serve")  # servers end by a signal
    lines = [line for block in COMMANDS for line in block if not line.startswith(others)]
    question = 'echo "sum of xs plus 3 if above 2" | '
    lines = [question + line if line.startswith("motet chat") else line for line in lines]
    out = typed(place, lines, said="1\n2\n")
    assert (place / "runs" / "short" / "summary.json").is_file()
    assert (place / "seeds.png").is_file()
    assert r"\begin{tabular}" in out
    team, read = PYTHON
    team = re.sub(r" +model=.*\n", "", team).replace("steps=10", "steps=1")
    assert "steps=1," in team
    (place / "team.py").write_text(team)
    (place / "read.py").write_text(f"import motet\n{read}")
    typed(place, ["source .venv/bin/activate", "python team.py", "python read.py"])
    assert (place / "runs" / "team" / "summary.json").is_file()
    assert (place / "runs" / "again" / "summary.json").is_file()
