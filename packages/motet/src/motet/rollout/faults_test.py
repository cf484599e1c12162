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
from motet.rollout.faults import attempt
from motet.user_code.threads import call, threads


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
