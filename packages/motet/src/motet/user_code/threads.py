"""Call a user's function: one that is async in the event loop, any other in a thread.

A plain function that waits, for a server or for a lock, would stop the event loop, and with it all
other games of the step. In threads, several wait at the same time. Computing is not faster in them,
because Python runs one thread at a time.

A thread cannot be stopped from outside. When the time of its function is over, an exception is
raised at its next Python instruction; nobody waits for a thread that does not get there.
"""

import asyncio
import ctypes
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, TypeVar

from motet.errors import EnvironmentFault
from motet.user_code.timeout_guard import BrokenOff, WatchedCall

T = TypeVar("T")

watched: ContextVar[WatchedCall | None] = ContextVar("watched", default=None)
"""The timed call to which the code that runs now belongs."""
_free: ContextVar[asyncio.Semaphore | None] = ContextVar("free_threads", default=None)
"""The threads that `call` may still start; None: it starts none."""


@contextmanager
def threads(most: int) -> Iterator[None]:
    """In this context, `call` runs up to `most` plain functions at the same time.

    With 1 they run one after the other in the thread of the event loop.
    """
    before = _free.set(asyncio.Semaphore(most) if most > 1 else None)
    try:
        yield
    finally:
        _free.reset(before)


async def call(function: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Return the result of a function that is plain or async, or whose result is awaitable."""
    free, action = _free.get(), partial(function, *given, **named)
    if free is None or is_async(function):
        result = action()
    else:
        result = await _when_free(free, action)
    return await result if inspect.isawaitable(result) else result


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling `function` gives a coroutine: also a partial, or an object with an
    async `__call__`."""
    while isinstance(function, partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - the method itself is asked
    )


async def _when_free(free: asyncio.Semaphore, action: Callable[[], T]) -> T:
    timed = watched.get()
    if timed is None:
        await free.acquire()
    else:
        with timed.standing_still():
            await free.acquire()
    try:
        return await _in_thread(action, "a function" if timed is None else timed.what)
    finally:
        free.release()


async def _in_thread(action: Callable[[], T], what: str) -> T:
    """Run `action` in a daemon thread of its own. If we are cancelled, interrupt it and go on."""
    loop, over, lock = asyncio.get_running_loop(), False, threading.Lock()
    result: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if result.done():
            return
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)

    def work() -> None:
        nonlocal over
        value: Any = None
        failed: BaseException | None = None
        try:
            value = context.run(action)
        except (SystemExit, StopIteration) as error:  # neither may pass through an event loop
            said = "called sys.exit" if isinstance(error, SystemExit) else "raised StopIteration"
            failed = EnvironmentFault(f"{what} {said}; expected a return value")
            failed.__cause__ = error
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            failed = error
        with lock:
            over = True
        try:
            loop.call_soon_threadsafe(settle, value, failed)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def thread() -> None:
        try:
            work()
        except BrokenOff:  # it arrived after the function had ended
            return

    worker = threading.Thread(target=thread, name=f"motet: {what}", daemon=True)
    worker.start()
    try:
        return await result
    except asyncio.CancelledError:
        with lock:
            if not over and worker.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(worker.ident), ctypes.py_object(BrokenOff)
                )
        raise
