import asyncio

import pytest

from motet.core import Completion, Sampled, SampleRequest
from motet.rollout.many_samplers import ManySamplers
from motet.settings import Decode


class Named:
    """A sampler that writes its own name; it passes its answers on in the reverse order."""

    def __init__(self, name, wait=lambda: asyncio.sleep(0)):
        self.name, self.wait, self.asked, self.ended = name, wait, [], False

    async def sample(self, requests, on_answer=None):
        self.asked.append([request.policy for request in requests])
        try:
            await self.wait()
        finally:
            self.ended = True
        answers = [
            Sampled((), (Completion(request.policy, f"{self.name} {request.id[0]}", "stop"),))
            for request in requests
        ]
        for place in reversed(range(len(answers)) if on_answer else ()):
            on_answer(place, answers[place])
        return answers


def requests(*policies):
    return [SampleRequest((n,), policy, "", Decode(), (n,)) for n, policy in enumerate(policies)]


def test_each_request_goes_to_the_sampler_of_its_policy_and_answers_have_their_order():
    own, far = Named("own"), Named("far")
    told = []
    answers = asyncio.run(
        ManySamplers(own, {"q": far, "r": far}).sample(
            requests("p", "q", "p", "r"), lambda place, answer: told.append((place, answer))
        )
    )
    assert [one.completions[0].text for one in answers] == ["own 0", "far 1", "own 2", "far 3"]
    assert sorted(told, key=lambda one: one[0]) == list(enumerate(answers))
    assert (own.asked, far.asked) == ([["p", "p"]], [["q", "r"]])


def test_a_sampler_without_a_request_is_not_called():
    own, far = Named("own"), Named("far")
    assert asyncio.run(ManySamplers(own, {"q": far}).sample([])) == []
    asyncio.run(ManySamplers(own, {"q": far}).sample(requests("p")))
    assert (len(own.asked), far.asked) == (1, [])


def test_they_work_at_the_same_time_and_the_usual_one_begins_last():
    async def both():
        begun = asyncio.Event()

        async def until_the_other():
            await asyncio.wait_for(begun.wait(), 10)

        async def tell():
            begun.set()

        far, own = Named("far", until_the_other), Named("own", tell)
        return await ManySamplers(own, {"q": far}).sample(requests("p", "q"))

    assert len(asyncio.run(both())) == 2


def test_when_one_fails_the_others_have_ended_before_it_is_told():
    async def fails():
        raise OSError("no")

    slow = Named("slow", lambda: asyncio.sleep(60))
    with pytest.raises(OSError, match="no"):
        asyncio.run(ManySamplers(Named("own", fails), {"q": slow}).sample(requests("p", "q")))
    assert slow.ended
