"""The in-process sampler: order, batches, faults, versions, references."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from motet.core import Completion, Fault, Message, Sampled, SampleRequest, ScoreRequest
from motet.errors import ConfigError, TrainingDiverged
from motet.models import decode
from motet.models.backbone import Backbone, Policy
from motet.models.sampler import CompletionRow, LocalSampler, OpenRequests, batches
from motet.settings import Decode, Lora
from tests.fixtures.adapters import move_away
from tests.fixtures.messages import facts
from tests.fixtures.model_folders import Architecture

FolderOf = Callable[..., Path]
Load = Callable[..., Backbone]
TEXTS = ("the quick brown fox", "a", "def add(a, b):", "the lazy dog. the lazy dog.", "a", "user")


def policies_on(backbone: Backbone) -> dict[str, Policy]:
    return {"a": Policy("a", backbone, "a"), "base": Policy("base", backbone, trainable=False)}


def requests(answers: int = 3) -> list[SampleRequest]:
    """Return requests for two policies, with various prompt lengths and four decode settings."""
    settings = [
        Decode(max_new_tokens=12),
        Decode(max_new_tokens=5, temperature=0.5),
        Decode(max_new_tokens=9, top_p=0.9),
        Decode(max_new_tokens=12, top_k=5, stop=("a",)),
    ]
    return [
        SampleRequest(
            id=(number,),
            policy=("a", "base")[number % 2],
            prompt=text if number % 3 else (Message("user", text),),
            decode=settings[number % 4],
            keys=tuple(100 * number + index for index in range(answers)),
            greedy=number == 4,
        )
        for number, text in enumerate(TEXTS)
    ]


def answer(sampler: LocalSampler, asked: list[SampleRequest]) -> list[Sampled | Fault]:
    return asyncio.run(sampler.sample(asked))


def without_logprobs(results: list[Sampled | Fault]) -> list[tuple[object, ...]]:
    return [
        (result.prompt_tokens, [(one.tokens, one.text, one.stop) for one in result.completions])
        for result in results
        if isinstance(result, Sampled)
    ]


@pytest.mark.parametrize("chat_template", [False, True])
def test_answers_come_in_the_order_of_requests_and_keys_whatever_the_batches(
    folder_of: FolderOf, architecture: Architecture, with_adapter: Load, chat_template: bool
) -> None:
    policies = policies_on(with_adapter(folder_of(architecture, chat_template)))
    together = answer(LocalSampler(policies), requests())
    assert len(without_logprobs(together)) == len(TEXTS)
    one_by_one = [answer(LocalSampler(policies), [request])[0] for request in requests()]
    tight = LocalSampler(policies, rows_per_batch=4, tokens_per_batch=60)
    backwards = answer(tight, requests()[::-1])[::-1]
    assert without_logprobs(together) == without_logprobs(one_by_one) == without_logprobs(backwards)


def test_a_completion_says_who_how_and_when(folder_of: FolderOf, with_adapter: Load) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())))
    assert asyncio.run(sampler.publish(["a"])) == 1
    assert asyncio.run(sampler.publish(["a"])) == 2
    for request, result in zip(requests(), answer(sampler, requests()), strict=True):
        assert isinstance(result, Sampled)
        for completion in result.completions:
            assert completion.policy == request.policy
            assert completion.temperature == request.decode.temperature
            assert completion.version == {"a": 2, "base": 0}[request.policy]


def test_batches_are_within_the_budget_and_a_function_of_the_lengths(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(
        policies_on(with_adapter(folder_of())), rows_per_batch=3, tokens_per_batch=50
    )
    widths = []
    decoded = sampler._decode

    def spy(asked: object, batch: list) -> object:
        widths.append(
            (len(batch), max(len(row.prompt) for row in batch) + max(row.answer for row in batch))
        )
        return decoded(asked, batch)

    sampler._decode = spy
    answer(sampler, requests())
    assert all(rows <= 3 and (rows * width <= 50 or rows == 1) for rows, width in widths)
    first = list(widths)
    widths.clear()
    answer(sampler, requests())
    assert widths == first


def test_adapters_of_one_base_decode_together_what_each_says_alone(
    folder_of: FolderOf,
    architecture: Architecture,
    with_adapter: Load,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = with_adapter(folder_of(architecture))
    for name, lora in (("b", Lora(rank=2)), ("c", Lora(rank=4, alpha=4))):
        backbone.add_adapter(name, lora, seed=8)
        move_away(backbone, name)
    # A twelfth of all tokens end a completion, so rows end at many different steps.
    monkeypatch.setattr(backbone, "eos_ids", tuple(range(0, 300, 12)))
    policies = policies_on(backbone) | {name: Policy(name, backbone, name) for name in "bc"}
    sampler, casts, decoded = LocalSampler(policies), [], decode.decode

    def spy(*given: Any, **settings: Any) -> Any:
        casts.append(sorted(set(settings["adapters"] or ["alone"])))
        return decoded(*given, **settings)

    monkeypatch.setattr("motet.models.sampler.decode", spy)
    asked = [
        replace(request, policy="abc"[number % 3]) for number, request in enumerate(requests())
    ]
    asked += [replace(asked[1], policy=name) for name in ("a", "c", "base")]
    for shared in (decode.SHARED, 1):
        monkeypatch.setattr(decode, "SHARED", shared)
        casts.clear()
        together = answer(sampler, asked)
        assert casts == [["a", "b", "c"], ["alone"]], "the bare base speaks alone"
        one_by_one = [answer(sampler, [request])[0] for request in asked]
        assert without_logprobs(together) == without_logprobs(one_by_one)
        for one, other in zip(together, one_by_one, strict=True):
            for left, right in zip(one.completions, other.completions, strict=True):
                assert left.logprobs == pytest.approx(right.logprobs, abs=1e-4)


def test_a_prompt_that_does_not_fit_is_a_fault_and_its_neighbours_are_answered(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())))
    long = SampleRequest((9,), "a", "fox " * 200, Decode(max_new_tokens=4), (1, 2))
    empty = SampleRequest((10,), "a", "", Decode(max_new_tokens=4), (1, 2))
    first, second, third = answer(sampler, [long, requests()[0], empty])
    assert isinstance(first, Fault)
    assert (first.where, first.cause) == ("sampler", "long_prompt")
    assert "policy a: prompt has" in first.message
    assert isinstance(second, Sampled)
    assert isinstance(third, Fault)
    assert third.cause == "bad_prompt"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread: only then does sampling on a CPU run outside the event loop's thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_where_the_cpu_computes_with_several_threads_sampling_is_in_the_thread_that_learns(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())))
    seen, handed, decoded, before = set(), [], sampler._decode, torch.get_num_threads()

    def spy(open_: object, batch: list) -> None:
        seen.add(threading.get_ident())
        decoded(open_, batch)

    sampler._decode = spy
    try:
        torch.set_num_threads(2)
        asyncio.run(sampler.sample(requests(), lambda place, one: handed.append(place)))
        assert (seen, handed) == ({threading.get_ident()}, [])
        torch.set_num_threads(1)
        asyncio.run(sampler.sample(requests(), lambda place, one: handed.append(place)))
        assert len(seen) == 2
        assert sorted(handed) == list(range(len(requests())))
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_every_answer_is_handed_out_once_in_the_loops_thread_before_the_call_returns(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())), rows_per_batch=4)
    asked = [
        *requests(),
        SampleRequest((9,), "base", "fox " * 200, Decode(max_new_tokens=4), (1, 2)),
    ]
    alone = answer(sampler, asked)
    handed: list[tuple[int, Sampled | Fault]] = []

    async def main() -> list[Sampled | Fault]:
        here = threading.get_ident()

        def on_answer(place: int, one: Sampled | Fault) -> None:
            assert threading.get_ident() == here
            handed.append((place, one))

        results = await sampler.sample(asked, on_answer)
        assert len(handed) == len(asked)
        return results

    results = asyncio.run(main())
    assert results == alone
    assert dict(handed) == dict(enumerate(results))
    # This prompt does not fit. Its policy is the last to be decoded.
    assert handed[0][0] == 6


@pytest.mark.usefixtures("one_thread")
def test_answers_are_handed_out_while_others_are_decoded(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    """Each request has three completions, in batches of two.

    A request is passed on when its last completion is finished, before the next batch begins.
    """
    sampler = LocalSampler(policies_on(with_adapter(folder_of())), rows_per_batch=2)
    asked = [request for request in requests() if request.policy == "a"]
    handed: list[int] = []
    due: list[int] = []
    drawn: Counter[int] = Counter()
    changed = threading.Condition()
    decoded = sampler._decode

    def spy(open_: object, batch: list) -> None:
        with changed:
            assert changed.wait_for(lambda: sorted(handed) == sorted(due), timeout=60.0)
        decoded(open_, batch)
        drawn.update(row.request for row in batch)
        due[:] = [number for number, count in drawn.items() if count == 3]

    def on_answer(place: int, one: Sampled | Fault) -> None:
        with changed:
            handed.append(place)
            changed.notify()

    sampler._decode = spy
    results = asyncio.run(sampler.sample(asked, on_answer))
    assert sorted(handed) == [0, 1, 2]
    assert all(isinstance(one, Sampled) and len(one.completions) == 3 for one in results)


def test_seconds_of_sampling_are_told_and_scoring_is_not_among_them(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())), rows_per_batch=4)
    assert sampler.timings() == {"prefill": 0.0, "decode": 0.0}
    begun = time.perf_counter()
    results = answer(sampler, requests())
    wall = time.perf_counter() - begun
    once = sampler.timings()
    assert min(once.values()) > 0.0
    assert sum(once.values()) <= wall
    asyncio.run(sampler.logprobs(score_of(requests()[0], results[0])))
    assert sampler.timings() == once
    answer(sampler, requests())
    assert all(after > once[kind] for kind, after in sampler.timings().items())


@pytest.mark.usefixtures("one_thread")
def test_a_model_that_breaks_is_raised_after_the_answers_before_it(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())))
    decoded = sampler._decode
    handed: list[int] = []

    def breaks(open_: Any, batch: list) -> None:
        if open_.requests[batch[0].request].policy == "base":
            raise TrainingDiverged("not finite")
        decoded(open_, batch)

    sampler._decode = breaks
    with pytest.raises(TrainingDiverged, match="not finite"):
        asyncio.run(sampler.sample(requests(), lambda place, one: handed.append(place)))
    assert sorted(handed) == [0, 2, 4]


@pytest.mark.usefixtures("one_thread")
def test_a_call_that_is_given_up_leaves_a_sampler_that_answers(
    folder_of: FolderOf, with_adapter: Load
) -> None:
    sampler = LocalSampler(policies_on(with_adapter(folder_of())), rows_per_batch=2)
    expected = answer(sampler, requests())

    async def main() -> list[Sampled | Fault]:
        call = asyncio.ensure_future(sampler.sample(requests(), lambda place, one: call.cancel()))
        with pytest.raises(asyncio.CancelledError):
            await call
        return await sampler.sample(requests())

    assert asyncio.run(main()) == expected


def score_of(request: SampleRequest, result: Sampled | Fault) -> list[ScoreRequest]:
    assert isinstance(result, Sampled)
    return [
        ScoreRequest(
            request.policy, result.prompt_tokens, completion.tokens, completion.temperature
        )
        for completion in result.completions
    ]


def test_the_reference_of_an_adapter_is_its_base(folder_of: FolderOf, with_adapter: Load) -> None:
    policies = policies_on(with_adapter(folder_of()))
    sampler = LocalSampler(policies, rows_per_batch=2)
    asked = [request for request in requests() if request.policy == "base"]
    results = answer(sampler, asked)
    base = [completion.logprobs for result in results for completion in result.completions]
    wanted = [
        score
        for request, result in zip(asked, results, strict=True)
        for score in score_of(request, result)
    ]
    as_adapter = [
        ScoreRequest("a", one.prompt_tokens, one.tokens, one.temperature) for one in wanted
    ]
    scored = asyncio.run(sampler.logprobs(as_adapter))
    for got, expected in zip(scored, base, strict=True):
        assert got == pytest.approx(expected, abs=1e-4)


def test_a_full_policy_needs_a_reference_of_its_own(folder_of: FolderOf) -> None:
    policy = Policy("full", Backbone.load(folder_of(), trainable_full=True))
    wanted = [ScoreRequest("full", (5, 6), (7, 8), 1.0)]
    with pytest.raises(ConfigError, match=facts("policy full … train: full … no reference")):
        asyncio.run(LocalSampler({"full": policy}).logprobs(wanted))
    frozen = Policy("full (reference)", Backbone.load(folder_of()), trainable=False)
    policy.parameters()[0].data.mul_(2.0)
    sampler = LocalSampler({"full": policy}, references={"full": frozen})
    alone = LocalSampler({"full": frozen}, references={"full": frozen})
    assert asyncio.run(sampler.logprobs(wanted)) == asyncio.run(alone.logprobs(wanted))


# ------------------------------------------------------------------------------------- sampler rows


def row(request: int, prompt: int, answer: int, index: int = 0) -> CompletionRow:
    return CompletionRow(request, index, (7,) * prompt, answer)


def test_batches_hold_so_many_rows_and_tokens_with_padding_shortest_prompts_first() -> None:
    rows = [row(0, 6, 4), row(1, 2, 3), row(2, 2, 8), row(3, 40, 1), row(4, 2, 3)]

    def numbers(most_rows: int, most_tokens: int) -> list[list[int]]:
        found = batches(rows, most_rows, most_tokens)
        return [[one.request for one in batch] for batch in found]

    assert numbers(9, 10_000) == [[1, 4, 2, 0, 3]]
    assert numbers(2, 10_000) == [[1, 4], [2, 0], [3]]
    # 3 rows of width 2 + 8 have 30 tokens; a fourth one would make the width 6 + 8.
    assert numbers(9, 30) == [[1, 4, 2], [0], [3]], "a row above the limit is a batch"
    assert numbers(9, 29) == [[1, 4], [2, 0], [3]]
    assert list(batches([], 9, 9)) == []


def completion(token: int) -> Completion:
    return Completion("p", "", "length", tokens=(token,), logprobs=(0.0,))


def test_a_request_is_passed_on_once_with_its_samples_in_the_order_of_its_keys() -> None:
    requests = [
        SampleRequest(id=(number,), policy="p", prompt="", decode=Decode(), keys=(1, 2))
        for number in range(3)
    ]
    fault, handed = Fault("sampler", "prompt_too_long", "no"), []
    open_ = OpenRequests(
        requests, [(7,), fault, (7,)], lambda place, answer: handed.append((place, answer))
    )
    assert handed == [(1, fault)], "at once"
    open_.take(row(0, 1, 1, index=1), completion(5))
    assert len(handed) == 1
    open_.take(row(0, 1, 1, index=0), completion(4))
    whole = Sampled((7,), (completion(4), completion(5)))
    assert handed[1:] == [(0, whole)]
    broken = Fault("sampler", "broken", "no")
    open_.take(row(2, 1, 1, index=1), broken)
    open_.take(row(2, 1, 1, index=0), completion(6))
    assert open_.answers() == [whole, fault, broken]
