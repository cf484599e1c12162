"""Run folders in which one file was harmed, or made by a stranger.

Each command that reads a run ends with a documented exit code and one line that names the file or
the run: no traceback, no hang.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from motet.commands import main as cli
from motet.trainer.checkpoint import file_hash
from tests.faults.hostile import within
from tests.small_runs import run_config

pytestmark = pytest.mark.slow
SECONDS = 60.0
Harm = Callable[[Path], object]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with checkpoints and episodes."""
    import motet

    runs = tmp_path_factory.mktemp("sound")
    train = {"steps": 2, "tasks_per_step": 2, "checkpoint_every": 1}
    motet.train(run_config(train=train), runs=runs, show="silent")
    return runs / "run"


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "runs" / "run"))


def _deep(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def _replaced(make: Harm) -> Harm:
    def harm(path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
        make(path)

    return harm


def _text(content: str | bytes) -> Harm:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


GENERAL: dict[str, Harm] = {
    "missing": _replaced(lambda path: None),
    "empty": _text(""),
    "torn": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "binary": _text(bytes(range(256)) * 9),
    "a list": _text("[1, 2]\n"),
    "an empty object": _text("{}\n"),
    "NaN": _text("NaN\n"),
    "deep": _text(_deep(50_000) + "\n"),
    "deep lists": _text("[" * 100_000 + "\n"),
    "a huge number": _text('{"step": ' + "9" * 9000 + "}\n"),
    "other keys": _text('{"schema": 1, "step": "x", "files": [], "id": {}, "name": []}\n'),
    "a folder": _replaced(lambda path: path.mkdir()),
    "a pipe": _replaced(os.mkfifo),
    "a link to nothing": _replaced(lambda path: path.symlink_to("gone")),
    "a link to itself": _replaced(lambda path: path.symlink_to(path.name)),
    "a link to a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "many keys": _text("{" + ", ".join(f'"k{n}": {n}' for n in range(60_000)) + "}\n"),
}
FILES = (
    "config.yaml",
    "summary.json",
    "metrics.jsonl",
    "warmup.jsonl",
    "episodes/train-000002.jsonl",
    "episodes/evaluate-000002.jsonl",
    "team/p/motet.json",
)
ODD: tuple[Any, ...] = (
    None, True, "text", [], {}, [1], {"a": 1}, -1, 1.5, 10**30, float("nan"), {"a": {"step": []}},
)  # fmt: skip


def called(arguments: list[str], capsys: Any, monkeypatch: Any) -> tuple[int, str]:
    """Run a command in this process, as `motet` does. Returns its exit code and stderr."""
    monkeypatch.setattr(sys, "argv", ["motet", *arguments])
    capsys.readouterr()
    try:
        with within(SECONDS):
            cli.main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().err


def commands(run: Path) -> list[list[str]]:
    other = str(run.parent / "other")
    return [
        ["episodes", str(run)],
        ["episodes", str(run), "--evaluation", "--best", "1"],
        ["compare", str(run), other],
        ["compare", other, str(run), "--csv"],
        ["compare", other, str(run), "--plot", str(run.parent / "plot.png")],
        ["show", str(run)],
        ["view", str(run), "--export", str(run.parent / "out")],
        ["plan", str(run), "--prompt-tokens", "5"],
    ]


def check(arguments: list[str], code: int, said: str, run: Path) -> None:
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    assert code in (0, 1, 2), (arguments, said)
    assert "Traceback" not in said, said
    if code:
        assert len(lines) == 1, (arguments, said)
        assert str(run) in lines[0], (arguments, said)
        assert len(lines[0]) < 3000, lines[0][:300]


@pytest.mark.parametrize("file", FILES)
def test_whoever_looks_at_a_harmed_run_gets_an_answer_or_one_line(
    run, sound, file, capsys, monkeypatch
):
    shutil.copytree(sound, run.parent / "other")
    if file == "team/p/motet.json" or not (run / file).exists():
        (run / file).parent.mkdir(parents=True, exist_ok=True)
        (run / file).touch()
    whole = shutil.copytree(run, run.parent.parent / "whole", symlinks=True)
    faults = []
    for name, harm in GENERAL.items():
        shutil.rmtree(run)
        shutil.copytree(whole, run, symlinks=True)
        harm(run / file)
        for arguments in commands(run):
            shutil.rmtree(run.parent / "out", ignore_errors=True)
            try:
                code, said = called(arguments, capsys, monkeypatch)
                check(arguments, code, said, run)
            except (Exception, AssertionError) as error:  # noqa: BLE001  all are told together
                faults.append(f"{name}: {arguments[0]}: {type(error).__name__}: {str(error)[:300]}")
    assert not faults, "\n".join(faults)


def test_a_config_of_many_keys_is_refused_at_once(run, capsys, monkeypatch):
    many = "".join(f"k{n}: {n}\n" for n in range(300_000))
    (run / "config.yaml").write_text(many)
    for arguments in (["show", str(run)], ["train", str(run / "config.yaml")]):
        with within(10.0):
            code, said = called(arguments, capsys, monkeypatch)
        assert (code, said.count("error: ")) == (2, 1)
        assert "more than 20,000 values; expected fewer" in said


def _rehashed(checkpoint: Path) -> None:
    """Give the manifest the right hashes, as somebody would who makes a checkpoint."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    for name in manifest["files"]:
        manifest["files"][name] = file_hash(checkpoint / name)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def _resumed(run: Path, sound: Path, capsys: Any, monkeypatch: Any) -> tuple[int, str]:
    arguments = ["train", str(sound / "config.yaml"), "train.steps=3", "--resume"]
    return called([*arguments, "--runs", str(run.parent)], capsys, monkeypatch)


def test_a_checkpoint_whose_state_holds_anything_is_refused_in_one_line(
    run, sound, capsys, monkeypatch
):
    checkpoint = run / "checkpoints" / "step-000002"
    state = json.loads((checkpoint / "state.json").read_text())
    faults = []
    harms = [{key: value} for key in state for value in ("text", [1])]
    harms += [{"weights": {**state["weights"], "optimizers": value}} for value in ODD]
    harms += [{"profile": {"steps": 1, "seconds": value}} for value in ODD]
    harms += [{"heldout": {"before": value}} for value in ODD]
    whole = shutil.copytree(run, run.parent.parent / "whole", symlinks=True)
    for harm in harms:
        shutil.rmtree(run)
        shutil.copytree(whole, run, symlinks=True)
        (checkpoint / "state.json").write_text(json.dumps({**state, **harm}))
        _rehashed(checkpoint)
        try:
            code, said = _resumed(run, sound, capsys, monkeypatch)
            check(["resume"], code, said, run)
        except (Exception, AssertionError) as error:  # noqa: BLE001  all are told together
            faults.append(f"{harm}: {type(error).__name__}: {str(error)[:300]}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "tensors",
    [
        b"",
        b"\xff" * 64,
        b"\x08\0\0\0\0\0\0\0[[[[[[[[",
        save({"weights.p.0": torch.zeros(1)}),
        save({"other": torch.zeros(2)}),
    ],
)
def test_a_checkpoint_with_other_tensors_is_refused_in_one_line(
    run, sound, tensors, capsys, monkeypatch
):
    checkpoint = run / "checkpoints" / "step-000002"
    (checkpoint / "tensors.safetensors").write_bytes(tensors)
    _rehashed(checkpoint)
    code, said = _resumed(run, sound, capsys, monkeypatch)
    check(["resume"], code, said, run)
    assert code == 2, said
