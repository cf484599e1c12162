"""A stop request reaches whatever the run is doing, and only after it was made."""

import asyncio
import os
import signal
import threading
import time

import pytest

from motet.errors import Interrupted
from motet.trainer.stopping import StopRequest, terminated_as_interrupted
from motet.user_code.blocking import TOGETHER_SECONDS
from motet.user_code.timeouts import at_once, within
from tests.fixtures.messages import says


def test_work_that_waits_is_cancelled_and_puts_away_what_it_began():
    stop, closed = StopRequest(), []

    async def work():
        threading.Thread(target=stop.wish).start()
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    with pytest.raises(Interrupted):
        asyncio.run(stop.unless_wished(work()))
    assert closed == [True]


def test_a_wish_made_before_is_heard_at_once():
    stop = StopRequest()
    stop.wish()
    with pytest.raises(Interrupted):
        asyncio.run(stop.unless_wished(asyncio.Event().wait()))
    with pytest.raises(Interrupted):
        stop.check()


def test_without_a_wish_results_and_errors_and_cancellation_pass_through():
    async def fails():
        raise ValueError("own")

    async def cancelled():
        raise asyncio.CancelledError

    stop = StopRequest()
    assert asyncio.run(stop.unless_wished(asyncio.sleep(0, "said"))) == "said"
    with pytest.raises(ValueError, match="own"):
        asyncio.run(stop.unless_wished(fails()))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(stop.unless_wished(cancelled()))
    stop.check()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_wish_and_the_second_is_ctrl_c(number):
    stop, said = StopRequest(), []
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    others = {*threading.enumerate()}
    with stop.on_signals(said.append):
        os.kill(os.getpid(), number)
        assert stop.wished()
        os.kill(os.getpid(), number)  # the same one again, as by `timeout`
        time.sleep(2 * TOGETHER_SECONDS)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    for thread in {*threading.enumerate()} - others:
        thread.join(60)
    (line,) = said
    assert says(line, "stopping … second signal … without a checkpoint")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_environment_that_does_not_await_is_broken_off_by_the_first_signal(number):
    stop, main = StopRequest(), threading.get_ident()

    async def step():
        threading.Timer(0.05, signal.pthread_kill, (main, number)).start()
        time.sleep(60)

    with stop.on_signals(lambda said: None), pytest.raises(Interrupted):
        asyncio.run(stop.unless_wished(within(600, "step", step)))


@pytest.mark.parametrize("seconds", [600, None])
def test_once_the_first_signal_came_no_call_begins_or_goes_on_but_what_closes(seconds):
    stop, done = StopRequest(), []

    async def begins():
        signal.raise_signal(signal.SIGTERM)

    async def game(number):
        try:
            await within(seconds, "start", begins if number == 0 else later(f"started {number}"))
        finally:
            await within(seconds, "close", later(f"closed {number}"), even_given_up=True)

    def later(what):
        async def does():
            done.append(what)

        return does

    async def games():
        await asyncio.gather(*(game(number) for number in range(3)), return_exceptions=True)

    with stop.on_signals(lambda said: None), pytest.raises(Interrupted):
        asyncio.run(stop.unless_wished(games()))
    assert sorted(done) == ["closed 0", "closed 1", "closed 2"]
    assert (
        asyncio.run(within(seconds, "step", later("the next run"))) is None
    )  # in the same process
    assert at_once(seconds, "observe", lambda: "seen") == "seen"


def test_a_run_in_another_thread_is_not_given_up_with_that_of_the_main_thread():
    stop, found = StopRequest(), []

    async def other():
        async def step():
            return at_once(600, "observe", lambda: "seen")

        found.append(await within(600, "step", step))

    async def work():
        signal.raise_signal(signal.SIGTERM)
        thread = threading.Thread(target=lambda: asyncio.run(other()))
        thread.start()
        thread.join()

    with stop.on_signals(lambda said: None), pytest.raises(Interrupted):
        asyncio.run(stop.unless_wished(work()))
    assert found == ["seen"]


def test_what_is_not_to_be_given_up_is_not_broken_off_by_a_signal():
    stop = StopRequest()

    async def step():
        signal.raise_signal(signal.SIGTERM)
        return "ended"

    with stop.on_signals(lambda said: None):
        assert asyncio.run(within(600, "step", step)) == "ended"


def test_sigterm_is_ctrl_c_where_nothing_is_trained_yet():
    with terminated_as_interrupted(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
