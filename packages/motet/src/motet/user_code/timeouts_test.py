"""Tests that timeouts interrupt code that does not await, wherever Python allows it, and no other
code."""

import asyncio
import gc
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from motet.errors import EnvironmentFault
from motet.user_code import timeout_guard, timeouts
from motet.user_code.timeout_guard import TimedOut
from motet.user_code.timeouts import at_once, break_off, guarded, run_loop, within
from tests.fixtures.messages import facts, says

LIMIT = 0.2
LONG = 60.0
"""Seconds that code takes, and then succeeds, if it is not interrupted."""


def computes():
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        pass
    return "computed"


def sleeps():
    time.sleep(LONG)
    return "slept"


def reads_a_socket():
    here, there = socket.socketpair()
    with here, there:
        return here.recv(1)


def waits_for_a_thread():
    return queue.Queue().get()


def waits_for_a_process():
    return subprocess.run([sys.executable, "-c", f"import time; time.sleep({LONG})"], check=True)


def searches():
    return re.match(r"(a+)+$", "a" * 64 + "b")


def multiplies():
    return 3 ** (10**9) % 7


def keeps_exceptions():
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        with suppress(Exception):
            time.sleep(LONG)
    return "kept"


def makes_it_a_score():
    try:
        time.sleep(LONG)
    except:  # noqa: E722 - like careless code
        return 0.0
    return 1.0


PLAIN = [
    computes,
    sleeps,
    reads_a_socket,
    waits_for_a_thread,
    waits_for_a_process,
    searches,
    multiplies,
    keeps_exceptions,
    makes_it_a_score,
]


async def asked(action, seconds=LIMIT):
    with guarded(seconds):
        return await within(seconds, "step", action)


def as_coroutine(plain):
    async def run():
        return plain()

    return run


def after_a_wait(plain):
    async def run():
        await asyncio.sleep(0)
        return plain()

    return run


def in_a_task_of_its_own(plain):
    async def run():
        return await asyncio.gather(as_coroutine(plain)(), asyncio.sleep(0))

    return run


def in_a_task_group(plain):
    async def run():
        async with asyncio.TaskGroup() as group:
            task = group.create_task(as_coroutine(plain)())
        return task.result()

    return run


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain.__name__)
def test_what_does_not_await_is_broken_off(plain):
    with pytest.raises(TimedOut, match=facts("step … within 0.2 s … rollout.timeout_seconds")):
        asyncio.run(asked(as_coroutine(plain)))


@pytest.mark.parametrize(
    "where", [after_a_wait, in_a_task_of_its_own, in_a_task_group], ids=lambda where: where.__name__
)
@pytest.mark.parametrize(
    "plain", [computes, sleeps, makes_it_a_score], ids=lambda plain: plain.__name__
)
def test_so_it_is_wherever_the_environment_does_it(plain, where):
    with pytest.raises(TimedOut):
        asyncio.run(asked(where(plain)))


@pytest.mark.parametrize("plain", PLAIN, ids=lambda plain: plain.__name__)
def test_a_plain_function_is_broken_off(plain):
    async def run():
        with guarded(LIMIT):
            return at_once(LIMIT, "observe", plain)

    with pytest.raises(TimedOut, match="observe did not end"):
        asyncio.run(run())


def test_what_it_opened_is_closed_and_what_it_raises_then_is_nobodys_news():
    closed = []

    async def step():
        try:
            time.sleep(LONG)
        finally:
            closed.append(True)
            raise ValueError("while closing")

    with pytest.raises(TimedOut):
        asyncio.run(asked(step))
    assert closed == [True]


def test_who_waits_beside_it_goes_on():
    async def run():
        async def waits():
            await asyncio.sleep(0)
            return "went on"

        with guarded(LIMIT):
            tries = [within(LIMIT, "step", as_coroutine(sleeps)), within(LONG, "step", waits)]
            return await asyncio.gather(*tries, return_exceptions=True)

    late, other = asyncio.run(run())
    assert isinstance(late, TimedOut)
    assert other == "went on"


def test_many_that_take_longer_together_than_one_may_are_not_late():
    async def short():
        time.sleep(0.1)
        return "in time"

    async def run():
        with guarded(1.0):
            return await asyncio.gather(*(within(1.0, "step", short) for _ in range(16)))

    assert asyncio.run(run()) == ["in time"] * 16


def test_motets_own_code_is_never_broken_off():
    async def run():
        with guarded(0.4):
            assert await within(0.4, "step", as_coroutine(lambda: 1)) == 1
            end = time.monotonic() + 1.2
            while time.monotonic() < end:  # simulate a learner or sampler that computes
                pass
            assert await within(0.4, "step", as_coroutine(lambda: 2)) == 2

    asyncio.run(run())


def test_a_time_limit_of_the_environments_own_by_sigalrm_still_works():
    def rings(*_):
        raise TimeoutError("own")

    async def step():
        before = signal.signal(signal.SIGALRM, rings)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        try:
            time.sleep(LONG)
        except TimeoutError:
            return "rang"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    assert asyncio.run(asked(step, LONG)) == "rang"


def test_afterwards_signals_tasks_and_threads_are_as_before():
    async def run():
        loop = asyncio.get_running_loop()
        before = (
            signal.getsignal(signal.SIGVTALRM),
            loop.get_task_factory(),
            threading.active_count(),
        )
        first, second = guarded(LIMIT), guarded(2 * LIMIT)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)  # two open contexts may close in any order
        with pytest.raises(TimedOut):
            await within(LIMIT, "step", as_coroutine(sleeps))
        second.__exit__(None, None, None)
        assert before == (
            signal.getsignal(signal.SIGVTALRM),
            loop.get_task_factory(),
            threading.active_count(),
        )

    asyncio.run(run())


def test_outside_of_the_main_thread_what_awaits_is_broken_off_and_nothing_else_changes():
    found = []

    def run():
        before = signal.getsignal(signal.SIGVTALRM)
        assert asyncio.run(asked(as_coroutine(lambda: time.sleep(3 * LIMIT) or "late"))) == "late"
        with pytest.raises(TimedOut):
            asyncio.run(asked(lambda: asyncio.sleep(LONG)))
        found.append(signal.getsignal(signal.SIGVTALRM) == before)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [True]


def test_what_anyio_looks_at_in_a_task_is_there():
    anyio = pytest.importorskip("anyio")

    async def step():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, LONG)
            await anyio.sleep(0)
            group.cancel_scope.cancel()
        return "over"

    assert asyncio.run(asked(step, LONG)) == "over"


def test_a_signals_handler_can_break_off_what_it_came_into():
    def heard(number, frame):
        break_off(frame)

    async def run():
        main = threading.get_ident()

        def step():
            threading.Timer(LIMIT, signal.pthread_kill, (main, signal.SIGUSR1)).start()
            time.sleep(LONG)

        before = signal.signal(signal.SIGUSR1, heard)
        try:
            with pytest.raises(TimedOut):
                await within(LONG, "step", as_coroutine(step))
            signal.raise_signal(signal.SIGUSR1)  # no call is running, so nothing happens
        finally:
            signal.signal(signal.SIGUSR1, before)
            timeouts.calls_go_on()

    asyncio.run(run())


DEAF = """
import asyncio, hashlib
from motet.user_code import timeout_guard, timeouts

async def step():
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # C that computes for minutes, and lets other threads run

async def run():
    with timeouts.guarded(0.1):
        await timeouts.within(0.1, "step", step)

timeout_guard._DEAF_SECONDS = 0.5
with timeouts.process_of_its_own():
    asyncio.run(run())
"""  # noqa: E501


def test_code_in_c_that_hears_nothing_ends_a_command_with_a_line():
    ended = subprocess.run(
        [sys.executable, "-c", DEAF], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    said = ended.stderr.strip().splitlines()
    assert len(said) == 1
    assert says(said[0], "error: step … cannot be interrupted … --resume")


def test_elsewhere_it_is_only_told(capfd, monkeypatch):
    monkeypatch.setattr(timeout_guard, "_DEAF_SECONDS", 2 * LIMIT)
    lets_go = threading.Event()

    def deaf():
        while not lets_go.is_set():
            with suppress(BaseException):
                lets_go.wait(LONG)

    monkeypatch.setattr(
        timeout_guard.CallGuard, "_tell", lambda guard, call: (told(guard, call), lets_go.set())
    )
    with pytest.raises(TimedOut):
        asyncio.run(asked(as_coroutine(deaf)))
    assert "kill -9" in capfd.readouterr().err


told = timeout_guard.CallGuard._tell


def test_a_pool_of_threads_that_it_waits_for_is_broken_off_too(monkeypatch, capfd):
    """Leaving the pool waits for its threads.

    A second exception is therefore needed, long before the call counts as not interruptible.
    """
    monkeypatch.setattr(timeout_guard, "_PARTING_SECONDS", 0.1)
    monkeypatch.setattr(timeout_guard, "_DEAF_SECONDS", 0.1)
    lets_go = threading.Event()

    def pool():
        with ThreadPoolExecutor(1) as threads:
            return threads.submit(lets_go.wait, LONG).result()

    try:
        with pytest.raises(TimedOut):
            asyncio.run(asked(as_coroutine(pool), 2.0))
    finally:
        lets_go.set()
    assert capfd.readouterr().err == ""


def test_what_another_thread_does_breaks_off_nobody_in_the_main_thread():
    begun, lets_go = threading.Event(), threading.Event()

    async def step():
        begun.set()
        lets_go.wait(LONG)

    async def run():
        other = threading.Thread(target=lambda: asyncio.run(within(LIMIT, "step", step)))
        with guarded(LIMIT):
            other.start()
            begun.wait(LONG)
            try:
                for _ in range(10):
                    time.sleep(LIMIT / 2)  # simulate a learner or sampler that computes
            finally:
                lets_go.set()
        other.join()

    asyncio.run(run())


def test_a_shorter_limit_beside_a_longer_one_breaks_off_what_lets_no_thread_run():
    async def run():
        with guarded(3600.0), guarded(LIMIT):
            await within(LIMIT, "step", as_coroutine(searches))

    with pytest.raises(TimedOut):
        asyncio.run(run())


@pytest.mark.parametrize("seconds", [1e-9, 1e12, float("inf")])
def test_a_limit_may_be_of_any_size(seconds):
    async def run():
        with guarded(seconds):
            return await within(seconds, "step", as_coroutine(lambda: 1)) if seconds > 1 else 1

    assert asyncio.run(run()) == 1


async def cancels_itself():
    raise asyncio.CancelledError


async def cancels_its_task():
    asyncio.current_task().cancel()
    await asyncio.sleep(LONG)


async def awaits_what_it_cancelled():
    task = asyncio.create_task(asyncio.sleep(LONG))
    task.cancel()
    await task


async def exits():
    sys.exit("bye")


class Panic(BaseException):
    """Like the exceptions of Rust panics in Python."""


async def panics():
    raise Panic("at the disco")


async def exits_in_a_task():
    await asyncio.create_task(exits())


@pytest.mark.parametrize(
    ("step", "seconds", "told"),
    [
        (cancels_itself, LONG, "cancelled … own code"),
        (cancels_itself, None, "cancelled … own code"),
        (cancels_its_task, LONG, "cancelled … own code"),
        (awaits_what_it_cancelled, LONG, "cancelled … own code"),
        (exits, LONG, "sys.exit('bye')"),
        (exits, None, "sys.exit('bye')"),
        (exits_in_a_task, LONG, "sys.exit('bye')"),
        (panics, LONG, "Panic: at the disco"),
        (panics, None, "Panic: at the disco"),
    ],
)
def test_what_ends_itself_does_not_end_the_run(step, seconds, told):
    async def run():
        with (
            guarded(seconds),
            pytest.raises(EnvironmentFault, match=facts(f"step … {told} … return value")),
        ):
            await within(seconds, "step", step)
        return "goes on"

    assert asyncio.run(run()) == "goes on"


def test_a_plain_function_that_exits_does_not_end_the_run():
    with pytest.raises(EnvironmentFault, match=facts("observe … sys.exit(0) … return value")):
        at_once(LONG, "observe", lambda: sys.exit(0))


def test_a_task_that_nobody_awaits_is_broken_off_in_silence(caplog, monkeypatch):
    monkeypatch.setattr(timeouts, "_HEARING_SECONDS", 0.3)

    async def step():
        asyncio.get_running_loop().create_task(as_coroutine(sleeps)())
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    async def listens_late():
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(LONG)
        await asyncio.sleep(2 * timeouts._HEARING_SECONDS)
        ended.set()
        raise ValueError("late")

    async def run():
        with guarded(LIMIT):
            for one in (step, listens_late):
                with pytest.raises(TimedOut):
                    await within(LIMIT, "step", one)
            await ended.wait()
            await asyncio.sleep(0)

    ended = asyncio.Event()
    asyncio.run(run())
    gc.collect()
    assert caplog.records == []


def test_threads_that_stand_still_keep_no_other_step_waiting():
    lets_go = threading.Event()

    async def stands_still():
        await asyncio.to_thread(lets_go.wait, LONG)

    async def run():
        with guarded(LIMIT):
            for _ in range(3):
                # More than the number of threads of a loop.
                tries = [within(LIMIT, "step", stands_still) for _ in range(40)]
                found = await asyncio.gather(*tries, return_exceptions=True)
                assert all(isinstance(one, TimedOut) for one in found)
                assert (
                    await within(LONG, "step", lambda: asyncio.to_thread(lambda: "answered"))
                    == "answered"
                )

    try:
        run_loop(run())
    finally:
        lets_go.set()


def test_a_signal_that_the_environment_gave_back_as_it_never_was_kills_nobody(monkeypatch, capfd):
    monkeypatch.setattr(timeout_guard, "_DEAF_SECONDS", LIMIT)
    told_of = threading.Event()
    monkeypatch.setattr(timeout_guard.CallGuard, "_tell", lambda guard, call: told_of.set())

    async def step():
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        told_of.wait(LONG)
        return "ended"

    assert asyncio.run(asked(step)) == "ended"


@pytest.mark.parametrize("stderr", ["closed", "unread"])
def test_code_in_c_that_hears_nothing_ends_a_command_that_nobody_listens_to(stderr):
    gone = (
        "import os; os.close(2)"
        if stderr == "closed"
        else "import os; r, w = os.pipe(); os.dup2(w, 2); os.close(r)"
    )
    ended = subprocess.run([sys.executable, "-c", f"{gone}\n{DEAF}"], check=False, timeout=LONG)
    assert ended.returncode == 1
