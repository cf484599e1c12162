import asyncio
import functools
import threading
import time
from contextvars import ContextVar

import pytest

from motet.errors import EnvironmentFault
from motet.user_code.threads import call, is_async, threads
from motet.user_code.timeout_guard import TimedOut
from motet.user_code.timeouts import guarded, within
from tests.fixtures.messages import facts

MAIN = threading.main_thread()


def together(count, most, seconds=None):
    """Run `count` functions that each wait until `most` of them have arrived."""
    arrived, seen, lock = threading.Barrier(most), [], threading.Lock()

    def waits():
        arrived.wait(timeout=30)
        with lock:
            seen.append(threading.current_thread())
        return len(seen)

    async def main():
        with guarded(seconds, most):
            await asyncio.gather(
                *(within(seconds, "step", lambda: call(waits)) for _ in range(count))
            )

    asyncio.run(main())
    return seen


def test_plain_functions_wait_at_the_same_time_each_in_a_thread_of_its_own():
    seen = together(count=6, most=3)
    assert len(set(seen)) == 6
    assert MAIN not in seen


@pytest.mark.parametrize("count", [1, 4])
def test_no_more_run_at_the_same_time_than_threads_are_given(count):
    running = peak = 0
    lock = threading.Lock()

    def counted():
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    async def main():
        with threads(count):
            await asyncio.gather(*(call(counted) for _ in range(12)))

    asyncio.run(main())
    assert peak <= count
    assert peak > 1 or count == 1


async def coroutine():
    return threading.current_thread()


class Asynchronous:
    async def __call__(self):
        return threading.current_thread()


@pytest.mark.parametrize(
    "function",
    [coroutine, functools.partial(coroutine), Asynchronous(), functools.partial(Asynchronous())],
)
def test_async_functions_run_in_the_event_loop(function):
    async def main():
        with threads(8):
            return await call(function)

    assert is_async(function)
    assert asyncio.run(main()) is MAIN


def test_a_plain_function_may_return_a_coroutine_and_runs_here_without_threads():
    async def main(most):
        with threads(most):
            return await call(lambda: coroutine()), await call(threading.current_thread)

    assert not is_async(lambda: coroutine())
    assert asyncio.run(main(1)) == (MAIN, MAIN)
    awaited, plain = asyncio.run(main(2))
    assert (awaited is MAIN, plain is MAIN) == (True, False)


def test_arguments_context_variables_and_errors_pass():
    name = ContextVar("name")

    def fails(text, *, mark):
        raise KeyError(f"{name.get()} {text}{mark}")

    async def main():
        name.set("here")
        with threads(2):
            await call(fails, "a", mark="!")

    with pytest.raises(KeyError, match="here a!"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "said"),
    [(SystemExit(3), "called sys.exit"), (StopIteration(), "raised StopIteration")],
)
def test_what_must_not_pass_through_an_event_loop_is_a_fault(error, said):
    def ends():
        raise error

    async def main():
        with guarded(10.0, 2):
            await within(10.0, "step", lambda: call(ends))

    with pytest.raises(EnvironmentFault, match=f"step {said}; expected a return value"):
        asyncio.run(main())


def test_a_thread_that_computes_for_ever_is_interrupted_when_its_time_is_over():
    worker = []

    def computes():
        worker.append(threading.current_thread())
        while True:
            pass

    async def main():
        with guarded(0.2, 2):
            await within(0.2, "step", lambda: call(computes))

    with pytest.raises(TimedOut, match=facts("step … within 0.2 s")):
        asyncio.run(main())
    worker[0].join(30)
    assert not worker[0].is_alive()


def test_nobody_waits_for_a_thread_that_cannot_be_interrupted():
    go_on = threading.Event()

    async def main():
        with guarded(0.1, 2):
            stuck = [within(0.1, "step", lambda: call(go_on.wait)) for _ in range(4)]
            late = await asyncio.gather(*stuck, return_exceptions=True)
            return late, await within(10.0, "step", lambda: call(int))

    late, number = asyncio.run(main())
    assert [type(error) for error in late] == [TimedOut] * 4
    assert number == 0
    go_on.set()


def test_time_spent_waiting_for_a_free_thread_does_not_count():
    def slow():
        time.sleep(0.1)
        return True

    async def main():
        with guarded(0.4, 2):
            return await asyncio.gather(
                *(within(0.4, "step", lambda: call(slow)) for _ in range(20))
            )

    assert asyncio.run(main()) == [True] * 20
