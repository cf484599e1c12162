"""Runs killed with SIGKILL, as the kernel does when memory runs out.

They are killed at any moment, and during the write of a checkpoint. Resumed once or several times,
each must end as the unbroken run of its config did, to the bit.
"""

import random
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil
import pytest

from tests.faults.short_runs import (
    EVERY,
    SHORT,
    STEPS,
    Unbroken,
    differences,
    fingerprint,
    lines,
    said,
    started,
    train,
    unbroken,
    wait,
    wait_for_halt,
)

pytestmark = pytest.mark.slow

SEED = 20
DEATHS = 20


@dataclass(frozen=True)
class Moment:
    """When a run is killed.

    save: during the save of the checkpoint that is due at `share` of its steps. time: at `share` of
    its time.
    """

    kind: Literal["save", "time"]
    share: float
    delay: float
    """Seconds after the save began."""

    @classmethod
    def draw(cls, kind: Literal["save", "time"], dice: random.Random, after: float) -> "Moment":
        return cls(kind, dice.uniform(after, 0.95), dice.uniform(0.0, 0.008))

    def __str__(self) -> str:
        return f"{self.kind} {self.share:.2f}"


def deaths() -> dict[str, tuple[str, tuple[Moment, ...]]]:
    """Return case -> (config, moments at which it is killed). Every other case begins
    inside a save."""
    dice, configs = random.Random(SEED), list(SHORT)
    cases = {}
    for number in range(DEATHS):
        moments = [Moment.draw(("save", "time")[number % 2], dice, after=0.0)]
        while dice.random() < 0.35 and moments[-1].share < 0.9:
            moments.append(
                Moment.draw(dice.choice(("save", "time")), dice, after=moments[-1].share)
            )
        name = configs[number % len(configs)]
        cases[f"{number:02d}-{name}-{'-'.join(moment.kind for moment in moments)}"] = (
            name,
            tuple(moments),
        )
    return cases


CASES = deaths()


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_at_any_moment_ends_as_the_unbroken_run(
    case, tmp_path, tmp_path_factory, tell
):
    name, moments = CASES[case]
    whole = unbroken(name, tmp_path_factory)
    told = [killed(name, tmp_path, whole, moment) for moment in moments]
    code, output = resume_command(name, tmp_path)
    assert code == 0, output
    differ = differences(tmp_path / name, whole.run)
    tell(
        "Killed runs",
        config=name,
        moment=", ".join(map(str, moments)),
        inside=", ".join(one.where for one in told),
        resumed_from=", ".join(one.newest for one in told),
        sandbox_servers=", ".join(str(one.servers) for one in told),
        equal=", ".join(differ) or f"yes {fingerprint(tmp_path / name)}",
    )
    assert not differ
    assert "Traceback" not in said(tmp_path)
    assert [one.survivors for one in told] == [[]] * len(told)
    inside = [one.where for one, moment in zip(told, moments, strict=True) if moment.kind == "save"]
    assert all(where.startswith("save of") or where == OVER for where in inside)
    assert moments[0].kind == "time" or inside[0] != OVER


BEGUN = {
    "its folder": "",
    "its warm model": "models/.*.writing",
    "the first checkpoint": "checkpoints/.step-000000.writing",
    "its team": ".team.*.writing",
    "the second policy": ".team.*.writing/team/b",
}


@pytest.mark.parametrize("what", BEGUN)
def test_a_run_killed_when_it_begins_to_write_something_ends_as_the_unbroken_run(
    what, tmp_path, tmp_path_factory, tell
):
    name = "relay_mappo"
    whole, run = unbroken(name, tmp_path_factory), tmp_path / name
    with started(name, tmp_path, halt=BEGUN[what]) as process:
        wait_for_halt(process, tmp_path)
        process.kill()
        assert process.wait() != 0
    assert any(tmp_path.glob(f"{name}/{BEGUN[what]}"))
    newest = _newest(run)
    code, output = resume_command(name, tmp_path)
    assert code == 0, output
    differ = differences(run, whole.run)
    tell(
        "Killed runs",
        config=name,
        moment=f"{what} is begun",
        resumed_from="none" if newest is None else newest,
        equal=", ".join(differ) or f"yes {fingerprint(run)}",
    )
    assert not differ
    assert "Traceback" not in said(tmp_path)


# ------------------------------------------------------------------------------------------ killing


@dataclass(frozen=True)
class Death:
    """Observations about one kill."""

    where: str
    newest: str
    """The newest checkpoint that it left."""
    servers: int
    """Number of sandbox processes at that time."""
    survivors: list[str]


def killed(name: str, runs: Path, whole: Unbroken, moment: Moment) -> Death:
    """Start or resume the run, and kill it at `moment`.

    The delay counts from the time at which the event is observed. If that is too late, because the
    save or the whole run is over, try again with half the delay: the speed of a run is not known in
    advance.
    """
    run, aside = runs / name, runs / f"{name} before"
    number, patience = 0, moment.delay
    if moment.kind == "time":
        number, patience = _at(whole, moment.share)
    for _ in range(8):
        if moment.kind == "save" and _newest(run) == STEPS:
            return Death(OVER, str(STEPS), 0, [])
        due = _due(name, run, moment.share)
        if moment.kind == "time":
            _put_back(run, aside)
        before = _inode(run / "metrics.jsonl")
        halt = f"checkpoints/.step-{due:06d}.writing" if moment.kind == "save" else None
        with started(name, runs, *_resume(run), halt=halt) as process:
            if moment.kind == "save":
                wait_for_halt(process, runs)
                process.send_signal(signal.SIGCONT)
            else:
                # called at once
                wait(lambda: _reached(run, number, before), process, runs)  # noqa: B023
            time.sleep(patience)
            servers = _below(process.pid)
            process.kill()
            ended = process.wait() == 0
        if moment.kind == "time" and ended:
            _put_back(aside, run)
            patience /= 2
            continue
        inside = sorted(path.name for path in (run / "checkpoints").glob(".step-*.writing"))
        if moment.kind == "time" or inside:
            newest = "none" if _newest(run) is None else str(_newest(run))
            return Death(_where(run, inside), newest, len(servers), _survivors(servers))
        patience /= 2
    raise AssertionError(f"8 kills of {name} came too late for {moment}")


OVER = "no save was left"


def _where(run: Path, inside: list[str]) -> str:
    if inside:
        return f"save of {int(inside[0].removeprefix('.step-')[:6])}"
    newest = _newest(run)
    return (
        "before any save"
        if newest is None
        else "after the last save"
        if newest == STEPS
        else f"after save {newest}"
    )


def resume_command(name: str, runs: Path) -> tuple[int, str]:
    """Resume the run to its end, as a user would. If there is nothing to resume, start it again."""
    return train(name, runs, *_resume(runs / name))


def _resume(run: Path) -> tuple[str, ...]:
    return ("--resume",) if (run / "config.yaml").is_file() else ()


def _due(name: str, run: Path, share: float) -> int:
    """Return the first step, from `share` of the steps on, whose checkpoint is due and missing."""
    every, there = EVERY[name], _newest(run)
    steps = [
        step for step in (0, *range(every, STEPS, every), STEPS) if there is None or step > there
    ]
    return next((step for step in steps if step >= share * STEPS), STEPS)


def _newest(run: Path) -> int | None:
    steps = [int(path.name.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*")]
    return max(steps, default=None)


def _at(whole: Unbroken, share: float) -> tuple[int, float]:
    """Convert `share` of the unbroken run's time to a number of metrics lines and further
    seconds."""
    moment = share * whole.seconds
    number = sum(at <= moment for at in whole.times)
    return number, moment - (whole.times[number - 1] if number else 0.0)


def _reached(run: Path, number: int, before: int | None) -> bool:
    """Test whether this process's metrics file has that many lines.

    A resumed run first rewrites the lines that it keeps.
    """
    if number == 0:
        return run.is_dir()
    inode = _inode(run / "metrics.jsonl")
    return inode is not None and inode != before and lines(run) >= number


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _put_back(origin: Path, place: Path) -> None:
    """Make `place` a copy of `origin`, which may be missing."""
    shutil.rmtree(place, ignore_errors=True)
    if origin.exists():
        shutil.copytree(origin, place)


def _below(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _survivors(servers: list[psutil.Process]) -> list[str]:
    """Return the processes that live on without the trainer."""
    _, alive = psutil.wait_procs(servers, timeout=10)
    return [str(process) for process in alive if process.status() != psutil.STATUS_ZOMBIE]
