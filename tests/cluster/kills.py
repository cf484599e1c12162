"""Kill the processes of one run at random moments, and compare its end with an unbroken run.

    python -m tests.cluster.kills --kills 10 --seed 1
    python -m tests.cluster.kills --kills 10 --seed 1 --engine vllm

The run is a short quickstart on a local Ray. SIGKILL ends its driver, a home and its engine in
turn. After the driver was killed, --resume continues the run; otherwise it continues by itself. At
the end its metrics, weights, checkpoint and episodes must be those of the unbroken run, which for
`own` is a run without a cluster. Prints a table. The exit code is 1 if anything differs, or if a
process is left over.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen

import psutil

from tests.cluster.conftest import placed, terminated
from tests.faults.short_runs import Unbroken, fingerprint, lines, said, started, wait, watched
from tests.small_runs import contents, rows, weights

NAME, STEPS = "quickstart", 24
SHORT = (
    f"train.steps={STEPS}",
    # vLLM on a CPU needs heads of width 32.
    "models.tiny.embedded.heads=2", "models.tiny.embedded.kv_heads=1",
)  # fmt: skip
ON_CPU = ("cluster.learners.gpus=0", "cluster.restarts=100")
FLAGS = {
    "own": (*SHORT, *ON_CPU),
    "vllm": (
        *SHORT, *ON_CPU, "policies.aux.train=lora", "policies.main.train=lora",
        "cluster.samplers.engine=vllm", "cluster.samplers.gpus=0",
    ),
}  # fmt: skip
VICTIMS = {"own": ("driver", "home"), "vllm": ("driver", "home", "engine")}
CLASSES = {"home": "Home", "engine": "VllmEngine"}
SECONDS = 1800.0
"""The longest wait for a moment, or for the end of the run."""


@dataclass(frozen=True)
class Kill:
    """When which process is killed."""

    victim: str
    line: int
    """Lines of the metrics that the run has written."""
    share: float
    """The share of the time to the next line that has passed."""
    which: float
    """Chooses among several homes: 0 is the first one, and 1 would be after the last one."""


def moments(engine: str, seed: int, number: int, length: int) -> Iterator[Kill]:
    """Yield random moments of a run with `length` lines of metrics, in their order."""
    dice, victims = random.Random(seed), VICTIMS[engine]
    # The last lines are left out: the run may be over before a process is found and killed.
    for count, line in enumerate(sorted(dice.sample(range(0, length - 4, 2), number))):
        yield Kill(victims[count % len(victims)], line, dice.random(), dice.random())


def broken(kills: Sequence[Kill], whole: Unbroken, runs: Path, flags: Sequence[str]) -> list[str]:
    """Run to the end through all kills, and print a row for each. Returns what differs."""
    run, left, below = runs / NAME, list(kills), set[psutil.Process]()
    while True:
        resume = ["--resume"] if (run / "config.yaml").is_file() else []
        with started(NAME, runs, *flags, *resume) as process:
            while left:
                kill = left.pop(0)
                below |= strike(kill, whole, run, process)
                shown = (len(kills) - len(left), kill.victim, lines(run), newest(run))
                print(f"| {' | '.join(map(str, shown))} |", flush=True)
                if kill.victim == "driver":
                    break
            else:
                assert process.wait(SECONDS) == 0, said(runs)
                break
    assert "Traceback" not in said(runs), said(runs)
    different = [what.__name__ for what in (metrics, weights, checkpoint, episodes)
                 if what(run) != what(whole.run)]  # fmt: skip
    return different + [f"{one.name()} is left over" for one in terminated(list(below))]


def strike(kill: Kill, whole: Unbroken, run: Path, process: "Popen[str]") -> set[psutil.Process]:
    """Kill the process at its moment. Returns all processes that were below the command."""
    own = psutil.Process(process.pid)

    def victims() -> list[psutil.Process]:
        return [own] if kill.victim == "driver" else placed(own.pid, CLASSES[kill.victim])

    def come() -> bool:
        time.sleep(0.01)
        return run.is_dir() and lines(run) >= kill.line and bool(victims())

    wait(come, process, run.parent, SECONDS)
    gap = whole.times[kill.line] - (whole.times[kill.line - 1] if kill.line else 0.0)
    time.sleep(kill.share * gap)
    below, dead = set(own.children(recursive=True)), False
    while not dead:
        wait(come, process, run.parent, SECONDS)
        with suppress(psutil.NoSuchProcess, IndexError):
            found = victims()
            found[int(kill.which * len(found))].kill()
            dead = True
    return below


def newest(run: Path) -> int | str:
    steps = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    return max(steps, default="none")


def metrics(run: Path) -> list[dict[str, object]]:
    """Return the rows without times and the count of engines that were replaced."""
    return [
        {name: value for name, value in row.items() if name != "publish/engines_replaced"}
        for row in rows(run)
    ]


def checkpoint(run: Path) -> bytes:
    return (run / f"checkpoints/step-{STEPS:06d}/tensors.safetensors").read_bytes()


def episodes(run: Path) -> dict[str, bytes]:
    return contents(run / "episodes")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, help="default: 10")
    parser.add_argument("--seed", type=int, default=1, help="chooses the moments; default: 1")
    parser.add_argument("--engine", choices=list(FLAGS), default="own")
    chosen = parser.parse_args(arguments)
    flags = FLAGS[chosen.engine]
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        times = watched(NAME, runs / "whole", *(SHORT if chosen.engine == "own" else flags))
        whole = Unbroken(runs / "whole" / NAME, tuple(times))
        drawn = list(moments(chosen.engine, chosen.seed, chosen.kills, lines(whole.run)))
        print("| kill | of | lines of metrics | newest checkpoint |\n| --- | --- | --- | --- |")
        different = broken(drawn, whole, runs / "broken", flags)
        print(f"weights of the unbroken run: {fingerprint(whole.run)}")
        print(f"weights of the killed run:   {fingerprint(runs / 'broken' / NAME)}")
        print(f"different: {', '.join(different) or 'nothing'}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
