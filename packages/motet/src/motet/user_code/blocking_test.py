"""A blocking function gives the same result, errors and interrupts where a loop already runs."""

import asyncio
import contextvars
import os
import signal
import threading
import time
import traceback

import pytest

from motet.errors import Interrupted
from motet.trainer.stopping import StopRequest
from motet.user_code.blocking import TOGETHER_SECONDS, blocking, on_interrupt
from motet.user_code.timeouts import run_loop
from tests.fixtures.messages import says

NAME = contextvars.ContextVar("NAME", default="none")


@blocking
def double(number, *, plus=0):
    """Double."""

    async def later():
        await asyncio.sleep(0)
        return 2 * number + plus, threading.current_thread() is threading.main_thread(), NAME.get()

    return run_loop(later())


def in_a_loop(function):
    async def main():
        return function()

    return asyncio.run(main())


def test_without_a_loop_the_function_runs_in_the_callers_thread():
    assert double(3, plus=1) == (7, True, "none")
    assert double.__doc__ == "Double."


def test_in_a_loop_it_runs_in_another_thread_with_the_callers_context():
    def call():
        NAME.set("caller")
        return double(3, plus=1)

    assert in_a_loop(call) == (7, False, "caller")


def test_an_error_comes_with_the_traceback_of_the_thread():
    @blocking
    def outer():
        deep()

    def deep():
        raise ValueError("own")

    with pytest.raises(ValueError, match="own") as caught:
        in_a_loop(outer)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames.index("main") < frames.index("outer") < frames.index("deep")


def test_a_blocking_function_may_call_another_one_in_its_thread():
    @blocking
    def outer():
        return threading.get_ident(), inner()

    @blocking
    def inner():
        return threading.get_ident()

    one, other = in_a_loop(outer)
    assert one == other != threading.get_ident()


def interrupted(work, times=1, twice=False):
    """Call `work` in a loop and send Ctrl-C `times` times, with pauses. Return what it raises.

    `twice`: each comes twice, as by `timeout`.
    """
    started, over = threading.Event(), threading.Event()

    def send():
        started.wait(30)
        for _ in range(times):
            if over.wait(2 * TOGETHER_SECONDS):
                return
            os.kill(os.getpid(), signal.SIGINT)
            if twice and not over.wait(TOGETHER_SECONDS / 10):
                os.kill(os.getpid(), signal.SIGINT)

    @blocking
    def begun():
        started.set()
        return work()

    def call():
        with pytest.raises(BaseException) as caught:
            begun()
        return caught.value

    # A process that a shell starts in the background ignores SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    sender = threading.Thread(target=send)
    sender.start()
    begin = time.monotonic()
    try:
        # asyncio.run would cancel its task at the first Ctrl-C; Jupyter's loop does not.
        loop = asyncio.new_event_loop()

        async def main():
            return call()

        return loop.run_until_complete(main()), time.monotonic() - begin
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGINT, before)
        loop.close()


def busy():
    end = time.monotonic() + 30
    while time.monotonic() < end:
        time.sleep(0.01)


def test_ctrl_c_is_raised_inside_the_work():
    closed = []

    def work():
        try:
            busy()
        finally:
            closed.append(True)

    error, seconds = interrupted(work)
    assert type(error) is KeyboardInterrupt
    assert "busy" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert closed == [True]
    assert seconds < 20


def test_ctrl_c_wakes_a_loop_that_waits_for_others():
    error, seconds = interrupted(lambda: run_loop(asyncio.sleep(30)))
    assert type(error) is KeyboardInterrupt
    assert seconds < 20


def test_the_first_ctrl_c_is_the_works_own_and_the_second_is_raised_inside_it():
    heard = []

    def work():
        with on_interrupt(lambda: heard.append(threading.current_thread())):
            busy()

    error, seconds = interrupted(work, times=2, twice=True)
    assert type(error) is KeyboardInterrupt
    assert heard == [threading.main_thread()]
    assert seconds < 20


def test_the_third_ctrl_c_gives_up_waiting():
    released = threading.Event()

    def work():
        with on_interrupt(lambda: None):
            released.wait()  # no Python instruction, so the second one is not noticed

    error, seconds = interrupted(work, times=3)
    assert type(error) is KeyboardInterrupt
    assert seconds < 20
    released.set()


def test_a_stop_request_hears_the_ctrl_c_of_the_caller():
    stop, said = StopRequest(), []

    def work():
        with stop.on_signals(said.append):
            run_loop(stop.unless_wished(asyncio.sleep(30)))

    error, seconds = interrupted(work)
    assert type(error) is Interrupted
    (line,) = said
    assert says(line, "stopping … second interrupt … without a checkpoint")
    assert seconds < 20
