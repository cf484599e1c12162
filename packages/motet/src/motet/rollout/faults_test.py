import asyncio
import signal
import sqlite3

import pytest

from codejudge import SandboxFault
from motet.core import Fault
from motet.errors import (
    ConfigError,
    EnvironmentFault,
    MotetError,
    RewardFault,
    SamplerFault,
    TrainingDiverged,
)
from motet.rollout import faults
from motet.rollout.faults import again, attempt
from motet.user_code.threads import call, threads
from motet.user_code.timeout_guard import TimedOut


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (EnvironmentFault, "environment"),
        (RewardFault, "reward"),
        (SamplerFault, "sampler"),
        (SandboxFault, "sandbox"),
    ],
)
def test_a_fault_keeps_its_boundary(error: type[MotetError], where: str) -> None:
    assert asyncio.run(attempt(_raise(error("why")))) == Fault(
        where,  # type: ignore[arg-type]
        error.__name__,
        "why",
    )


def test_a_bug_of_the_author_is_an_environment_fault_of_its_class() -> None:
    assert asyncio.run(attempt(_raise(KeyError("gold")))) == Fault(
        "environment", "KeyError", "'gold'"
    )


def test_an_exception_without_text_shows_its_form() -> None:
    assert asyncio.run(attempt(_raise(ValueError()))) == Fault(
        "environment", "ValueError", "ValueError()"
    )


def test_the_cause_is_what_was_raised_first() -> None:
    async def score() -> None:
        try:
            raise TimeoutError
        except TimeoutError as error:
            raise RewardFault("judge silent") from error

    assert asyncio.run(attempt(score())) == Fault("reward", "TimeoutError", "judge silent")


def test_an_error_may_bring_the_word_it_is_counted_by() -> None:
    class Silent(EnvironmentFault):
        cause = "expert_timeout"

    async def ask() -> None:
        try:
            raise TimeoutError
        except TimeoutError as error:
            raise Silent("nobody answered") from error

    assert asyncio.run(attempt(ask())) == Fault("environment", "expert_timeout", "nobody answered")


@pytest.mark.parametrize(
    "error", [ConfigError, TrainingDiverged, asyncio.CancelledError, KeyboardInterrupt]
)
def test_what_concerns_the_run_passes_through(error: type[BaseException]) -> None:
    with pytest.raises(error):
        asyncio.run(attempt(_raise(error("stop"))))


def test_what_succeeds_is_handed_on() -> None:
    assert asyncio.run(attempt(asyncio.sleep(0, "value"))) == "value"


# ------------------------------------------------------------------------------------------ retries


class Busy(RewardFault):
    may_pass = True


class Failing:
    """Raises the given errors one after the other, then returns 7."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors, self.calls = list(errors), 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return 7


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The recorded wait times; nothing really waits."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(faults, "_pause", sleep)
    return found


def test_what_may_pass_is_asked_again_after_a_wait_that_doubles(waits: list[float]) -> None:
    failing = Failing(ConnectionResetError("gone"), TimeoutError(), Busy("in a minute"))
    assert asyncio.run(again(3, failing)) == 7
    assert (failing.calls, waits) == (4, [0.5, 1.0, 2.0])


def test_nobody_waits_longer_than_half_a_minute(waits: list[float]) -> None:
    assert asyncio.run(again(2000, Failing(*(TimeoutError() for _ in range(1500))))) == 7
    assert waits[:8] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert max(waits) == 30.0


def test_what_does_not_pass_in_time_is_the_fault_of_the_last_try(waits: list[float]) -> None:
    failing = Failing(*(Busy(f"try {number}") for number in range(9)))
    found = asyncio.run(attempt(again(2, failing)))
    assert found == Fault("reward", "Busy", "try 2")
    assert (failing.calls, waits) == (3, [0.5, 1.0])


@pytest.mark.parametrize(
    "error",
    [
        RewardFault("wrong"),
        KeyError("gold"),
        ConfigError("no"),
        TimedOut("an hour"),
        OSError("disk"),
    ],
)
def test_what_will_not_pass_is_not_asked_again(error: Exception, waits: list[float]) -> None:
    failing = Failing(error)
    with pytest.raises(type(error)):
        asyncio.run(again(2, failing))
    assert (failing.calls, waits) == (1, [])


@pytest.mark.parametrize("kind", ["signal", "sqlite", "event loop"])
def test_a_plain_function_that_does_not_work_in_a_thread_gets_advice(kind: str) -> None:
    opened = sqlite3.connect(":memory:")
    action = {
        "signal": lambda: signal.signal(signal.SIGALRM, signal.SIG_DFL),
        "sqlite": lambda: opened.execute("select 1"),
        "event loop": lambda: asyncio.get_running_loop().time(),
    }[kind]

    async def main(most: int) -> object:
        with threads(most):
            return await attempt(call(action))

    fault = asyncio.run(main(2))
    assert isinstance(fault, Fault)
    assert "Set rollout.call_threads: 1" in fault.message
    assert not isinstance(asyncio.run(main(1)), Fault)
