"""Time limits for code that is not Motet's own: an environment, and the reward inside it.

What awaits is cancelled. What does not await (it computes, or sleeps, or reads a socket) holds the event loop, so nothing that
runs in the loop can end it. In the main thread a signal can: Python runs its handler between two instructions and in calls that
wait, and what the handler raises comes out of the code that was running there. So:

    _Call        one call of such code, and how long it may take
    _Timed       its coroutine; says before every stretch, which ends at the next await, whose stretch it is
    _Guard       a thread that watches the stretch, and sends the signal where it is longer than the limit; and a timer of
                 the kernel's for code that lets no other thread run, such as the search for a regular expression

A thread cannot be ended from outside in Python, and a process of its own would need an environment that can be pickled. Code in
C that does not come back to Python hears no signal: `_Guard` can only say so, and end the process where that is Motet's own.
"""

import asyncio
import math
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakSet

from motet.errors import EnvironmentFault

T = TypeVar("T")


class TimedOut(EnvironmentFault):
    """An environment, or its reward, took longer than it may."""

    cause = "timeout"


class BrokenOff(BaseException):
    """Raised in the midst of code that took too long. No Exception, or the code's own `except Exception` would keep it."""


async def within(
    seconds: float | None, what: str, action: Callable[[], Awaitable[T]], *, even_given_up: bool = False
) -> T:
    """What `action()` gives. Raises: TimedOut where it still waits, computes or sleeps after `seconds` (None: never).

    A loop that computed meanwhile first gets to hear what has come: its own lateness is no fault of whom it asked. For the same
    reason what does not await is timed from where it began or was woken.

    Args:
        even_given_up: also after `break_off`, as what closes what others began.
    """
    call, loop = _Call(seconds, what, even_given_up), asyncio.get_running_loop()
    doing = loop.create_task(_Timed(call, _asked(action)))
    try:
        for patience in (seconds, min(call.seconds, _HEARING_SECONDS)):
            await asyncio.wait({doing}, timeout=patience)
            if doing.done():
                return call.told(doing.result)
    except asyncio.CancelledError:
        await _cancelled(doing)
        raise
    await _cancelled(doing)
    if loop in _own_loops:  # the thread that it waited for works on: others must not wait behind it
        loop.set_default_executor(_Threads())
    raise call.too_long()


def at_once(seconds: float | None, what: str, action: Callable[[], T]) -> T:
    """What `action()` gives, which does not await. Raises: TimedOut as `within`."""
    call = _Call(seconds, what)
    if _guard.has_given_up(call):
        _guard.broken_off(call)
        raise call.too_long()
    return call.told(lambda: call.stretch(action))


@contextmanager
def guarded(seconds: float | None) -> Iterator[None]:
    """While this is open, `within` and `at_once` also break off what does not await. In the main thread only.

    Args:
        seconds: the shortest limit that will be asked for; None watches nothing.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    with _guard.opened(seconds):
        yield


def break_off(frame: FrameType | None) -> None:
    """For a handler of signals that was given `frame`: breaks off the call that the signal came into, if it came into one, and
    until `calls_go_on` every call of the main thread that would begin or go on."""
    _guard.gives_up = True
    running = _guard.running
    if running is not None and not _in_our_hands(frame):
        _guard.break_off(running[0])


def calls_go_on() -> None:
    """What was broken off has ended."""
    _guard.gives_up = False


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run`, which would wait for ever for a thread that an environment was broken off in (`asyncio.to_thread`)."""

    async def begun() -> T:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_Threads())
        _own_loops.add(loop)
        return await work

    return asyncio.run(begun())


_own_loops: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class _Threads(ThreadPoolExecutor):
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nobody."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)


@contextmanager
def process_of_its_own() -> Iterator[None]:
    """For commands: the process ends, with a line and exit code 1, where a call can be broken off in no other way."""
    before, _guard.ends_process = _guard.ends_process, True
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)  # or it would kill a process that is about to end
        _guard.ends_process = before


_HEARING_SECONDS = 1.0


async def _asked(action: Callable[[], Awaitable[T]]) -> T:
    return await action()


async def _cancelled(doing: "asyncio.Task[T]") -> None:
    """Cancels it and waits until it has ended, which one that does not listen may take a while to do."""
    doing.add_done_callback(_nobodys_news)
    doing.cancel()
    await asyncio.wait({doing}, timeout=_HEARING_SECONDS)


def _nobodys_news(doing: "asyncio.Future[Any]") -> None:
    """What a task raises while it is broken off has been looked at, so asyncio does not print it."""
    if not doing.cancelled():
        doing.exception()


class _Call:
    """One call of code that is not Motet's own."""

    def __init__(self, seconds: float | None, what: str, even_given_up: bool = False) -> None:
        self.seconds, self.what, self.even_given_up = math.inf if seconds is None else seconds, what, even_given_up
        self.broken_at: float | None = None
        """When it was broken off last; None where it never was."""

    def stretch(self, action: Callable[..., T], *given: Any) -> T:
        """`action(*given)`, watched. The guard never raises in this very frame, so it always knows whose stretch it is.

        Raises: EnvironmentFault for SystemExit, which asyncio would take for the end of the whole run.
        """
        if threading.current_thread() is not threading.main_thread():
            return action(*given)
        before = _guard.running
        _guard.running = (self, time.monotonic())
        try:
            return action(*given)
        except SystemExit as error:
            raise EnvironmentFault(f"{self.what} asked to exit, with {error.code!r}; expected an answer") from error
        finally:
            _guard.running = before

    def told(self, answer: Callable[[], T]) -> T:
        """What `answer()` gives. Raises: TimedOut where it was broken off, whatever its own `except` made of that;
        EnvironmentFault where it cancelled itself, or the run would take that for its own end."""
        try:
            given = answer()
        except (Exception, BrokenOff, BaseExceptionGroup, asyncio.CancelledError) as error:
            if self.broken_at is not None or _is_broken_off(error):
                raise self.too_long() from error
            if isinstance(error, asyncio.CancelledError):
                raise EnvironmentFault(f"{self.what} was cancelled by its own code; expected an answer") from error
            raise
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # libraries raise some of their own, such as Rust's panics
            said = f"{self.what} raised {type(error).__name__}: {error}; expected an answer"
            raise EnvironmentFault(said) from error
        if self.broken_at is not None:
            raise self.too_long()
        return given

    def ended(self, task: "asyncio.Future[Any]") -> None:
        """For a task that its code started."""
        if self.broken_at is not None:
            _nobodys_news(task)

    def too_long(self) -> TimedOut:
        return TimedOut(
            f"{self.what} did not end within {self.seconds:g} s; expected an answer: look at what the environment or its reward "
            f"waits for or computes, or raise rollout.timeout_seconds"
        )


def _is_broken_off(error: BaseException) -> bool:
    grouped = isinstance(error, BaseExceptionGroup) and error.subgroup(BrokenOff) is not None
    return grouped or isinstance(error, BrokenOff)


class _Timed(Coroutine[Any, Any, T]):
    """A coroutine whose stretches are watched. In everything else it is the one inside, which anyio, for one, looks at."""

    def __init__(self, call: _Call, inside: Coroutine[Any, Any, T]) -> None:
        self._call, self._inside = call, inside

    def send(self, value: Any) -> Any:
        if _guard.has_given_up(self._call):
            return self.throw(_guard.broken_off(self._call))
        return self._call.stretch(self._inside.send, value)

    def throw(self, *error: Any) -> Any:
        return self._call.stretch(self._inside.throw, *error)

    def close(self) -> None:
        self._inside.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._inside.__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


class _Guard:
    """Watches the stretches of the main thread while anybody has it open."""

    def __init__(self) -> None:
        self.running: tuple[_Call, float] | None = None
        """Whose code the main thread is in, and since when."""
        self.ends_process = False
        self.gives_up = False
        """Whether the run of the main thread is to stop, so that no call goes on."""
        self._users = 0
        self._tick = 0.0
        """Seconds between looks."""
        self._put_back: Callable[[], None] = lambda: None

    @contextmanager
    def opened(self, seconds: float) -> Iterator[None]:
        tick = max(_SHORTEST_TICK, min(seconds / 10, _LONGEST_TICK))
        self._tick = min(self._tick, tick) if self._users else tick
        self._users += 1
        if self._users == 1:
            self._put_back = self._begin()
        signal.setitimer(signal.ITIMER_VIRTUAL, self._tick, self._tick)  # of CPU time, and it sends _SIGNAL
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                self._put_back()

    def has_given_up(self, call: _Call) -> bool:
        return self.gives_up and not call.even_given_up and threading.current_thread() is threading.main_thread()

    def break_off(self, call: _Call) -> None:
        raise self.broken_off(call)

    def broken_off(self, call: _Call) -> BrokenOff:
        call.broken_at = time.monotonic()
        return BrokenOff(f"{call.what} is broken off")

    def _begin(self) -> Callable[[], None]:
        """Starts to watch. What it gives ends that, and leaves signals and the loop as they were."""
        loop, over, main = asyncio.get_running_loop(), threading.Event(), threading.get_ident()
        makes_task, handler = loop.get_task_factory(), signal.signal(_SIGNAL, self._heard)
        made = makes_task or (lambda loop, work, **named: asyncio.Task(work, loop=loop, **named))
        timer = signal.getitimer(signal.ITIMER_VIRTUAL)
        watch = threading.Thread(target=self._watch, args=(over, main), name="time limits", daemon=True)
        watch.start()

        def make_task(loop: Any, inside: Any, **named: Any) -> Any:
            # What the environment starts beside itself is its own too.
            if self.running is None or isinstance(inside, _Timed):
                return made(loop, inside, **named)
            task = made(loop, _Timed(call := self.running[0], inside), **named)
            task.add_done_callback(call.ended)
            return task

        def end() -> None:
            signal.setitimer(signal.ITIMER_VIRTUAL, *timer)  # first of all: a second Ctrl-C may end this anywhere
            over.set()
            watch.join()
            self.running = None
            loop.set_task_factory(makes_task)
            signal.signal(_SIGNAL, handler)

        loop.set_task_factory(make_task)
        return end

    def _heard(self, number: int, frame: FrameType | None) -> None:
        """In the main thread, in the midst of whatever it was doing."""
        running = self.running
        if running is None or _in_our_hands(frame):
            return
        call, since = running
        patience = call.seconds
        if call.broken_at is not None and call.broken_at > since:
            since, patience = call.broken_at, min(call.seconds, _PARTING_SECONDS)
        if time.monotonic() - since >= patience:
            self.break_off(call)

    def _watch(self, over: threading.Event, main: int) -> None:
        seen: tuple[_Call, float] | None = None
        looks = 0
        while not over.wait(tick := self._tick):
            running = self.running
            if running is None or time.monotonic() - running[1] < running[0].seconds:
                continue
            looks = looks + 1 if running is seen else 1
            seen = running
            if signal.getsignal(_SIGNAL) == self._heard:  # who took it and put the default back would be killed by it
                signal.pthread_kill(main, _SIGNAL)
            # Counted and not timed: a process that was suspended meanwhile has had no time to hear anything.
            if looks == math.ceil(max(running[0].seconds, _DEAF_SECONDS) / tick):
                self._tell(running[0])

    def _tell(self, call: _Call) -> None:
        end = "so this process ends" if self.ends_process else f"kill -9 {os.getpid()} ends this process"
        said = (
            f"\nerror: {call.what} does not end, and cannot be broken off: it is in code that does not come back to Python, or "
            f"keeps whatever is raised; {end}. A run goes on with --resume\n"
        )
        with suppress(OSError):  # who started it may hear no more
            os.write(2, said.encode())
        if self.ends_process:
            os._exit(1)


def _in_our_hands(frame: FrameType | None) -> bool:
    """Whether a signal came just as a stretch begins or ends, where raising would leave it unknown whose code runs."""
    return frame is None or frame.f_code is _Call.stretch.__code__


_SIGNAL = signal.SIGVTALRM
"""Not SIGALRM, which rewards use for time limits of their own."""
_SHORTEST_TICK, _LONGEST_TICK = 0.01, 1.0
_PARTING_SECONDS = 5.0
"""What is broken off has so long, or its limit if that is shorter, to close what it opened: then it is broken off again."""
_DEAF_SECONDS = 10.0
"""At least so long a call is asked to end before it is told that it does not."""
_guard = _Guard()
