"""Start the sides of a row, each in its own process, and let them take turns."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Self

import peers
from works import Claim, Side, Work

HERE = Path(__file__).parent
TAIL = 4000
"""Characters of a failed side's log that are shown."""
KEYS = {"step": "seconds"}
"""Claimed quantity -> the side's name for it, if it differs."""


@dataclass(frozen=True)
class Taken:
    """Measurements of one side, round by round."""

    side: Side
    rounds: tuple[dict[str, float], ...]

    def each(self, what: str) -> list[float]:
        return [one[KEYS.get(what, what)] for one in self.rounds]

    def value(self, what: str) -> float:
        """Return the median seconds, or the largest peak in bytes."""
        return max(self.each(what)) if what == "memory" else median(self.each(what))


@dataclass(frozen=True)
class Measured:
    """Both sides of a row, in every dtype that was requested."""

    ours: tuple[Taken, ...]
    theirs: tuple[Taken, ...]

    def of(self, claim: Claim) -> tuple[Taken, Taken]:
        """Return the two measurements that the claim compares."""
        return _chosen(self.ours, claim), _chosen(self.theirs, claim)


def _chosen(taken: Sequence[Taken], claim: Claim) -> Taken:
    if claim.dtype == "fastest":
        return min(taken, key=lambda one: one.value(claim.what))
    return next(one for one in taken if one.side.job.dtype == claim.dtype)


class Running:
    """A running side."""

    def __init__(self, side: Side, log: Path) -> None:
        environment = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "WANDB_MODE": "disabled",
            "TRL_EXPERIMENTAL_SILENCE": "1",
        }
        environment.pop("PYTHONPATH", None)
        # if there were several, TRL would use all of them
        environment.setdefault("CUDA_VISIBLE_DEVICES", "0")
        if side.program in peers.OWN:
            environment["PYTHONPATH"] = str(peers.ROOT)
        program = HERE / f"side_{side.program}.py"
        command = [str(peers.python_of(side.program)), str(program), json.dumps(asdict(side.job))]
        self.side, self._log = side, log
        with log.open("w") as file:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=environment,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def answer(self) -> dict[str, float]:
        """Return the next report of the side. Raises: SystemExit if it has crashed."""
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            print(self._log.read_text()[-TAIL:], file=sys.stderr)
            what = f"{self.side.program} in {self.side.job.dtype}"
            raise SystemExit(
                f"{what} stopped (exit status {self._process.wait()}): the end of {self._log} is "
                "above"
            )
        return json.loads(line)

    def step(self) -> dict[str, float]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has crashed; `answer` reports that
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
        return self.answer()


def rounds_for(slowest: float) -> int:
    """Return the number of rounds for a row whose slowest side takes so many seconds per step."""
    return 5 if slowest <= 20 else 3 if slowest <= 60 else 2


def measure(
    work: Work, folder: Path, device: str, rounds: int | None, say: Callable[[str], None]
) -> Measured:
    """Measure every side in every requested dtype. `folder` has the models and logs."""
    ours, theirs = (work.variants(side) for side in (work.ours, work.theirs))
    found = take_turns(work.name, [*ours, *theirs], folder, device, rounds, say)
    return Measured(found[: len(ours)], found[len(ours) :])


def take_turns(
    name: str,
    sides: Sequence[Side],
    folder: Path,
    device: str,
    rounds: int | None,
    say: Callable[[str], None],
) -> tuple[Taken, ...]:
    """Run one warm-up round, then `rounds` of one step of every side."""
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                Running(_placed(side, folder, device), folder / f"{name}-{number}.log")
            )
            for number, side in enumerate(sides)
        ]
        say(f"{name}: {len(running)} sides start")
        for one in running:
            one.answer()
        say(f"{name}: warm-up")
        slowest = max(one.step()["seconds"] for one in running)
        count = rounds or rounds_for(slowest)
        steps: list[list[dict[str, float]]] = [[] for _ in running]
        for number in range(count):
            say(f"{name}: round {number + 1} of {count}")
            for one, taken in zip(running, steps, strict=True):
                taken.append(one.step())
    return tuple(Taken(one.side, tuple(taken)) for one, taken in zip(running, steps, strict=True))


def _placed(side: Side, models: Path, device: str) -> Side:
    """Return the side with the folder of its model in place of the model's name."""
    return replace(side, job=replace(side.job, model=str(models / side.job.model), device=device))
