"""Requests reach the engines and answers come back in order. The engines are plain objects."""

import asyncio

from motet.cluster.vllm_sampler import deal
from motet.core import Fault, Sampled, SampleRequest
from motet.models.sampler_rows import CompletionRow
from motet.settings import Decode
from tests.fixtures.fake_engines import REQUESTS, logprob, sampled, staged


def test_answers_have_the_order_of_the_requests_and_the_weights_of_their_policies() -> None:
    answers = sampled(staged())
    for asked, answer, weight in zip(REQUESTS, answers, (1.0, 2.0, None, 2.0), strict=True):
        if weight is None:
            assert isinstance(answer, Fault)
            assert answer.cause == "long_prompt"
            continue
        assert isinstance(answer, Sampled)
        assert len(answer.completions) == len(asked.keys)
        for key, completion in zip(asked.keys, answer.completions, strict=True):
            assert completion.policy == asked.policy
            assert completion.tokens[0] == 2 + key % 90
            assert completion.logprobs[0] == logprob(weight, completion.tokens[0])
            assert (completion.stop, completion.version) == ("length", 0)


def test_the_number_of_engines_changes_no_answer() -> None:
    assert sampled(staged(replicas=3)) == sampled(staged())


def test_every_engine_gets_its_share_of_the_rows() -> None:
    found = staged(replicas=3)
    sampled(found)
    # 3 + 1 + 2 rows; the long prompt is not asked for.
    assert [len(engine.asked[-1]) for engine in found.engines] == [2, 2, 2]


def test_rows_are_dealt_in_even_blocks() -> None:
    rows = [CompletionRow(number, 0, (1,), 1) for number in range(7)]
    assert [[row.request for row in block] for block in deal(rows, 3)] == [
        [0, 1],
        [2, 3],
        [4, 5, 6],
    ]
    assert [len(block) for block in deal(rows[:1], 3)] == [0, 0, 1]


def test_each_request_is_handed_out_once() -> None:
    handed: list[int] = []
    found = staged(replicas=2)
    asyncio.run(found.sampler.sample(REQUESTS, lambda place, answer: handed.append(place)))
    assert sorted(handed) == [0, 1, 2, 3]


def test_greedy_completions_note_the_temperature_of_their_log_probabilities() -> None:
    decode = Decode(max_new_tokens=2, temperature=0.5)
    asked = [
        SampleRequest((0,), "p", "a", decode, (1,), greedy=True),
        SampleRequest((1,), "p", "a", decode, (1,)),
    ]
    answers = asyncio.run(staged().sampler.sample(asked))
    temperatures = [one.completions[0].temperature for one in answers if isinstance(one, Sampled)]
    assert temperatures == [1.0, 0.5]
