"""Functions that block, and that also work where an event loop already runs.

Jupyter, IPython and FastAPI run an event loop in the caller's thread, and asyncio refuses a second
one in the same thread. A function marked with `blocking` then runs in a thread of its own, and the
caller waits for it.

Only the main thread receives Ctrl-C. The waiting caller hands it to the thread that works:

    first    what the work registered with `on_interrupt`, such as a run that first writes a
             checkpoint; else KeyboardInterrupt is raised inside the work
    second   KeyboardInterrupt is raised inside the work
    third    the caller stops waiting; the thread goes on until its next Python instruction
"""

import asyncio
import ctypes
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from motet.user_code.looking import refuse_command

P = ParamSpec("P")
T = TypeVar("T")

TOGETHER_SECONDS = 0.5
"""Signals so close together are one: `timeout` sends one to the process and one to its group."""
PATIENCE = 3
"""The interrupt at which the caller stops waiting."""
_reactions: dict[int, Callable[[], object]] = {}
"""Thread -> what its first interrupt does."""
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""Thread -> its event loop, which may sleep until it is woken."""

_COMMANDS = re.compile(r"motet(_\w+)?\.api")
"""The modules of the commands, also those of packages that add some."""


def blocking(function: Callable[P, T]) -> Callable[P, T]:
    """Let `function`, which runs an event loop, be called where a loop already runs.

    The function then runs in a daemon thread, with a copy of the caller's context variables. Its
    result or its exception, with the whole traceback, is that of the call. The loop of the caller
    waits, so nothing else runs in it: in a server, use `await asyncio.to_thread(function, ...)`.
    A command of `motet.api` is refused in a file that is being imported for its functions.
    """

    commands = _COMMANDS.match(function.__module__) is not None

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if commands:
            refuse_command(function.__name__)
        if _loop_runs():
            return _in_thread(partial(function, *args, **kwargs))
        return function(*args, **kwargs)

    return call


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def on_interrupt(react: Callable[[], object]) -> Iterator[None]:
    """In this context, the first interrupt of a caller that waits for this thread calls `react`.

    It is called in the caller's thread. Without a waiting caller nothing happens.
    """
    with _registered(_reactions, react):
        yield


@contextmanager
def woken_by_interrupts() -> Iterator[None]:
    """In this context, interrupts wake this thread's running event loop.

    Otherwise a loop that waits for a server would only notice them after the answer.
    """
    with _registered(_loops, asyncio.get_running_loop()):
        yield


@contextmanager
def _registered(table: dict[int, T], value: T) -> Iterator[None]:
    thread = threading.get_ident()
    before = table.get(thread)
    table[thread] = value
    try:
        yield
    finally:
        table.pop(thread, None)
        if before is not None:
            table[thread] = before


def _in_thread(action: Callable[[], T]) -> T:
    """Run `action` in a thread and wait for it. Interrupts are handed to it."""
    done: Future[T] = Future()
    context = copy_context()

    def work() -> None:
        if not done.set_running_or_notify_cancel():
            return
        try:
            result = context.run(action)
        except BaseException as error:  # noqa: BLE001 the caller raises it
            done.set_exception(error)
        else:
            done.set_result(result)

    thread = threading.Thread(target=work, name="motet", daemon=True)
    interrupts, last = 0, -TOGETHER_SECONDS
    while True:
        try:
            # An interrupt may also arrive while the thread starts.
            if not interrupts:
                thread.start()
            return done.result()
        except KeyboardInterrupt:
            if time.monotonic() < last + TOGETHER_SECONDS:
                continue
            interrupts, last = interrupts + 1, time.monotonic()
            if done.cancel() or done.done() or interrupts == PATIENCE:
                raise
            _interrupt(thread)


def _interrupt(thread: threading.Thread) -> None:
    """Hand an interrupt to the work in `thread`."""
    number = thread.ident
    assert number is not None  # the work is running
    react = _reactions.pop(number, None)
    if react is not None:
        react()
        return
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(number), ctypes.py_object(KeyboardInterrupt)
    )
    loop = _loops.get(number)
    if loop is not None:
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(lambda: None)
