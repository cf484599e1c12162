"""Call a user's code again after an error that may pass."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from motet.errors import MotetError

T = TypeVar("T")

_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 30.0
_pause = asyncio.sleep


async def again(retries: int, action: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `action()`, with up to `retries` retries after an error that may pass.

    The wait before a retry doubles each time, from half a second up to 30 seconds.

    Raises: what the last call raised.
    """
    wait = _FIRST_WAIT_SECONDS
    for _ in range(retries):
        try:
            return await action()
        except Exception as error:
            if not may_pass(error):
                raise
        await _pause(wait)
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
    return await action()


def may_pass(error: Exception) -> bool:
    """Return whether an error may be temporary: a lost connection, a timeout, or one that says so
    (`MotetError.may_pass`)."""
    lost = isinstance(error, ConnectionError | TimeoutError)
    return lost or (isinstance(error, MotetError) and error.may_pass)
