"""Train the quickstart for half an hour after its warm-up, and check that no resource grows.

    python benchmarks/soak.py                  same as `make soak`
    python benchmarks/soak.py --minutes 6      a shorter check, which proves less

The run uses the sandbox, checkpoints, evaluations and records as any run does. At the end a signal
stops it. Every 5 s its processes are counted: the trainer, the sandbox's warm servers, and the
programs that run at that moment. Programs are counted more often, because each lives for
milliseconds. Memory of several processes is PSS, which counts shared memory once. PROMISES has the
requirements; if one is not met, the exit code is 1. Prints one table. Linux only.
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
"""By this time, caches, pools and allocators have taken the memory that they take at the
beginning."""
LEAVE_SECONDS = 60.0
"""Maximum time that the run may take to end after its signal."""
MB = 1 << 20
POOL = min(32, (os.cpu_count() or 1) + 4)
"""Maximum number of threads in the default executor of an event loop, which starts them as
needed."""
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
"""Figure measured after SETTLED_MINUTES -> its required value, and the test for it."""


@dataclass(frozen=True)
class Sample:
    """The run at one moment. Programs come and go, so they count only in the memory of the process
    tree."""

    minutes: float
    """Minutes of training; negative before its first step."""
    trainer_mb: float
    """Resident memory of the trainer."""
    tree_mb: float
    """PSS of all processes."""
    servers: int
    """Long-lived processes: the sandbox's servers and the processes that hold them."""
    files: int
    """Open file descriptors of the trainer."""
    threads: int
    zombies: int
    steps: int


@dataclass
class Programs:
    """The sandbox's short-lived processes that were observed: (first time, last time) of each."""

    seen: dict[tuple[int, float], tuple[float, float]] = field(default_factory=dict)

    def see(self, process: psutil.Process, now: float) -> None:
        key = process.pid, process.create_time()  # a pid alone may be reused
        self.seen[key] = self.seen.get(key, (now, now))[0], now

    @property
    def oldest_seconds(self) -> float:
        return max((last - first for first, last in self.seen.values()), default=0.0)


class Watch:
    """Observes a run from outside. A process that ends before it was observed is ignored."""

    def __init__(self, run: subprocess.Popen[bytes], metrics: Path) -> None:
        self.begun = time.monotonic()
        """Estimated time at which training began."""
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
        """Observe only the programs that run below the servers."""
        for pid in self._standing:
            with suppress(psutil.Error):
                for child in psutil.Process(pid).children():
                    if child.pid not in self._standing:
                        self.programs.see(child, time.monotonic())

    def _stands(self, child: psutil.Process) -> bool:
        """Test whether a process is a server.

        A server is not forked from another server: it is a child of the trainer, or a child of such
        a child.
        """
        with suppress(psutil.Error):
            parent = child.parent()
            return parent is not None and (
                parent.pid == self._trainer.pid or parent.ppid() == self._trainer.pid
            )
        return False


def _pss(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_full_info().pss)
    return 0


def _is_zombie(process: psutil.Process) -> bool:
    """Test whether a process stays a zombie. Every ended process is one until its parent has waited
    for it."""
    with suppress(psutil.Error):
        if process.status() == psutil.STATUS_ZOMBIE:
            time.sleep(0.2)
            return bool(process.status() == psutil.STATUS_ZOMBIE)
    return False


def _steps(metrics: Path) -> int:
    return (
        sum("play/tokens" in line for line in metrics.read_text().splitlines())
        if metrics.is_file()
        else 0
    )


# ------------------------------------------------------------------------------------------ the run


def soak(minutes: float, runs: Path) -> tuple[list[Sample], dict[str, Any]]:
    """Train for so many minutes. Returns the samples, and how the run ended."""
    shutil.rmtree(runs / "soak", ignore_errors=True)
    motet = [sys.executable, "-c", "from motet.commands.main import main; main()"]
    keys = ["name=soak", "train.steps=1000000", "evaluation.every=50", "evaluation.tasks=64"]
    keys += ["algorithm.kl={kind: loss, estimator: k3, coefficient: 0.02}"]  # and a reference
    runs.mkdir(parents=True, exist_ok=True)
    with (runs / "soak.log").open("wb") as log:
        run = subprocess.Popen(
            [
                *motet,
                "train",
                "quickstart",
                *keys,
                "--runs",
                str(runs.absolute()),
            ],
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


def _watched(
    run: subprocess.Popen[bytes], metrics: Path, minutes: float
) -> tuple[list[Sample], Programs]:
    watch, samples = Watch(run, metrics), list[Sample]()
    while run.poll() is None and (not samples or samples[-1].minutes < minutes):
        samples.append(watch.sample())
        until = time.monotonic() + EVERY_SECONDS
        while time.monotonic() < until:
            watch.glance()
            time.sleep(GLANCE_SECONDS)
    if run.returncode is not None:
        sys.exit(
            f"the run ended by itself with exit code {run.returncode}: see "
            f"{metrics.parent.with_suffix('.log')}"
        )
    return samples, watch.programs


# ------------------------------------------------------------------------ evaluation of the samples


def figures(samples: Sequence[Sample], settled: float) -> dict[str, float]:
    """Return slopes and gains of the samples from minute `settled` of training on.

    A gain is the median of the last quarter minus that of the first quarter.
    """
    later = [one for one in samples if one.minutes >= settled]
    quarter = max(1, len(later) // 4)

    def gained(read: Callable[[Sample], int]) -> float:
        return statistics.median(map(read, later[-quarter:])) - statistics.median(
            map(read, later[:quarter])
        )

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
    """Slope by least squares, per minute."""
    return statistics.linear_regression(
        [one.minutes for one in samples], [read(one) for one in samples]
    ).slope


def draw(samples: Sequence[Sample], settled: float, path: Path) -> None:
    """Plot memory above; descriptors, threads and processes below."""
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
        verdict = (
            f"  {'holds' if kept[name] else 'BROKEN'} (expected {PROMISES[name][0]})"
            if name in PROMISES
            else ""
        )
        print(f"{name.replace('_', ' '):26}{value:>12,.2f}{verdict}")
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    told = {
        "machine": machine,
        "date": str(date.today()),
        "torch": torch.__version__,
        "minutes": chosen.minutes,
    }
    rows = [asdict(one) for one in samples]
    draw(samples, settled, chosen.runs / "soak" / "soak.png")
    (chosen.runs / "soak" / "samples.json").write_text(json.dumps(rows))
    if chosen.minutes >= 30:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(
            json.dumps({**told, "figures": found, "holds": kept, "samples": rows[::12]}, indent=1)
            + "\n"
        )
    if not all(kept.values()):
        sys.exit(f"does not hold: {', '.join(name for name, holds in kept.items() if not holds)}")


if __name__ == "__main__":
    main()
