"""Kill runs on a local Ray at random moments, continue them, and compare their ends.

    python -m tests.cluster.kills --runs 10 --seed 1
    python -m tests.cluster.kills --runs 10 --seed 1 --engine vllm

Each run is a short quickstart. SIGKILL ends its driver, one of its homes or its engine. If the
command ends then, --resume continues the run. Its metrics, weights, checkpoint and episodes must be
those of an unbroken run, which for `own` is a run without a cluster. Prints a table. The exit code
is 1 if a run differs or a process is left over.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from subprocess import Popen

import psutil

from tests.cluster.conftest import placed, terminated
from tests.faults.short_runs import STEPS, Unbroken, lines, said, started, train, wait, watched
from tests.small_runs import contents, rows, weights

NAME = "quickstart"
FLAGS = {
    "own": ("cluster.learners.gpus=0",),
    "vllm": (
        "policies.aux.train=lora", "policies.main.train=lora", "cluster.learners.gpus=0",
        "cluster.samplers.engine=vllm", "cluster.samplers.gpus=0",
    ),
}  # fmt: skip
HEADS = ("models.tiny.embedded.heads=2", "models.tiny.embedded.kv_heads=1")
"""vLLM on a CPU needs heads of width 32."""
VICTIMS = {"own": ("driver", "home"), "vllm": ("driver", "home", "engine")}
CLASSES = {"home": "Home", "engine": "VllmEngine"}
SECONDS = 1200.0
"""The longest time that a run may take."""
COLUMNS = ("killed", "lines of metrics", "newest checkpoint", "continued by", "equal")


@dataclass(frozen=True)
class Kill:
    """When which process is killed."""

    victim: str
    line: int
    """Lines of the metrics that the run has written. 0: the process has just started."""
    share: float
    """The share of the time to the next line that has passed."""
    which: float
    """Chooses among several homes: 0 is the first one, and 1 would be after the last one."""


def kills(engine: str, seed: int, length: int) -> Iterator[Kill]:
    """Yield random moments of a run with `length` lines of metrics. The victims take turns, and
    every fourth one is killed at the start."""
    dice, victims, number = random.Random(seed), VICTIMS[engine], 0
    while True:
        line = 0 if number % 4 == 3 else dice.randrange(1, length - 1)
        yield Kill(victims[number % len(victims)], line, dice.random(), dice.random())
        number += 1


def outcome(kill: Kill, whole: Unbroken, runs: Path, flags: Sequence[str]) -> dict[str, str]:
    """Start a run, kill one of its processes, and continue the run to its end.

    Returns the row of the table. Raises: AssertionError if the run cannot be continued.
    """
    run = runs / NAME
    with started(NAME, runs, *flags) as process:
        below = strike(kill, whole, run, process)
        line, checkpoint = lines(run), newest(run)
        code = process.wait(SECONDS)
    by = "itself"
    if code:
        found = (run / "config.yaml").is_file()
        by = "--resume" if found else "a new start"
        code, output = train(NAME, runs, *flags, *["--resume"] * found)
        assert code == 0, output
    different = [what.__name__ for what in (metrics, weights, checkpoint_of, episodes)
                 if what(run) != what(whole.run)]  # fmt: skip
    left = terminated(below)
    return {
        "killed": kill.victim,
        "lines of metrics": str(line),
        "newest checkpoint": "none" if checkpoint is None else str(checkpoint),
        "continued by": by,
        "equal": ", ".join(different + [f"{one.name()} is left over" for one in left]) or "yes",
    }


def strike(kill: Kill, whole: Unbroken, run: Path, process: "Popen[str]") -> list[psutil.Process]:
    """Kill the process at its moment. Returns all processes that were below the command."""
    own = psutil.Process(process.pid)

    def victims() -> list[psutil.Process]:
        return [own] if kill.victim == "driver" else placed(own.pid, CLASSES[kill.victim])

    wait(lambda: lines(run) >= kill.line and run.is_dir() and bool(victims()), process,
         run.parent, SECONDS)  # fmt: skip
    gap = whole.times[kill.line] - (whole.times[kill.line - 1] if kill.line else 0.0)
    time.sleep(kill.share * gap)
    assert process.poll() is None, f"the run was over before its kill: {said(run.parent)}"
    below, found = own.children(recursive=True), victims()
    found[int(kill.which * len(found))].kill()
    return below


def newest(run: Path) -> int | None:
    steps = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    return max(steps, default=None)


def metrics(run: Path) -> list[dict[str, object]]:
    """Return the rows without times and the count of engines that were replaced."""
    return [
        {name: value for name, value in row.items() if name != "publish/engines_replaced"}
        for row in rows(run)
    ]


def checkpoint_of(run: Path) -> bytes:
    return (run / f"checkpoints/step-{STEPS:06d}/tensors.safetensors").read_bytes()


def episodes(run: Path) -> dict[str, bytes]:
    return contents(run / "episodes")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10, help="how many runs are killed")
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments")
    parser.add_argument("--engine", choices=list(FLAGS), default="own")
    chosen = parser.parse_args(arguments)
    flags = (*HEADS, *FLAGS[chosen.engine])
    alone = HEADS if chosen.engine == "own" else flags
    equal = True
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        times = watched(NAME, runs / "whole", *alone)
        whole = Unbroken(runs / "whole" / NAME, tuple(times))
        print(f"| run | {' | '.join(COLUMNS)} |\n|{' --- |' * (1 + len(COLUMNS))}", flush=True)
        drawn = kills(chosen.engine, chosen.seed, lines(whole.run))
        for number, kill in enumerate(islice(drawn, chosen.runs), 1):
            row = outcome(kill, whole, runs / str(number), flags)
            print(f"| {number} | {' | '.join(row[name] for name in COLUMNS)} |", flush=True)
            equal &= row["equal"] == "yes"
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
