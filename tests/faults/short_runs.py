"""Short runs of three published configs as subprocesses, and comparisons of their results."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from filelock import FileLock

from motet.config.paths import config_path
from tests.small_runs import ROOT, contents, rows, summary, weights

STEPS = 20
SHORT = {
    "quickstart": (
        "warmup.steps=100", "warmup.batch_size=16", "warmup.learning_rate=5e-3",
        "models.tiny.embedded.hidden_size=64", "models.tiny.embedded.layers=2",
        "models.tiny.embedded.initializer_range=0.1", "train.tasks_per_step=2",
        "train.checkpoint_every=2",
        "algorithm={credit: {scale: std}, reduce: token_mean, "
        "kl: {kind: loss, estimator: k3, coefficient: 0.02}}",
    ),
    "relay_mappo": (
        "environment.digits=1", "environment.codes=1", "warmup.steps=60", "warmup.batch_size=32",
        "train.tasks_per_step=8", "train.checkpoint_every=3",
    ),
    "debate": (
        "warmup.steps=60", "warmup.batch_size=32", "train.tasks_per_step=4",
        "train.checkpoint_every=1",
    ),
}  # fmt: skip
"""Warm enough that rewards vary and weights change."""
EVERY = {"quickstart": 2, "relay_mappo": 3, "debate": 1}
"""Steps between checkpoints."""
CLOCK = ("wall_seconds", "cpu_seconds", "tokens_per_second", "profile")
"""Fields of a summary that measure time."""


def command(name: str, runs: Path, *flags: str, halt: str | None = None) -> list[str]:
    """Return the `motet train` command of the short run `name`, into `runs`.

    With `halt`, the process stops itself once that pattern matches a file in its folder.
    """
    overrides = (*SHORT[name], f"train.steps={STEPS}", "evaluation.tasks=4", "evaluation.every=6")
    program = "from motet.commands.main import main; main()"
    if halt is not None:
        program = (
            f"from tests.faults.halting import halt_once; halt_once({str(runs)!r}, "
            f"{f'{name}/{halt}'!r}); {program}"
        )
    motet = [sys.executable, "-c", program]
    return [
        *motet,
        "train",
        str(config_path(name)),
        *overrides,
        "--runs",
        str(runs),
        *flags,
    ]


@contextmanager
def started(
    name: str, runs: Path, *flags: str, halt: str | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Start the command; it is dead when the context ends. Its output is appended to
    `runs/said`."""
    runs.mkdir(parents=True, exist_ok=True)
    scratch = runs / "scratch"  # a killed process cannot remove its own files
    scratch.mkdir(exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(scratch),
    }
    with (runs / "said").open("a") as said:
        process = subprocess.Popen(
            command(name, runs, *flags, halt=halt),
            env=environment,
            stdout=said,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def train(name: str, runs: Path, *flags: str) -> tuple[int, str]:
    """Run the command to its end; return its exit code and its output."""
    before = len(said(runs))
    with started(name, runs, *flags) as process:
        code = process.wait()
    return code, said(runs)[before:]


def said(runs: Path) -> str:
    """Return the output of all commands in `runs`."""
    path = runs / "said"
    return path.read_text() if path.is_file() else ""


def lines(run: Path) -> int:
    """Return the number of complete lines in the metrics of a run, which may be active."""
    path = run / "metrics.jsonl"
    try:
        return path.read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


# ----------------------------------------------------------------------------------------- unbroken


@dataclass(frozen=True)
class Unbroken:
    """An undisturbed run."""

    run: Path
    times: tuple[float, ...]
    """Seconds from the creation of its folder to every line of its metrics, and to its end."""

    @property
    def seconds(self) -> float:
        return self.times[-1]


def unbroken(name: str, factory: pytest.TempPathFactory) -> Unbroken:
    """Return the unbroken short run `name`; the first of several test processes makes it, once."""
    runs = _common(factory) / "unbroken" / name
    runs.mkdir(parents=True, exist_ok=True)
    with FileLock(runs / "lock"):
        if not (runs / "times.json").is_file():
            (runs / "times.json").write_text(json.dumps(watched(name, runs)))
    found = Unbroken(runs / name, tuple(json.loads((runs / "times.json").read_text())))
    _must_have_learnt(found.run)
    return found


def stopped(name: str, factory: pytest.TempPathFactory, steps: tuple[int, ...], line: int) -> Path:
    """Return the short run `name`, killed after it had recorded step `line`; it is made once.

    At that time its checkpoints were those of `steps`.
    """
    runs = _common(factory) / "stopped" / name
    runs.mkdir(parents=True, exist_ok=True)
    with FileLock(runs / "lock"):
        while not (runs / "made").is_file():
            shutil.rmtree(runs / name, ignore_errors=True)
            with started(name, runs) as process:
                wait(lambda: _recorded(runs / name, line), process, runs)
            if {path.name for path in (runs / name / "checkpoints").iterdir()} == {
                f"step-{n:06d}" for n in steps
            }:
                (runs / "made").touch()
    return runs / name


def _recorded(run: Path, step: int) -> bool:
    path = run / "metrics.jsonl"
    return path.is_file() and f'\n{{"step": {step},' in path.read_text()


def wait(
    come: Callable[[], bool], process: subprocess.Popen[str], runs: Path, seconds: float = 300.0
) -> None:
    """Wait for the condition.

    Raises: AssertionError if the process ends before, or if it takes too long.
    """
    end = time.monotonic() + seconds
    while True:
        ended = process.poll() is not None
        if come():
            return
        assert not ended, said(runs)
        assert time.monotonic() < end, said(runs)
        time.sleep(0.0005)


def wait_for_halt(process: subprocess.Popen[str], runs: Path) -> None:
    """Wait until the process has stopped itself (`halt`). Raises: as `wait`."""
    wait(
        lambda: (
            process.returncode is None
            and psutil.Process(process.pid).status() == psutil.STATUS_STOPPED
        ),
        process,
        runs,
    )


def _common(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of the tests see."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def watched(name: str, runs: Path, *flags: str) -> list[float]:
    """Run the command to its end. Returns what `Unbroken.times` has."""
    run, times = runs / name, []
    with started(name, runs, *flags) as process:
        begun = None
        while process.poll() is None:
            time.sleep(0.002)
            if begun is None and run.is_dir():
                begun = time.monotonic()
            if begun is not None:
                times += [time.monotonic() - begun] * (lines(run) - len(times))
        assert process.returncode == 0, said(runs)
        assert begun is not None
        return [*times, time.monotonic() - begun]


def _must_have_learnt(run: Path) -> None:
    """Check that the run has learnt; otherwise an equal end would prove nothing."""
    steps = [row for row in rows(run) if "play/tokens" in row]
    assert len(steps) == STEPS
    assert len({row["play/reward"] for row in steps}) > 1
    assert all(
        figure > 0
        for row in steps
        for key, figure in row.items()
        if key.startswith("learn/grad_norm")
    )


# ----------------------------------------------------------------------------------------- the same


def differences(run: Path, whole: Path) -> list[str]:
    """Return in what a killed and resumed run differs from the unbroken one; empty if in
    nothing."""
    found: list[str] = []
    for what in (rows, weights, _tensors, _plain_summary):
        found += [] if what(run) == what(whole) else [what.__name__.strip("_")]
    for part in ("episodes", "models"):
        found += [] if contents(run / part) == contents(whole / part) else [part]
    mine, its = _names(run), _names(whole)
    return (
        found
        + [f"{name} is left over" for name in mine - its]
        + [f"{name} is missing" for name in its - mine]
    )


def fingerprint(run: Path) -> str:
    """Return a hash of every trained parameter."""
    return hashlib.sha256(
        b"".join(content for _, content in sorted(weights(run).items()))
    ).hexdigest()[:12]


def _tensors(run: Path) -> bytes:
    return (run / f"checkpoints/step-{STEPS:06d}/tensors.safetensors").read_bytes()


def _plain_summary(run: Path) -> dict[str, Any]:
    return {key: value for key, value in summary(run).items() if key not in CLOCK}


def _names(run: Path) -> set[str]:
    """Return the names of all files and folders except TensorBoard's.

    TensorBoard begins a new file each time a run is resumed.
    """
    names = {path.relative_to(run).as_posix() for path in run.rglob("*")}
    return {name for name in names if not name.startswith("tensorboard/")}
