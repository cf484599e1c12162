import asyncio

import pytest

from motet.errors import ConfigError, RewardFault
from motet.user_code import retries
from motet.user_code.retries import again
from motet.user_code.timeout_guard import TimedOut


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

    monkeypatch.setattr(retries, "_pause", sleep)
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
    with pytest.raises(Busy, match="try 2"):
        asyncio.run(again(2, failing))
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
