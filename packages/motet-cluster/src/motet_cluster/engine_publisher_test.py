"""Publishing and its verification, with engines and homes that are plain objects."""

import asyncio
from typing import Any

import pytest

from motet.core import Sampled
from motet.errors import MotetError
from motet_cluster.remote import GatedHome
from tests.fixtures.fake_engines import GPUS, REQUESTS, FakeEngine, logprob, sampled, staged
from tests.fixtures.messages import facts


def test_published_weights_are_sampled_with_from_then_on() -> None:
    found = staged()
    sampled(found)
    found.home.weights["q"] = 5.0
    assert asyncio.run(found.publisher.publish(["q"])) == 1
    answer = sampled(found)[1]
    assert isinstance(answer, Sampled)
    [completion] = answer.completions
    assert completion.version == 1
    assert completion.logprobs[0] == logprob(5.0, completion.tokens[0])
    assert found.publisher.versions == {"p": 0, "q": 1}
    assert found.publisher.metrics() == {
        "publish/probe_max": 0.0,
        "publish/probe_mean": 0.0,
        "publish/engines_replaced": 0.0,
    }


def test_weights_of_a_checkpoint_reach_the_engines_before_the_next_call() -> None:
    found = staged()
    sampled(found)
    found.home.weights["p"] = 7.0
    found.publisher.loaded({"p": 4, "q": 3})
    answer = sampled(found)[0]
    assert isinstance(answer, Sampled)
    assert answer.completions[0].version == 4
    assert answer.completions[0].logprobs[0] == logprob(7.0, answer.completions[0].tokens[0])


def test_a_home_learns_after_its_engines_have_the_weights_of_the_checkpoint() -> None:
    found = staged()
    found.publisher.loaded({"p": 4, "q": 3})
    home = GatedHome(found.home, found.publisher.catch_up)

    async def beside() -> Any:
        """Play while the home learns, as with max_lag 1."""
        _, answers = await asyncio.gather(
            home.call("accumulate", "p"), found.sampler.sample(REQUESTS)
        )
        return answers

    answer = asyncio.run(beside())[0]
    assert answer.completions[0].logprobs[0] == logprob(1.0, answer.completions[0].tokens[0])
    assert found.home.weights["p"] == 1.3
    assert found.home.asked.index("undisturb") < found.home.asked.index("accumulate")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_rehearsal_finds_an_engine_that_keeps_its_weights(dtype: str) -> None:
    found = staged(FakeEngine(stale=True), dtype=dtype)
    with pytest.raises(
        MotetError, match=facts("policy p … weights … rehearsal … expected less than")
    ):
        sampled(found)
    # The homes train on with their own weights.
    assert found.home.weights == {"p": 1.0, "q": 2.0}


def test_the_rehearsal_leaves_the_published_weights() -> None:
    found = staged()
    sampled(found)
    assert found.home.weights == found.engines[0].weights == {"p": 1.0, "q": 2.0}


def test_the_probe_finds_weights_that_were_not_transferred() -> None:
    found = staged()
    sampled(found)
    found.engines[0].stale = True
    found.home.weights["p"] += 0.002
    with pytest.raises(MotetError, match=facts("version 1 of policy p … other weights … own")):
        asyncio.run(found.publisher.publish(["p"]))


def test_a_killed_engine_is_replaced_and_the_answers_are_the_same() -> None:
    # Calls of generate: 2 policies x (2 probes of the rehearsal, 1 of the weights), the rows.
    found = staged(FakeEngine(dies_at=7))
    assert sampled(found) == sampled(staged())
    assert len(found.engines) == 2
    assert found.publisher.metrics()["publish/engines_replaced"] == 1.0


def test_a_new_engine_with_other_weights_is_refused() -> None:
    wrong = FakeEngine(stale=True, weights={"p": 1.1, "q": 2.0})
    with pytest.raises(MotetError, match=facts("policy p … new engine 0 … other weights")):
        sampled(staged(FakeEngine(dies_at=7), wrong))


def test_a_new_engine_is_compared_with_the_publication_not_with_a_home_that_learns() -> None:
    found = staged()
    sampled(found)
    found.engines[0].dies_at = len(found.engines[0].asked) + 1
    found.home.weights["p"] += 0.3  # an optimizer step, not yet published
    assert sampled(found) == sampled(staged())


def test_an_engine_that_dies_while_it_is_given_new_weights_is_replaced() -> None:
    found = staged()
    sampled(found)
    found.engines[0].dead = True
    found.home.weights["q"] = 5.0
    asyncio.run(found.publisher.publish(["q"]))
    assert found.engines[1].weights == {"p": 1.0, "q": 5.0}


def test_the_run_stops_when_engines_die_again_and_again() -> None:
    with pytest.raises(MotetError, match=r"cluster\.restarts \(1\)"):
        sampled(staged(FakeEngine(dies_at=7), FakeEngine(dies_at=1)))


def test_by_nccl_the_home_sends_to_all_engines_itself() -> None:
    found = staged(replicas=2, nccl_gpus=GPUS)
    assert sampled(found) == sampled(staged())
    found.home.weights["q"] = 5.0
    before = found.home.broadcasts
    asyncio.run(found.publisher.publish(["q"]))
    assert found.home.broadcasts == before + 1
    assert [engine.weights["q"] for engine in found.engines] == [5.0, 5.0]


def test_an_engine_that_dies_in_a_broadcast_is_replaced_and_all_get_the_weights() -> None:
    found = staged(replicas=2, nccl_gpus=GPUS)
    sampled(found)
    found.engines[1].dead = True
    found.home.weights["q"] = 5.0
    asyncio.run(found.publisher.publish(["q"]))
    assert len(found.engines) == 3
    assert [found.engines[place].weights["q"] for place in (0, 2)] == [5.0, 5.0]


def test_a_broadcast_that_fails_with_all_engines_alive_stops_the_run() -> None:
    with pytest.raises(RuntimeError, match="NCCL failed"):
        sampled(staged(nccl_gpus=GPUS + 1))


def test_by_nccl_a_new_engine_with_weights_that_were_not_published_is_refused() -> None:
    found = staged(nccl_gpus=GPUS)
    sampled(found)
    found.engines[0].dies_at = len(found.engines[0].asked) + 1
    found.home.weights["p"] += 0.3  # the home has learned since
    with pytest.raises(MotetError, match=facts("policy p … new engine 0 … other weights")):
        sampled(found)
