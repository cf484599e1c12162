"""Stop requests: how a run is asked to stop.

The run reacts between tokens, between micro-batches, and while an environment works.
"""

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from motet.errors import Interrupted
from motet.user_code.blocking import TOGETHER_SECONDS, on_interrupt
from motet.user_code.timeouts import break_off, calls_go_on

T = TypeVar("T")


class StopRequest:
    """A permanent request to stop, made from any thread or from a signal handler."""

    def __init__(self) -> None:
        self._wished = self._signalled = False
        self._given_up: Callable[[], object] | None = None

    def wished(self) -> bool:
        """Return whether a stop was requested."""
        return self._wished

    def wish(self) -> None:
        """Request a stop. This also cancels what `unless_wished` runs."""
        self._wished = True
        if self._given_up is not None:
            self._given_up()

    def check(self) -> None:
        """Raises: Interrupted if a stop was requested."""
        if self._wished:
            raise Interrupted("stopped as asked")

    async def unless_wished(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of `work`.

        Raises: Interrupted once a stop is requested, after `work` was cancelled and has ended. It
        is also raised if `work` ended before the cancellation reached it, because its last action
        may have been interrupted.
        """
        task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
        self._given_up = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._wished:
            task.cancel()
        try:
            done = await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            # If our own task was not cancelled, the stop request cancelled `work`.
            if own is None or not own.cancelling():
                self.check()
            raise
        finally:
            self._given_up = None
            task.cancel()
            calls_go_on()
        self.check()
        return done

    @contextmanager
    def on_signals(self, say: Callable[[str], object]) -> Iterator[None]:
        """Request a stop at the first SIGINT or SIGTERM. The second one ends the process, unless it
        comes within `TOGETHER_SECONDS`.

        In another thread than the main one, the caller that waits hands its interrupts over: the
        first requests a stop, and the second raises KeyboardInterrupt here.
        """
        if threading.current_thread() is not threading.main_thread():

            def on_handed_over() -> None:
                self.wish()
                say("stopping; a second interrupt stops without a checkpoint")

            with on_interrupt(on_handed_over):
                yield
            return

        # Do not use the loop's own handlers: while the loop computes for minutes without an await,
        # they would not run.
        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._signalled:
                signal.default_int_handler(number, frame)
            self._signalled = True
            self.wish()
            # Print in another thread, because the signal may have interrupted a print.
            threading.Thread(
                target=say, args=("stopping; a second signal stops without a checkpoint",)
            ).start()
            if self._given_up is not None:
                # Otherwise the environment would be cancelled only at its next await.
                break_off(frame)

        with _handled(on_signal):
            yield


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that everything is cleaned up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def _handled(handler: Callable[..., object]) -> Iterator[None]:
    """In this context, `handler` gets the signals. Those within `TOGETHER_SECONDS` are one."""
    last = -TOGETHER_SECONDS

    def once(number: int, frame: FrameType | None) -> None:
        nonlocal last
        if time.monotonic() >= last + TOGETHER_SECONDS:
            last = time.monotonic()
            handler(number, frame)

    before = {number: signal.signal(number, once) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        while (left := last + TOGETHER_SECONDS - time.monotonic()) > 0:
            time.sleep(left)  # the same signal may still come again
        for number, earlier in before.items():
            signal.signal(number, earlier)
