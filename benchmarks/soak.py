"""Half an hour of the quickstart's training, after its warm-up, watched from outside: does anything pile up? Prints one table.

    python benchmarks/soak.py                  as `make soak` does
    python benchmarks/soak.py --minutes 6      a shorter look, which promises less

The run trains with the sandbox, checkpoints, evaluates and records as any run does, and is stopped by a signal in the end. Every
5 s its processes are counted: the trainer, the sandbox's warm servers, and the programs that happen to run then. Programs are
looked for more often, because each lives for milliseconds. Memory of several processes is PSS, in which what they share counts
once. What must hold is in PROMISES; where one does not, the exit code is 1. Linux only.
"""

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import psutil
import torch

ROOT = Path(__file__).parent.parent
FILE = ROOT / "benchmarks" / "results" / "soak.json"
EVERY_SECONDS, GLANCE_SECONDS = 5.0, 0.05
SETTLED_MINUTES = 5.0
"""Training by then has what caches, pools and allocators take for themselves at the beginning."""
LEAVE_SECONDS = 60.0
"""How long the run may take to end after its signal."""
MB = 1 << 20
POOL = min(32, (os.cpu_count() or 1) + 4)
"""Threads that an event loop may keep for what it is asked to do beside it; it starts them as it needs them."""
PROMISES: dict[str, tuple[str, Callable[[float], bool]]] = {
    "trainer_mb_a_minute": ("below 1", lambda slope: slope < 1.0),
    "tree_mb_a_minute": ("below 1", lambda slope: slope < 1.0),
    "files_gained": ("0", lambda count: count == 0),
    "threads_gained": (f"at most {POOL}", lambda count: count <= POOL),
    "processes_gained": ("0", lambda count: count == 0),
    "zombies": ("0", lambda count: count == 0),
    "programs_seen": ("above 0", lambda count: count > 0),
    "oldest_program_seconds": (f"below {EVERY_SECONDS:g}", lambda seconds: seconds < EVERY_SECONDS),
    "exit_code": ("130", lambda code: code == 130),
}
"""What is measured once the run has settled, what it should be, and whether it is."""


@dataclass(frozen=True)
class Sample:
    """The run at one moment. Programs come and go, so they count in the memory of the tree only."""

    minutes: float
    """Of training; below 0 before its first step."""
    trainer_mb: float
    """Resident memory of the trainer."""
    tree_mb: float
    """PSS of all processes."""
    servers: int
    """Processes that stay: the sandbox's servers and what holds them."""
    files: int
    """Open descriptors of the trainer."""
    threads: int
    zombies: int
    steps: int


@dataclass
class Programs:
    """The sandbox's short-lived processes, as far as they were seen: when first, and when last."""

    seen: dict[tuple[int, float], tuple[float, float]] = field(default_factory=dict)

    def see(self, process: psutil.Process, now: float) -> None:
        key = process.pid, process.create_time()  # a number alone may come again
        self.seen[key] = self.seen.get(key, (now, now))[0], now

    @property
    def oldest_seconds(self) -> float:
        return max((last - first for first, last in self.seen.values()), default=0.0)


class Watch:
    """Looks at a run from outside. A process that is gone before it was looked at is nobody's fault."""

    def __init__(self, run: subprocess.Popen[bytes], metrics: Path) -> None:
        self.begun = time.monotonic()
        """When training did, as far as is known."""
        self.programs = Programs()
        self._trainer, self._metrics = psutil.Process(run.pid), metrics
        self._standing: set[int] = set()

    def sample(self) -> Sample:
        tree = self._trainer.children(recursive=True)
        standing = [child for child in tree if self._stands(child)]
        self._standing = {child.pid for child in standing}
        steps, now = _steps(self._metrics), time.monotonic()
        if not steps:
            self.begun = now + EVERY_SECONDS
        return Sample(
            minutes=(now - self.begun) / 60,
            trainer_mb=self._trainer.memory_info().rss / MB,
            tree_mb=sum(_pss(process) for process in (self._trainer, *tree)) / MB,
            servers=len(standing),
            files=self._trainer.num_fds(),
            threads=self._trainer.num_threads(),
            zombies=sum(_is_zombie(child) for child in tree),
            steps=steps,
        )

    def glance(self) -> None:
        """Only at who runs below the servers."""
        for pid in self._standing:
            with suppress(psutil.Error):
                for child in psutil.Process(pid).children():
                    if child.pid not in self._standing:
                        self.programs.see(child, time.monotonic())

    def _stands(self, child: psutil.Process) -> bool:
        """A server is not forked from one: it was started with a command of its own, or holds the one that was."""
        with suppress(psutil.Error):
            parent = child.parent()
            return parent is not None and (parent.pid == self._trainer.pid or parent.ppid() == self._trainer.pid)
        return False


def _pss(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


def _is_zombie(process: psutil.Process) -> bool:
    """For longer than a moment: whoever has ended waits until its parent has looked."""
    with suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            time.sleep(0.2)
            return bool(process.status() == psutil.STATUS_ZOMBIE)
    return False


def _steps(metrics: Path) -> int:
    return sum("play/tokens" in line for line in metrics.read_text().splitlines()) if metrics.is_file() else 0


# ---------------------------------------------------------------------------------------------------- the run


def soak(minutes: float, runs: Path) -> tuple[list[Sample], dict[str, Any]]:
    """Trains for so long; the samples, and how it ended."""
    shutil.rmtree(runs / "soak", ignore_errors=True)
    motet = [sys.executable, "-c", "from motet.cli import main; main()"]
    keys = ["name=soak", "train.steps=1000000", "evaluation.every=50", "evaluation.tasks=64"]
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / "soak.log").open("wb") as log:
        run = subprocess.Popen(
            [*motet, "train", str(ROOT / "configs" / "quickstart.yaml"), *keys, "--runs", str(runs.absolute())],
            stdout=log,
            stderr=log,
            cwd=ROOT,
        )
        try:
            samples, programs = _watched(run, runs / "soak" / "metrics.jsonl", minutes)
            asked = time.monotonic()
            run.send_signal(signal.SIGINT)
            code = run.wait(LEAVE_SECONDS)
        finally:
            run.kill()
    ended = {
        "exit_code": code,
        "seconds_to_leave": time.monotonic() - asked,
        "programs_seen": len(programs.seen),
        "oldest_program_seconds": programs.oldest_seconds,
    }
    return samples, ended


def _watched(run: subprocess.Popen[bytes], metrics: Path, minutes: float) -> tuple[list[Sample], Programs]:
    watch, samples = Watch(run, metrics), list[Sample]()
    while run.poll() is None and (not samples or samples[-1].minutes < minutes):
        samples.append(watch.sample())
        until = time.monotonic() + EVERY_SECONDS
        while time.monotonic() < until:
            watch.glance()
            time.sleep(GLANCE_SECONDS)
    if run.returncode is not None:
        sys.exit(f"the run ended by itself with exit code {run.returncode}: see {metrics.parent.with_suffix('.log')}")
    return samples, watch.programs


# ---------------------------------------------------------------------------------------------------- what it came to


def figures(samples: Sequence[Sample], settled: float) -> dict[str, float]:
    """Slopes and gains from minute `settled` of training on; a gain is from its first quarter's median to its last one's."""
    later = [one for one in samples if one.minutes >= settled]
    quarter = max(1, len(later) // 4)

    def gained(read: Callable[[Sample], int]) -> float:
        return statistics.median(map(read, later[-quarter:])) - statistics.median(map(read, later[:quarter]))

    return {
        "trainer_mb_a_minute": _slope(later, lambda one: one.trainer_mb),
        "tree_mb_a_minute": _slope(later, lambda one: one.tree_mb),
        "files_gained": gained(lambda one: one.files),
        "threads_gained": gained(lambda one: one.threads),
        "processes_gained": gained(lambda one: one.servers),
        "zombies": float(max(one.zombies for one in later)),
        "trainer_mb": later[-1].trainer_mb,
        "tree_mb": later[-1].tree_mb,
        "files": float(later[-1].files),
        "steps": float(later[-1].steps),
    }


def _slope(samples: Sequence[Sample], read: Callable[[Sample], float]) -> float:
    """Least squares, per minute."""
    return statistics.linear_regression([one.minutes for one in samples], [read(one) for one in samples]).slope


def draw(samples: Sequence[Sample], settled: float, path: Path) -> None:
    """Memory above; descriptors, threads and processes below."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True)
    samples = [one for one in samples if one.steps]
    minutes = [one.minutes for one in samples]
    above.plot(minutes, [one.trainer_mb for one in samples], label="trainer, RSS")
    above.plot(minutes, [one.tree_mb for one in samples], label="all processes, PSS")
    above.set_ylabel("MB")
    for what in ("files", "threads", "servers", "zombies"):
        below.plot(minutes, [getattr(one, what) for one in samples], label=what)
    below.set_ylabel("count")
    below.set_xlabel("minutes")
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.axvline(settled, color="grey", linewidth=0.8, linestyle=":")
        axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def main() -> None:
    words = argparse.ArgumentParser(description="Train for half an hour and watch what piles up.")
    words.add_argument("--minutes", type=float, default=30.0)
    words.add_argument("--runs", type=Path, default=ROOT / "runs")
    chosen = words.parse_args()
    settled = min(SETTLED_MINUTES, chosen.minutes / 2)
    samples, ended = soak(chosen.minutes, chosen.runs)
    found = {**figures(samples, settled), **ended}
    kept = {name: holds(found[name]) for name, (_, holds) in PROMISES.items()}
    for name, value in found.items():
        verdict = f"  {'holds' if kept[name] else 'BROKEN'} (expected {PROMISES[name][0]})" if name in PROMISES else ""
        print(f"{name.replace('_', ' '):26}{value:>12,.2f}{verdict}")
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    told = {"machine": machine, "date": str(date.today()), "torch": torch.__version__, "minutes": chosen.minutes}
    rows = [asdict(one) for one in samples]
    draw(samples, settled, chosen.runs / "soak" / "soak.png")
    (chosen.runs / "soak" / "samples.json").write_text(json.dumps(rows))
    if chosen.minutes >= 30:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps({**told, "figures": found, "holds": kept, "samples": rows[::12]}, indent=1) + "\n")
    if not all(kept.values()):
        sys.exit(f"does not hold: {', '.join(name for name, holds in kept.items() if not holds)}")


if __name__ == "__main__":
    main()
