"""How a run is asked to stop, and hears it wherever it is: within a token, a micro-batch, or an environment."""

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from motet.errors import Interrupted
from motet.timeouts import break_off, calls_go_on

T = TypeVar("T")


class Stop:
    """A wish to stop. It is made once, from any thread or a signal, and stands."""

    def __init__(self) -> None:
        self._wished = False
        self._given_up: Callable[[], object] | None = None

    def wished(self) -> bool:
        """Whether somebody wants the run to stop."""
        return self._wished

    def wish(self) -> None:
        """From now on `wished`, and what `unless_wished` runs is cancelled."""
        self._wished = True
        if self._given_up is not None:
            self._given_up()

    def check(self) -> None:
        """Raises: Interrupted if `wished`."""
        if self._wished:
            raise Interrupted("stopped as asked")

    async def unless_wished(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives. Raises: Interrupted once `wished`, after `work` was cancelled and has ended; also where it had ended
        before it heard of that, for what it was doing may have been broken off."""
        task, loop = asyncio.ensure_future(work), asyncio.get_running_loop()
        self._given_up = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._wished:
            task.cancel()
        try:
            done = await task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is None or not own.cancelling():  # who waits here was not cancelled: `work` was, by the wish
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
        """The first SIGINT or SIGTERM is a wish, a second one ends the process as it does elsewhere."""
        if threading.current_thread() is not threading.main_thread():  # which alone gets signals
            yield
            return

        # Not the loop's own handlers: a loop that computes for minutes without waiting would hear nothing meanwhile.
        def heard(number: int, frame: FrameType | None) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            self.wish()
            # From a thread of its own, because the signal may have come in the middle of printing.
            threading.Thread(target=say, args=("stopping; once more stops without a checkpoint",)).start()
            if self._given_up is not None:  # what an environment does just now would be cancelled where it awaits next
                break_off(frame)

        with _handled(heard):
            yield


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM is Ctrl-C, so that what has begun is put away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled(signal.default_int_handler):
        yield


@contextmanager
def _handled(handler: Callable[..., object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
