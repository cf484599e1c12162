"""Timeouts for external code: an environment, and the reward inside it.

Code that awaits is cancelled. Code that does not await (it computes, sleeps or reads a socket)
blocks the event loop, so nothing in the loop can stop it. In the main thread a signal can
(`motet/user_code/timeout_guard.py`).
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakSet

from motet.user_code.blocking import woken_by_interrupts
from motet.user_code.threads import threads, watched
from motet.user_code.timeout_guard import (
    WatchedCall,
    WatchedCoroutine,
    guard,
    in_our_hands,
    retrieve_exception,
)

T = TypeVar("T")


async def within(
    seconds: float | None,
    what: str,
    action: Callable[[], Awaitable[T]],
    *,
    even_given_up: bool = False,
) -> T:
    """Run `action()` with a timeout and return its result.

    If our own event loop was blocked, give it one more pass to process what arrived, before
    declaring a timeout: the delay was not the action's fault. For the same reason, code that does
    not await is timed from when it started or was resumed.

    Args:
        seconds: the timeout; None is no timeout.
        what: name of the call, for error messages.
        even_given_up: also run after `break_off`. Cleanup code needs this.

    Raises: TimedOut if `action()` has not finished after `seconds`.
    """
    call, loop = WatchedCall(seconds, what, even_given_up), asyncio.get_running_loop()
    context = copy_context()
    context.run(watched.set, call)
    doing = loop.create_task(WatchedCoroutine(call, _asked(action)), context=context)
    try:
        for patience in (seconds, min(call.seconds, _HEARING_SECONDS)):
            if await _ended(doing, patience, call):
                return call.result_of(doing.result)
    except asyncio.CancelledError:
        await _cancelled(doing)
        raise
    await _cancelled(doing)
    if loop in _own_loops:  # its thread may still be running: a new pool keeps others from waiting
        loop.set_default_executor(_Threads())
    raise call.too_long()


def at_once(seconds: float | None, what: str, action: Callable[[], T]) -> T:
    """Run `action()`, which does not await, with a timeout and return its result.
    Raises: TimedOut."""
    call = WatchedCall(seconds, what)
    if guard.has_given_up(call):
        guard.broken_off(call)
        raise call.too_long()
    return call.result_of(lambda: call.stretch(action))


@contextmanager
def guarded(seconds: float | None, call_threads: int = 1) -> Iterator[None]:
    """Let `within` and `at_once` also interrupt code that does not await, inside this context, and
    let plain functions run in threads.

    Code in the event loop is interrupted only if that is in the main thread.

    Args:
        seconds: the shortest timeout that will be used; None turns it off.
        call_threads: see `threads.threads`.
    """
    with threads(call_threads):
        if seconds is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        with guard.opened(seconds):
            yield


def break_off(frame: FrameType | None) -> None:
    """Interrupt the current call. A signal handler calls this with its `frame`.

    It interrupts the call in which the signal arrived, if there is one. Until `calls_go_on`, every
    call of the main thread that starts or resumes is interrupted too.
    """
    guard.gives_up = True
    running = guard.running
    if running is not None and not in_our_hands(frame):
        guard.break_off(running[0])


def calls_go_on() -> None:
    """Allow calls again, after the interrupted ones have ended."""
    guard.gives_up = False


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, but does not wait for threads at the end.

    `asyncio.run` would wait forever for the thread of an interrupted `asyncio.to_thread` call.
    """

    async def begun() -> T:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_Threads())
        _own_loops.add(loop)
        with woken_by_interrupts():
            return await work

    return asyncio.run(begun())


_own_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class _Threads(ThreadPoolExecutor):
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut down without waiting for threads."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)


@contextmanager
def process_of_its_own() -> Iterator[None]:
    """For commands: end the process with an error line and exit code 1 if a call cannot be
    interrupted."""
    before, guard.ends_process = guard.ends_process, True
    try:
        yield
    finally:
        # Otherwise the timer's signal would kill the process while it exits.
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        guard.ends_process = before


_HEARING_SECONDS = 1.0


async def _asked(action: Callable[[], Awaitable[T]]) -> T:
    return await action()


async def _ended(doing: "asyncio.Task[T]", seconds: float | None, call: WatchedCall) -> bool:
    """Wait until the task has ended, or until `seconds` of the call's time have passed."""
    stood_still = call.stood_still
    while True:
        await asyncio.wait({doing}, timeout=seconds)
        seconds = call.stood_still - stood_still
        if doing.done() or not seconds:
            return doing.done()
        stood_still += seconds


async def _cancelled(doing: "asyncio.Task[T]") -> None:
    """Cancel the task and wait until it has ended, up to `_HEARING_SECONDS` if it ignores the
    cancellation."""
    doing.add_done_callback(retrieve_exception)
    doing.cancel()
    await asyncio.wait({doing}, timeout=_HEARING_SECONDS)
