"""A folder that `motet init` wrote works at once: it is checked, trained, and its tests pass."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from motet.commands.main import whole_app
from motet.errors import ConfigError
from motet.starters import KINDS, copy_examples, start_folder, starter_files
from tests import fork_server
from tests.fixtures.wide import widely

WIDTH = ["--config", "line-length = 100"]


def said(folder: Path, *words: str) -> str:
    done = fork_server.run(
        [sys.executable, "-m", *words], cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", widely(KINDS, keep=["game"]))
def test_a_new_folder_is_checked_trained_and_tested_at_once(tmp_path: Path, kind: str) -> None:
    first = said(tmp_path, "motet", "init", "my_team", "--kind", kind)
    folder = tmp_path / "my_team"
    for path in folder.iterdir():
        assert path.name in first
    short = ["train.steps=2", "warmup.steps=2", "evaluation={tasks: 1, samples: 1}", "threads=1"]
    assert "two steps" in said(folder, "motet", "check", "real.yaml")
    said(folder, "motet", "train", "config.yaml", *short)
    summary = json.loads((folder / "runs" / "my_team" / "summary.json").read_text())
    assert summary["steps"] == 2
    assert summary["heldout"]["after"]["faults"] == 0
    assert " passed" in said(folder, "pytest", "-p", "no:cacheprovider", "-q", ".")


@pytest.mark.examples
@pytest.mark.parametrize("kind", KINDS)
def test_the_team_of_a_new_folder_learns(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "my_team"
    start_folder("my_team", kind, tmp_path)
    said(folder, "motet", "train", "config.yaml", "threads=1")
    heldout = json.loads((folder / "runs" / "my_team" / "summary.json").read_text())["heldout"]
    before, after = (heldout[when]["success"] for when in ("before", "after"))
    assert after > before + 0.3


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", ".hidden", "-x", "1st", "two words", "ä", "a" * 61]
)
def test_a_name_that_is_no_plain_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"got the name .* expected a letter.* such as my_team"):
        start_folder(name, within=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").write_text("mine")
    for name in ("empty", "link", "file"):
        with pytest.raises(ConfigError, match=rf"{name} exists; expected a new folder.* remove"):
            start_folder(name, within=tmp_path)
    assert (tmp_path / "file").read_text() == "mine"


def test_the_examples_are_copied_once(tmp_path: Path) -> None:
    there = copy_examples(tmp_path / "examples")
    assert tmp_path / "examples" / "own_environment.py" in there
    assert not [*tmp_path.rglob("__pycache__")]
    with pytest.raises(ConfigError, match=r"examples exists; expected a new folder"):
        copy_examples(tmp_path / "examples")


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_are_written_like_the_code_of_motet(tmp_path: Path, kind: str) -> None:
    files = starter_files(kind, "my_team")
    assert not [file for file, text in files.items() if "{{" in text or not text.endswith("\n")]
    assert {"config.yaml", "real.yaml", "environment.py", "reward.py", "README.md"} < set(files)
    start_folder("my_team", kind, tmp_path)
    for command in (["check", "--select", "E,F,I,B,UP"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "--isolated", *WIDTH],
            cwd=tmp_path / "my_team", capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    wide = [line for text in files.values() for line in text.splitlines() if len(line) > 100]
    assert wide == []


def test_the_page_for_assistants_names_commands_files_and_metrics_that_exist() -> None:
    files = starter_files("game", "my_team")
    page = files["AGENTS.md"]
    commands = typer.main.get_command(whole_app()).commands
    named = re.findall(r"\bmotet ([a-z]+)\b", page.replace("\n", " "))
    assert len(named) >= 5
    assert set(named) <= {*commands}, named
    metrics = re.findall(r"`((?:play|credit|learn)/\w+)`", page)
    assert len(metrics) >= 3
    listed = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text()
    assert [name for name in metrics if f"`{name}`" not in listed] == []
    for name in re.findall(r"`(\w+\.(?:py|yaml))`", page):
        assert name in files, name
