"""Convert exceptions of an environment into recorded Faults. No other module does this."""

from collections.abc import Awaitable
from typing import TypeVar

from codejudge import SandboxError, SandboxFault
from motet.core import Boundary, Fault
from motet.errors import ConfigError, EnvironmentFault, MotetError, RewardFault, SamplerFault
from motet.user_code.own_code import origin, place_of_error, trace_of

T = TypeVar("T")

_BOUNDARIES: dict[type[Exception], Boundary] = {
    EnvironmentFault: "environment",
    RewardFault: "reward",
    SamplerFault: "sampler",
    SandboxFault: "sandbox",
}


async def attempt(action: Awaitable[T]) -> T | Fault:
    """Return the result of `action`, or the Fault that it raised.

    The four fault classes keep their boundary. Any exception that is not Motet's own is a bug or a
    failure in the environment, such as a KeyError or a timeout of its server. It becomes an
    environment fault of this one episode or joint action. Other exceptions pass through:
    ConfigError and TrainingDiverged concern the whole run, and cancellation is not a failure.
    """
    try:
        return await action
    except tuple(_BOUNDARIES) as error:
        return _recorded(error)
    except MotetError:
        raise
    except SandboxError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:  # noqa: BLE001 - not swallowed: it becomes a Fault, which is counted and shown
        return _recorded(error)


def _recorded(error: Exception) -> Fault:
    """Return the Fault of an error.

    `cause` is the cause that the error names, else the class of the original exception: for `raise
    RewardFault(...) from TimeoutError()` it is TimeoutError.
    """
    named = error.cause if isinstance(error, MotetError) else None
    where: Boundary = next(
        (boundary for kind, boundary in _BOUNDARIES.items() if isinstance(error, kind)),
        "environment",
    )
    cause = named or type(error.__cause__ or error).__name__
    message = (str(error) or repr(error)) + _hint(error)
    return Fault(where, cause, message, place_of_error(error), trace_of(error))


def _hint(error: Exception) -> str:
    """Return advice for an import inside a function, when the folder of the file is not importable
    any more, and for a plain function that does not work in a thread."""
    if isinstance(origin(error), ModuleNotFoundError):
        return ": import it at the top of the file, where the file's own folder is importable"
    if any(said in str(error) for said in _OF_THREADS):
        return (
            ": plain functions run in threads. Set rollout.call_threads: 1 for code that needs the "
            "main thread, or make the function async"
        )
    return ""


_OF_THREADS = (
    "signal only works in main thread",
    "can only be used in that same thread",  # SQLite
    "Cannot switch to a different thread",  # greenlets, as in Playwright
    "no running event loop",
    "There is no current event loop",
)
"""What Python and libraries say where they are called in another thread than they expect."""
