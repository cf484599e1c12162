"""Watch calls of external code, and interrupt those that exceed their timeout.

    WatchedCall       one call of external code, with its timeout
    WatchedCoroutine  wraps the coroutine of a call; records which call each stretch belongs to
                      (a stretch runs until the next await)
    CallGuard         a thread that checks the current stretch and sends the signal after the
                      timeout; and a kernel timer for code that lets no other thread run, such as a
                      regular expression search

Python runs a signal handler in the main thread, between two instructions and in blocking calls, and
an exception of the handler is raised in the code that was running. Python cannot stop a thread from
outside, and a separate process would need environments that can be pickled. C code that does not
return to Python cannot be interrupted by a signal. `CallGuard` can only report it, and end the
process if it belongs to Motet.
"""

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from motet.errors import EnvironmentFault

T = TypeVar("T")


class TimedOut(EnvironmentFault):
    """An environment or its reward exceeded its timeout."""

    cause = "timeout"


class BrokenOff(BaseException):
    """Raised inside code that exceeded its timeout.

    It is not an Exception; otherwise the code's own `except Exception` would catch it.
    """


class WatchedCall:
    """One call of external code."""

    def __init__(self, seconds: float | None, what: str, even_given_up: bool = False) -> None:
        self.seconds, self.what, self.even_given_up = (
            math.inf if seconds is None else seconds,
            what,
            even_given_up,
        )
        self.broken_at: float | None = None
        """Time of the last interruption; None if there was none."""
        self._stood_still, self._waiting, self._since = 0.0, 0, 0.0

    @contextmanager
    def standing_still(self) -> Iterator[None]:
        """In this context the call's time does not pass, for example while no thread is free."""
        if self._waiting == 0:
            self._since = time.monotonic()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._stood_still += time.monotonic() - self._since

    @property
    def stood_still(self) -> float:
        """Seconds so far in which the call's time did not pass."""
        waiting = time.monotonic() - self._since if self._waiting else 0.0
        return self._stood_still + waiting

    def stretch(self, action: Callable[..., T], *given: Any) -> T:
        """Run `action(*given)` while the guard watches it.

        The guard never raises in this frame, so `guard.running` is always consistent.

        Raises: EnvironmentFault for SystemExit, because asyncio would end the whole run.
        """
        if threading.current_thread() is not threading.main_thread():
            return action(*given)
        before = guard.running
        guard.running = (self, time.monotonic())
        try:
            return action(*given)
        except SystemExit as error:
            raise EnvironmentFault(
                f"{self.what} called sys.exit({error.code!r}); expected a return value"
            ) from error
        finally:
            guard.running = before

    def result_of(self, answer: Callable[[], T]) -> T:
        """Return the result of `answer()`.

        Raises: TimedOut if the call was interrupted, even if its own `except` handled that.
        EnvironmentFault if the call cancelled itself; otherwise the run would treat the
        cancellation as its own.
        """
        try:
            given = answer()
        except (Exception, BrokenOff, BaseExceptionGroup, asyncio.CancelledError) as error:
            if self.broken_at is not None or _is_broken_off(error):
                raise self.too_long() from error
            if isinstance(error, asyncio.CancelledError):
                raise EnvironmentFault(
                    f"{self.what} was cancelled by its own code; expected a return value"
                ) from error
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # some libraries define their own, such as Rust panics
            said = f"{self.what} raised {type(error).__name__}: {error}; expected a return value"
            raise EnvironmentFault(said) from error
        if self.broken_at is not None:
            raise self.too_long()
        return given

    def ended(self, task: "asyncio.Future[Any]") -> None:
        """Done-callback of tasks that the call's code started."""
        if self.broken_at is not None:
            retrieve_exception(task)

    def too_long(self) -> TimedOut:
        return TimedOut(
            f"{self.what} did not end within {self.seconds:g} s; expected a return value: check "
            "what the environment or its reward waits for or computes, or raise "
            "rollout.timeout_seconds"
        )


def _is_broken_off(error: BaseException) -> bool:
    grouped = isinstance(error, BaseExceptionGroup) and error.subgroup(BrokenOff) is not None
    return grouped or isinstance(error, BrokenOff)


class WatchedCoroutine(Coroutine[Any, Any, T]):
    """A coroutine whose stretches are watched.

    All other attributes are those of the wrapped coroutine, because libraries such as anyio inspect
    them.
    """

    def __init__(self, call: WatchedCall, inside: Coroutine[Any, Any, T]) -> None:
        self._call, self._inside = call, inside

    def send(self, value: Any) -> Any:
        if guard.has_given_up(self._call):
            return self.throw(guard.broken_off(self._call))
        return self._call.stretch(self._inside.send, value)

    def throw(self, *error: Any) -> Any:
        return self._call.stretch(self._inside.throw, *error)

    def close(self) -> None:
        self._inside.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inside.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


class CallGuard:
    """Watches the stretches of the main thread while at least one `guarded` context is open."""

    def __init__(self) -> None:
        self.running: tuple[WatchedCall, float] | None = None
        """The call that the main thread is running, and when its stretch began."""
        self.ends_process = False
        self.gives_up = False
        """Whether the run in the main thread should stop, so that no call continues."""
        self._users = 0
        self._tick = 0.0
        """Seconds between checks."""
        self._put_back: Callable[[], None] = lambda: None

    @contextmanager
    def opened(self, seconds: float) -> Iterator[None]:
        tick = max(_SHORTEST_TICK, min(seconds / 10, _LONGEST_TICK))
        self._tick = min(self._tick, tick) if self._users else tick
        self._users += 1
        if self._users == 1:
            self._put_back = self._begin()
        # This timer measures CPU time and sends _SIGNAL.
        signal.setitimer(signal.ITIMER_VIRTUAL, self._tick, self._tick)
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._put_back()

    def has_given_up(self, call: WatchedCall) -> bool:
        return (
            self.gives_up
            and not call.even_given_up
            and threading.current_thread() is threading.main_thread()
        )

    def break_off(self, call: WatchedCall) -> None:
        raise self.broken_off(call)

    def broken_off(self, call: WatchedCall) -> BrokenOff:
        call.broken_at = time.monotonic()
        return BrokenOff(f"{call.what} was interrupted")

    def _begin(self) -> Callable[[], None]:
        """Start watching. Return a function that stops it and restores signal handlers and the
        loop."""
        loop, over, main = asyncio.get_running_loop(), threading.Event(), threading.get_ident()
        makes_task, handler = loop.get_task_factory(), signal.signal(_SIGNAL, self._heard)
        made = makes_task or (lambda loop, work, **named: asyncio.Task(work, loop=loop, **named))
        timer = signal.getitimer(signal.ITIMER_VIRTUAL)
        watch = threading.Thread(
            target=self._watch, args=(over, main), name="time limits", daemon=True
        )
        watch.start()

        def make_task(loop: Any, inside: Any, **named: Any) -> Any:
            # Tasks that the environment starts belong to its call too.
            if self.running is None or isinstance(inside, WatchedCoroutine):
                return made(loop, inside, **named)
            task = made(loop, WatchedCoroutine(call := self.running[0], inside), **named)
            task.add_done_callback(call.ended)
            return task

        def end() -> None:
            # Reset the timer first, because a second Ctrl-C may interrupt this function anywhere.
            signal.setitimer(signal.ITIMER_VIRTUAL, *timer)
            over.set()
            watch.join()
            self.running = None
            loop.set_task_factory(makes_task)
            signal.signal(_SIGNAL, handler)

        loop.set_task_factory(make_task)
        return end

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """Signal handler. It runs in the main thread, inside whatever code was running."""
        running = self.running
        if running is None or in_our_hands(frame):
            return
        call, since = running
        patience = call.seconds
        if call.broken_at is not None and call.broken_at > since:
            since, patience = call.broken_at, min(call.seconds, _PARTING_SECONDS)
        if time.monotonic() - since >= patience:
            self.break_off(call)

    def _watch(self, over: threading.Event, main: int) -> None:
        seen: tuple[WatchedCall, float] | None = None
        looks = 0
        while not over.wait(tick := self._tick):
            running = self.running
            if running is None or time.monotonic() - running[1] < running[0].seconds:
                continue
            looks = looks + 1 if running is seen else 1
            seen = running
            # If external code restored the default handler, the signal would kill the process.
            if signal.getsignal(_SIGNAL) == self._heard:
                signal.pthread_kill(main, _SIGNAL)
            # Count checks instead of measuring time: a process that was suspended had no time to
            # react.
            if looks == math.ceil(max(running[0].seconds, _DEAF_SECONDS) / tick):
                self._tell(running[0])

    def _tell(self, call: WatchedCall) -> None:
        end = (
            "This process ends now"
            if self.ends_process
            else f"End this process with: kill -9 {os.getpid()}"
        )
        said = (
            f"\nerror: {call.what} does not end and cannot be interrupted: it runs code that does "
            f"not return to Python, or it catches every exception. {end}. Continue a run with "
            "--resume\n"
        )
        with suppress(OSError):  # stderr may be closed
            os.write(2, said.encode())
        if self.ends_process:
            os._exit(1)


def in_our_hands(frame: FrameType | None) -> bool:
    """Return whether a signal arrived just as a stretch begins or ends.

    Raising an exception there would leave `guard.running` inconsistent.
    """
    return frame is None or frame.f_code is WatchedCall.stretch.__code__


def retrieve_exception(doing: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of an interrupted task, so that asyncio does not print it."""
    if not doing.cancelled():
        doing.exception()


_SIGNAL = signal.SIGVTALRM
"""Not SIGALRM, because rewards use it for their own timeouts."""
_SHORTEST_TICK, _LONGEST_TICK = 0.01, 1.0
_PARTING_SECONDS = 5.0
"""Time for interrupted code to clean up, or its timeout if that is shorter. Then it is interrupted
again."""
_DEAF_SECONDS = 10.0
"""Minimum time during which a call is interrupted repeatedly before it is reported as not
interruptible."""
guard = CallGuard()
