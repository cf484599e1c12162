import asyncio

import pytest

from motet.core import SampleRequest
from motet.errors import EnginesLost
from motet.settings import Decode
from motet_serve.sharing import SharedSampler
from tests.fixtures.asked_teams import Saying


def request(text, agent="a"):
    return SampleRequest(("chat", (), 0, agent), "p", text, Decode(), (1,))


def shared(work, max_batch=64):
    """Run `work(saying, sampler)` and return the numbers of requests of all batches."""
    saying = Saying()
    sampler = SharedSampler(saying, max_batch)
    try:
        asyncio.run(asyncio.wait_for(work(saying, sampler), 60))
    finally:
        saying.release.set()
        sampler.close()
    return saying.batches


async def started(saying):
    assert await asyncio.to_thread(saying.began.wait, 30)


def test_what_came_during_a_batch_forms_the_next_one():
    async def work(saying, sampler):
        saying.hold()
        first = asyncio.create_task(sampler.sample([request("1")]))
        await started(saying)
        rest = [asyncio.create_task(sampler.sample([request(f"{k}"), request("x", "b")])) for k in
                range(5)]  # fmt: skip
        await asyncio.sleep(0)
        saying.release.set()
        answers = await asyncio.gather(first, *rest)
        alone = await sampler.sample([request("3")])
        assert answers[4][0] == alone[0]
        assert len({one[1].completions[0].text for one in answers[1:]}) == 1

    assert shared(work) == [1, 10, 1]


def test_a_batch_has_at_most_as_many_requests_as_allowed_or_one_call():
    async def work(saying, sampler):
        await asyncio.gather(*(sampler.sample([request(f"{k}")]) for k in range(5)))

    assert shared(work, max_batch=2) == [2, 2, 1]


def test_a_call_that_was_cancelled_in_the_queue_is_not_sampled():
    async def work(saying, sampler):
        saying.hold()
        first = asyncio.create_task(sampler.sample([request("1")]))
        await started(saying)
        second = asyncio.create_task(sampler.sample([request("2")]))
        third = asyncio.create_task(sampler.sample([request("3")]))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        saying.release.set()
        await asyncio.gather(first, third)
        assert [one.prompt for one in saying.asked] == ["1", "3"]

    assert shared(work) == [1, 1]


def test_an_error_is_raised_only_in_the_call_that_fails_alone_and_the_next_batch_is_sampled():
    async def work(saying, sampler):
        calls = [sampler.sample([request(text)]) for text in ("1", "broken", "3")]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in found] == [list, TypeError, list]
        with pytest.raises(TypeError, match="a mistake"):
            await sampler.sample([request("broken")])
        (answer,) = await sampler.sample([request("2")])
        assert answer.completions[0].stop == "stop"

    assert shared(work) == [3, 1, 1, 1, 1, 1]


def test_lost_engines_are_not_asked_again():
    async def work(saying, sampler):
        saying.error = EnginesLost("all engines are lost")
        calls = [sampler.sample([request(text)]) for text in ("1", "broken")]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(one) for one in found] == [EnginesLost, EnginesLost]

    assert shared(work) == [2]


def test_close_waits_for_the_batch_that_is_being_sampled():
    saying = Saying()
    sampler = SharedSampler(saying, 64)

    async def leave_early():
        saying.hold()
        asked = asyncio.create_task(sampler.sample([request("1")]))
        await started(saying)
        asked.cancel()

    asyncio.run(leave_early())
    saying.release.set()
    sampler.close()
    assert saying.batches == [1]
    assert not sampler._thread.is_alive()
