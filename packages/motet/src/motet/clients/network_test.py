import asyncio
import threading
import time

import pytest

from motet.clients.network import beside, together


async def name_of_thread():
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_work_runs_in_one_thread_of_its_own_for_all_event_loops():
    assert [asyncio.run(beside(name_of_thread())) for _ in range(2)] == ["network", "network"]


def test_it_goes_on_while_this_thread_computes():
    done = threading.Event()

    async def answer():
        await asyncio.sleep(0)
        done.set()

    async def compute():
        waiting = asyncio.ensure_future(beside(answer()))
        await asyncio.sleep(0)
        assert done.wait(10), "this thread does not return to its event loop meanwhile"
        await waiting

    asyncio.run(compute())


def test_an_exception_comes_back():
    async def fails():
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        asyncio.run(beside(fails()))


def test_whoever_is_cancelled_cancels_the_work():
    begun, ended = threading.Event(), threading.Event()

    async def waits():
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    async def cancelled():
        waiting = asyncio.ensure_future(beside(waits()))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())
    assert ended.wait(10)


def test_together_returns_all_in_order_and_ends_all_at_the_first_exception():
    ended = []

    async def one(number, wait=0.0, fails=False):
        try:
            await asyncio.sleep(wait)
            if fails:
                raise OSError(str(number))
        finally:
            ended.append(number)
        return number

    begun = time.monotonic()
    assert asyncio.run(together(one(1, 0.02), one(2))) == [1, 2]
    assert ended == [2, 1]
    with pytest.raises(OSError, match="3"):
        asyncio.run(together(one(3, fails=True), one(4, 60.0)))
    assert sorted(ended) == [1, 2, 3, 4]
    assert time.monotonic() - begun < 30
