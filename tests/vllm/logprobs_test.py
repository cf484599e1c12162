"""vLLM's log-probabilities beside Motet's, for the same tokens, before and after updates."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from motet.core import Sampled, SampleRequest, ScoreRequest
from motet.core.seeding import derive
from motet.errors import MotetError
from motet.models.sampler import LocalSampler
from motet.settings import Decode
from motet_cluster.verification import Difference, difference
from motet_cluster.vllm_engine import CPU_PREFILL_TOKENS, EngineAnswer
from tests.fixtures.messages import facts
from tests.vllm.conftest import Kind
from tests.vllm.engines import RealEngines

pytestmark = pytest.mark.slow
PROMPTS = ["# add 7\n", "# add 12\ndef f", "return x", "# add 100\ndef f(x):\n    return"]
LARGEST = {"float32": 1e-4, "bfloat16": 1.0}
MEAN = {"float32": 1e-5, "bfloat16": 0.03}
"""Bounds of the differences of sampled tokens, in nats."""


def sampled(found: RealEngines, temperature: float, **more: Any) -> list[Sampled]:
    decode_ = Decode(max_new_tokens=40, temperature=temperature, **more)
    answers = asyncio.run(
        found.sampler.sample(
            [
                SampleRequest((name, place), name, prompt, decode_, tuple(range(8)))
                for name in found.home.policies
                for place, prompt in enumerate(PROMPTS)
            ]
        )
    )
    assert all(isinstance(answer, Sampled) for answer in answers), answers
    return [answer for answer in answers if isinstance(answer, Sampled)]


def against_motet(found: RealEngines, answers: list[Sampled]) -> Difference:
    """Score sampled completions with the policies of this process."""
    said: list[EngineAnswer] = []
    scored: list[tuple[float, ...]] = []
    for name in found.home.policies:
        rows = [
            (answer, one) for answer in answers for one in answer.completions if one.policy == name
        ]
        said += [EngineAnswer(one.tokens, one.logprobs, False) for _, one in rows]
        scored += found.home.present_logprobs(
            [
                ScoreRequest(name, answer.prompt_tokens, one.tokens, one.temperature)
                for answer, one in rows
            ]
        )
    return difference(said, scored)


def move(found: RealEngines, seed: int) -> None:
    """Change the trained weights as a large update would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for policy in found.home.policies.values():
            for weight in policy.parameters():
                weight.add_(0.02 * torch.randn(weight.shape, generator=generator))
    found.backbone.sync_from_master()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["full", "lora"])
def test_the_same_tokens_have_the_same_log_probabilities(
    engines_of: Callable[[Kind, str], RealEngines], kind: Kind, dtype: str
) -> None:
    found = engines_of(kind, dtype)
    table: dict[str, Difference] = {}
    for update in range(3):
        if update:
            move(found, update)
            answers = sampled(found, 1.0)
            table[f"update {update}, not published"] = against_motet(found, answers)
            asyncio.run(found.publisher.publish(list(found.home.policies)))
        for temperature in (1.0, 0.7):
            answers = sampled(found, temperature)
            table[f"update {update}, T {temperature}"] = against_motet(found, answers)
    for row, measured in table.items():
        print(f"{kind} {dtype}, {row}: max {measured.largest:.2e} mean {measured.mean:.2e}")
        if "not" in row:
            assert measured.mean > 2 * MEAN[dtype], row
        else:
            assert measured.largest < LARGEST[dtype], row
            assert measured.mean < MEAN[dtype], row


def test_the_same_seeds_give_the_same_answers_to_the_bit(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    found = engines_of("full", "float32")
    assert sampled(found, 1.0) == sampled(found, 1.0)


def test_draws_have_the_frequencies_of_their_probabilities(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    found, rows = engines_of("full", "float32"), 1500
    keys = tuple(derive("draws", row) for row in range(rows))
    asked = SampleRequest((), "main", PROMPTS[0], Decode(max_new_tokens=1), keys)
    [answer] = asyncio.run(found.sampler.sample([asked]))
    assert isinstance(answer, Sampled)
    counts = Counter(one.tokens for one in answer.completions)
    logprobs = {one.tokens: one.logprobs[0] for one in answer.completions}
    commonest = counts.most_common(6)
    expected = {
        tokens: rows * float(torch.tensor(logprobs[tokens]).exp()) for tokens, _ in commonest
    }
    chi = sum((count - expected[tokens]) ** 2 / expected[tokens] for tokens, count in commonest)
    # 99.9 % of chi-square with 6 degrees of freedom
    assert chi < 22.5, (commonest, expected)


def test_greedy_answers_stop_strings_and_limits_are_those_of_the_local_sampler(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    found = engines_of("full", "float32")
    local = LocalSampler(found.home.policies)
    for decode_ in (
        Decode(max_new_tokens=30),
        Decode(max_new_tokens=30, stop=("e", "zz"), temperature=0.5),
        Decode(max_new_tokens=1),
    ):
        asked = [
            SampleRequest((place,), "main", prompt, decode_, (3,), greedy=True)
            for place, prompt in enumerate([*PROMPTS, "long " * 200])
        ]
        ours = asyncio.run(local.sample(asked))
        theirs = asyncio.run(found.sampler.sample(asked))
        for one, other in zip(ours, theirs, strict=True):
            if not isinstance(one, Sampled) or not isinstance(other, Sampled):
                assert one == other
                continue
            (ended,), (told,) = one.completions, other.completions
            assert (told.tokens, told.text, told.stop) == (ended.tokens, ended.text, ended.stop)


def test_a_completion_ends_at_the_tokens_that_the_home_names(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    found = engines_of("full", "float32")
    whole = [one for answer in sampled(found, 1.0) for one in answer.completions]
    [(common, _)] = Counter(token for one in whole for token in one.tokens).most_common(1)
    before = found.publisher.ends["home"]
    found.publisher.ends["home"] = (*before, common)
    try:
        ended = [one for answer in sampled(found, 1.0) for one in answer.completions]
    finally:
        found.publisher.ends["home"] = before
    stops: Counter[str] = Counter()
    for long, short in zip(whole, ended, strict=True):
        expected = long.tokens
        if common in expected:
            expected = expected[: expected.index(common) + 1]
        assert short.tokens == expected
        assert short.stop == ("stop" if common in expected else long.stop)
        stops[short.stop] += 1
    assert stops["stop"]


def test_a_tied_head_that_stays_old_is_found_by_the_rehearsal(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    for dtype in ("float32", "bfloat16"):
        found = engines_of("full", dtype)
        sampled(found, 1.0)
        [engine] = found.pool.engines
        asyncio.run(engine.call("keep_old_head", True))
        try:
            with pytest.raises(
                MotetError, match=facts("all weights … rehearsal … expected less than")
            ):
                asyncio.run(found.publisher._rehearse(["main"]))
        finally:
            asyncio.run(engine.call("keep_old_head", False))
        asyncio.run(found.publisher.publish(["main"]))


def test_a_tied_head_that_stays_old_is_found_by_the_probe(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    found = engines_of("full", "float32")
    sampled(found, 1.0)
    [engine] = found.pool.engines
    asyncio.run(engine.call("keep_old_head", True))
    move(found, 9)
    try:
        with pytest.raises(MotetError, match=facts("other weights … log-probabilities … differ")):
            asyncio.run(found.publisher.publish(["main"]))
    finally:
        asyncio.run(engine.call("keep_old_head", False))
    asyncio.run(found.publisher.publish(["main"]))


def test_an_engine_takes_more_prompt_tokens_than_it_reads_at_once(
    engines_of: Callable[[Kind, str], RealEngines],
) -> None:
    found, keys = engines_of("full", "float32"), tuple(range(160))
    asked = SampleRequest(("many", 0), "main", "# add 12\n" * 20, Decode(max_new_tokens=2), keys)
    [answer] = asyncio.run(found.sampler.sample([asked]))
    assert isinstance(answer, Sampled)
    assert len(keys) * len(answer.prompt_tokens) > CPU_PREFILL_TOKENS
    assert len(answer.completions) == len(keys)
