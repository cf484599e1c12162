"""Where an exception becomes data: the one place that turns what an environment raises into a recorded Fault."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from motet.core import Boundary, Fault
from motet.errors import EnvironmentFault, MotetError, RewardFault, SamplerFault, SandboxFault

T = TypeVar("T")

_BOUNDARIES: dict[type[Exception], Boundary] = {
    EnvironmentFault: "environment",
    RewardFault: "reward",
    SamplerFault: "sampler",
    SandboxFault: "sandbox",
}


async def again(retries: int, action: Callable[[], Awaitable[T]]) -> T:
    """What `action()` gives. Where it fails for a cause that may pass (a lost connection, a time-out, an error that says
    `may_pass`) it is called again, up to `retries` times, after a wait that doubles until it is half a minute.

    Raises: what the last call raised.
    """
    wait = _FIRST_WAIT_SECONDS
    for _ in range(retries):
        try:
            return await action()
        except (ConnectionError, TimeoutError):
            pass
        except MotetError as error:
            if not error.may_pass:
                raise
        await _pause(wait)
        wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
    return await action()


_FIRST_WAIT_SECONDS = 0.5
_LONGEST_WAIT_SECONDS = 30.0
_pause = asyncio.sleep


async def attempt(action: Awaitable[T]) -> T | Fault:
    """What `action` gives, or the Fault that it raised.

    The four faults keep their boundary. Any exception that is not Motet's own is a bug or a failure inside the environment (a
    KeyError, a time-out of its server), so it is an environment fault of this one episode or joint action. Everything else passes
    through: ConfigError and TrainingDiverged concern the run, and cancellation is nobody's failure.
    """
    try:
        return await action
    except tuple(_BOUNDARIES) as error:
        return _recorded(error)
    except MotetError:
        raise
    except Exception as error:  # noqa: BLE001 - not swallowed: it becomes a Fault, which is counted and shown
        return _recorded(error)


def _recorded(error: Exception) -> Fault:
    """`cause` is the error's own word, else the class of what was raised first: of `raise RewardFault(...) from TimeoutError()`,
    TimeoutError."""
    named = error.cause if isinstance(error, MotetError) else None
    where: Boundary = next(
        (boundary for kind, boundary in _BOUNDARIES.items() if isinstance(error, kind)), "environment"
    )
    return Fault(where, named or type(error.__cause__ or error).__name__, str(error) or repr(error))
