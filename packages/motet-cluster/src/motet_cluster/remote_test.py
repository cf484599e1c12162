"""Routing, order, versions and times of remote models, with homes that are not processes."""

import asyncio

import pytest

from motet.core import Completion, Sampled, SampleRequest, ScoreRequest
from motet.errors import ProcessLost
from motet.settings import Decode
from motet_cluster.models import ClusterModels
from motet_cluster.remote import OwnSampler, RemoteLearner, RemoteScorer, together


class FakeHome:
    """Answers each request with its place in the call, after `turns` turns of the event loop."""

    def __init__(self, turns=0, seconds=0.0):
        self.turns, self.seconds = turns, seconds
        self.asked, self.told = [], []

    async def call(self, verb, *given, seconds=None):
        self.asked.append((verb, *given))
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if verb == "sample":
            self.seconds += 1.0
            answers = [Sampled((request.keys[0],), ()) for request in given[0]]
            return answers, {"prefill": 0.0, "decode": self.seconds}
        if verb == "step":
            return {name: {"loss": 1.0} for name in given[1]}
        return [(float(request.tokens[0]),) for request in given[0]]

    def call_now(self, verb, *given):
        self.asked.append((verb, *given))
        if verb != "state":
            return None
        facts = {name: {"step": 7, "pace": 0.5} for name in "pq"}
        return {f"weights.{name}.0": name for name in "pq"}, facts

    def notify(self, verb):
        self.told.append(verb)


def request(policy, key):
    return SampleRequest((key,), policy, "x", Decode(), (key,))


def test_requests_go_to_the_home_of_their_policy_and_answers_keep_their_order():
    slow, fast = FakeHome(turns=5), FakeHome()
    sampler, early = OwnSampler({"p": slow, "q": fast}, ["p", "q"]), []
    asked = [request("p", 1), request("q", 2), request("p", 3)]
    answers = asyncio.run(sampler.sample(asked, lambda place, answer: early.append(place)))
    assert [answer.prompt_tokens for answer in answers] == [(1,), (2,), (3,)]
    assert early == [1, 0, 2]
    assert slow.asked == [("sample", [asked[0], asked[2]], {"p": 0, "q": 0})]


def test_publishing_raises_the_version_that_the_next_call_passes_on():
    home = FakeHome()
    sampler = OwnSampler({"p": home, "q": home}, ["p", "q"])
    assert asyncio.run(sampler.publish(["q"])) == 1
    assert asyncio.run(sampler.publish(["p"])) == 2
    asyncio.run(sampler.sample([request("p", 1)]))
    assert home.asked[0][2] == {"p": 2, "q": 1}


def test_the_slowest_home_counts_as_the_time_of_a_call():
    one, other = FakeHome(seconds=4.0), FakeHome(seconds=0.0)
    sampler = OwnSampler({"p": one, "q": other}, ["p", "q"])
    asyncio.run(sampler.sample([request("p", 1), request("q", 2)]))
    assert sampler.timings()["decode"] == 5.0  # all that the first has measured so far
    asyncio.run(sampler.sample([request("p", 1), request("q", 2)]))
    assert sampler.timings()["decode"] == 6.0


def test_a_cancelled_call_stops_its_homes_and_no_other():
    busy, idle = FakeHome(turns=10**6), FakeHome()
    sampler = OwnSampler({"p": busy, "q": idle}, ["p", "q"])

    async def cancelled():
        task = asyncio.ensure_future(sampler.sample([request("p", 1)]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    assert (busy.told, idle.told) == (["stop"], [])


def test_scores_come_from_the_home_of_each_policy_in_the_order_of_the_requests():
    homes = {"p": FakeHome(turns=3), "q": FakeHome()}
    asked = [ScoreRequest(name, (1,), (place,), 1.0) for place, name in enumerate("pqqp")]
    assert asyncio.run(RemoteScorer(homes).logprobs(asked)) == [(0.0,), (1.0,), (2.0,), (3.0,)]


def test_a_policy_behind_an_endpoint_is_sampled_beside_the_homes():
    class Partner:
        async def sample(self, requests, on_answer=None):
            return [Sampled((), (Completion(one.policy, "far", "stop"),)) for one in requests]

    home = FakeHome()
    own = OwnSampler({"p": home}, ["p"])
    models = ClusterModels({"p": home}, {}, own, own, endpoints={"q": Partner()})
    asked = [SampleRequest((n,), name, "", Decode(), (n,)) for n, name in enumerate("pqp")]
    answers = asyncio.run(models.sampler.sample(asked))
    assert [one.policy for one in home.asked[0][1]] == ["p", "p"]
    assert answers[1].completions[0].text == "far"
    assert models.publisher is own
    assert models.timings() == own.timings()


def test_facts_follow_the_steps_without_asking_a_home():
    home = FakeHome()
    homes = {"p": home, "q": home}
    learner = RemoteLearner(home, ("p", "q"), {})
    sampler = OwnSampler(homes, ["p", "q"])
    models = ClusterModels(homes, {"p": learner, "q": learner}, sampler, sampler)
    asyncio.run(learner.step(["q"]))
    assert home.asked == [("step", "p", ["q"])]
    assert models.facts() == {
        "versions": {"p": 0, "q": 0},
        "optimizers": {"p": {"step": 0}, "q": {"step": 1}},
    }
    models.load({"weights.p.0": 1}, {"versions": {"p": 4}, "optimizers": {
        "p": {"step": 2}, "q": {"step": 3}}})  # fmt: skip
    of_homes = {"step": 7, "pace": 0.5}  # what only they know belongs to a checkpoint
    assert models.state() == (
        {"weights.p.0": "p", "weights.q.0": "q"},
        {"versions": {"p": 4, "q": 0}, "optimizers": {"p": of_homes, "q": of_homes}},
    )
    assert models.facts()["optimizers"] == {"p": {"step": 2}, "q": {"step": 3}}


def test_the_first_failure_in_order_is_raised_after_all_have_ended():
    ended = []

    async def fail(turns, error):
        for _ in range(turns):
            await asyncio.sleep(0)
        ended.append(turns)
        if error is not None:
            raise error

    first, second = ProcessLost("first"), ProcessLost("second")
    with pytest.raises(ProcessLost, match="first"):
        asyncio.run(together(fail(3, first), fail(0, second), fail(9, None)))
    assert ended == [0, 3, 9]
