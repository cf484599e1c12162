import asyncio

import pytest

from motet.core import Fault
from motet.errors import (
    ConfigError,
    EnvironmentFault,
    MotetError,
    RewardFault,
    SamplerFault,
    SandboxFault,
    TrainingDiverged,
)
from motet.rollout.faults import attempt


async def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "where"),
    [(EnvironmentFault, "environment"), (RewardFault, "reward"), (SamplerFault, "sampler"), (SandboxFault, "sandbox")],
)
def test_a_fault_keeps_its_boundary(error: type[MotetError], where: str) -> None:
    assert asyncio.run(attempt(_raise(error("why")))) == Fault(where, error.__name__, "why")  # type: ignore[arg-type]


def test_a_bug_of_the_author_is_an_environment_fault_of_its_class() -> None:
    assert asyncio.run(attempt(_raise(KeyError("gold")))) == Fault("environment", "KeyError", "'gold'")


def test_an_exception_without_text_shows_its_form() -> None:
    assert asyncio.run(attempt(_raise(ValueError()))) == Fault("environment", "ValueError", "ValueError()")


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


@pytest.mark.parametrize("error", [ConfigError, TrainingDiverged, asyncio.CancelledError, KeyboardInterrupt])
def test_what_concerns_the_run_passes_through(error: type[BaseException]) -> None:
    with pytest.raises(error):
        asyncio.run(attempt(_raise(error("stop"))))


def test_what_succeeds_is_handed_on() -> None:
    assert asyncio.run(attempt(asyncio.sleep(0, "value"))) == "value"
