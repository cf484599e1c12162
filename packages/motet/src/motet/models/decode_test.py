"""Batched decoding against single completions, `generate`, and log-probabilities of training."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import motet.models.decode as decoding
from motet.core import Completion, Fault, ScoreRequest
from motet.models.backbone import Backbone
from motet.models.decode import DecodeRequest, Timings, decode
from motet.models.forward import score_requests
from motet.models.rows import padded
from motet.settings import Decode, Lora
from tests.fixtures.messages import says
from tests.fixtures.model_folders import Architecture

Load = Callable[..., Backbone]
FolderOf = Callable[..., Path]
PROMPTS = [[5, 60, 200], [17, 9, 270, 33, 8, 61], [42]]
BEGUN = [[5, 60, 200, 33], [5, 60, 200, 270, 9, 8], [5, 60, 200, 42]]
"""Three tokens are read once for all of them."""
EACH = pytest.mark.parametrize("prompts", [PROMPTS, BEGUN], ids=["different", "begun alike"])


def requests(settings: Decode, answers: int = 3, greedy: bool = False) -> list[DecodeRequest]:
    return [
        DecodeRequest("p", prompt, settings, key=100 * prompt + index, greedy=greedy)
        for prompt in range(3)
        for index in range(answers)
    ]


@pytest.fixture
def backbone(folder_of: FolderOf) -> Backbone:
    return Backbone.load(folder_of())


@EACH
@pytest.mark.parametrize("lora", [False, True])
def test_log_probabilities_of_sampling_are_those_of_training(
    folder_of: FolderOf,
    architecture: Architecture,
    device: str,
    lora: bool,
    with_adapter: Load,
    prompts: list[list[int]],
) -> None:
    """Prompts of different lengths, rows that end early, and four temperatures in one batch.

    The error is at most 1e-4, so the first importance ratio is 1.
    """
    backbone = with_adapter(folder_of(architecture), device)
    asked = [
        DecodeRequest(
            "p",
            prompt,
            Decode(temperature=temperature, max_new_tokens=limit),
            key=1000 * prompt + limit,
        )
        for prompt in range(3)
        for temperature, limit in ((0.3, 24), (0.7, 3), (1.0, 17), (1.5, 24))
    ]
    with backbone.policy("a" if lora else None):
        answers = decode(backbone, prompts, asked)
        scored = score_requests(
            backbone,
            [
                ScoreRequest(
                    "a", tuple(prompts[request.prompt]), answer.tokens, request.decode.temperature
                )
                for request, answer in zip(asked, answers, strict=True)
            ],
        )
    for answer, logprobs in zip(answers, scored, strict=True):
        assert logprobs == pytest.approx(answer.logprobs, abs=1e-4)
        ratio = torch.exp(torch.tensor(logprobs) - torch.tensor(answer.logprobs))
        torch.testing.assert_close(ratio, torch.ones_like(ratio), atol=1e-4, rtol=0)


@pytest.mark.parametrize("trainable_full", [False, True])
def test_in_bfloat16_sampling_and_training_still_agree_to_its_precision(
    folder_of: FolderOf, device: str, trainable_full: bool
) -> None:
    backbone = Backbone.load(
        folder_of(), device=device, dtype="bfloat16", trainable_full=trainable_full
    )
    if not trainable_full:
        backbone.add_adapter("a", Lora(rank=4), seed=7)
    asked = requests(Decode(max_new_tokens=8))
    with backbone.policy(None if trainable_full else "a"):
        answers = decode(backbone, PROMPTS, asked)
        scored = score_requests(
            backbone,
            [
                ScoreRequest("a", tuple(PROMPTS[request.prompt]), answer.tokens, 1.0)
                for request, answer in zip(asked, answers, strict=True)
            ],
        )
    gaps = [
        abs(a - b)
        for one, two in zip(scored, answers, strict=True)
        for a, b in zip(one, two.logprobs, strict=True)
    ]
    assert sum(gaps) / len(gaps) < 0.05


@EACH
def test_a_batch_answers_token_for_token_as_one_request_at_a_time(
    folder_of: FolderOf,
    architecture: Architecture,
    monkeypatch: pytest.MonkeyPatch,
    prompts: list[list[int]],
) -> None:
    backbone = Backbone.load(folder_of(architecture))
    # With a twelfth of all tokens as end tokens, rows end at many different steps.
    monkeypatch.setattr(backbone, "eos_ids", tuple(range(0, 300, 12)))
    asked = requests(Decode(max_new_tokens=30), answers=4)
    batched = decode(backbone, prompts, asked)
    assert len({len(answer.tokens) for answer in batched}) > 3
    for request, answer in zip(asked, batched, strict=True):
        (own,) = decode(
            backbone,
            [prompts[request.prompt]],
            [DecodeRequest("p", 0, request.decode, request.key)],
        )
        assert (own.tokens, own.text, own.stop) == (answer.tokens, answer.text, answer.stop)
        assert own.logprobs == pytest.approx(answer.logprobs, abs=1e-4)


@pytest.mark.parametrize("names", [["a", "b", "a"], ["b", "b", "b"]])
def test_prompts_that_begin_alike_are_read_with_the_adapter_of_each(
    folder_of: FolderOf, with_adapter: Load, names: list[str]
) -> None:
    backbone = with_adapter(folder_of(), "cpu")
    backbone.add_adapter("b", Lora(rank=2), seed=1)
    asked = requests(Decode(max_new_tokens=6))
    mixed = decode(backbone, BEGUN, asked, adapters=names)
    for request, answer in zip(asked, mixed, strict=True):
        alone = [DecodeRequest("p", 0, request.decode, request.key)]
        with backbone.policy(names[request.prompt]):
            (own,) = decode(backbone, [BEGUN[request.prompt]], alone)
        assert own.tokens == answer.tokens
        assert own.logprobs == pytest.approx(answer.logprobs, abs=1e-4)


def test_rows_that_leave_are_passed_on_early_once_and_as_without(
    folder_of: FolderOf, architecture: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = Backbone.load(folder_of(architecture))
    monkeypatch.setattr(backbone, "eos_ids", tuple(range(0, 300, 12)))
    asked = requests(Decode(max_new_tokens=30), answers=4)
    received: list[tuple[int, Completion]] = []
    received_at_pass: list[int] = []
    forward = backbone.logits

    def spy(*args: Any, **kwargs: Any) -> Any:
        received_at_pass.append(len(received))
        return forward(*args, **kwargs)

    monkeypatch.setattr(backbone, "logits", spy)
    answers = decode(
        backbone,
        PROMPTS,
        asked,
        on_completion=lambda request, answer: received.append((request, answer)),
    )
    assert sorted(request for request, _ in received) == list(range(len(asked)))
    assert [dict(received)[request] for request in range(len(asked))] == answers
    assert 0 < received_at_pass[len(received_at_pass) // 2] < len(asked), (
        "some are out while others are drawn"
    )
    lengths = [len(answer.tokens) for _, answer in received]
    assert lengths[0] < max(lengths) == lengths[-1]
    assert decode(backbone, PROMPTS, asked) == answers


def test_seconds_of_reading_and_drawing_add_up_over_calls(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    timings, forward, now = Timings(), backbone.logits, 0.0

    def slow(tokens_BL: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        nonlocal now
        now += 0.1 if tokens_BL.shape[1] > 1 else 0.02
        return forward(tokens_BL, *args, **kwargs)

    monkeypatch.setattr(backbone, "logits", slow)
    monkeypatch.setattr(decoding, "perf_counter", lambda: now)
    for _ in range(2):
        decode(backbone, PROMPTS, requests(Decode(max_new_tokens=6)), timings=timings)
    assert timings.prefill == pytest.approx(2 * 0.1)
    assert timings.decode >= 2 * 5 * 0.02
    assert timings.prefill + timings.decode == pytest.approx(now)


def test_the_same_keys_draw_the_same_answers_and_other_keys_others(backbone: Backbone) -> None:
    asked = requests(Decode(max_new_tokens=12))
    first = decode(backbone, PROMPTS, asked)
    torch.manual_seed(123)
    assert decode(backbone, PROMPTS, asked) == first
    other = decode(
        backbone,
        PROMPTS,
        [DecodeRequest("p", request.prompt, request.decode, request.key + 1) for request in asked],
    )
    assert all(
        one.tokens != two.tokens
        for one, two in zip(first, other, strict=True)
        if len(one.tokens) > 2
    )


def test_greedy_answers_are_those_of_generate(
    folder_of: FolderOf, architecture: Architecture, device: str
) -> None:
    backbone = Backbone.load(folder_of(architecture), device=device)
    answers = decode(
        backbone,
        PROMPTS,
        requests(Decode(max_new_tokens=24, temperature=0.7), answers=1, greedy=True),
    )
    tokens_PL, mask_PL = padded(PROMPTS, backbone.pad_id, "left", backbone.device)
    generated = backbone.model.generate(
        input_ids=tokens_PL,
        attention_mask=mask_PL.long(),
        do_sample=False,
        max_new_tokens=24,
        pad_token_id=backbone.pad_id,
        eos_token_id=list(backbone.eos_ids),
    )
    for answer, row in zip(answers, generated[:, tokens_PL.shape[1] :].tolist(), strict=True):
        assert list(answer.tokens) == row[: len(answer.tokens)]
        assert answer.stop == "stop" or len(answer.tokens) == 24


def free(backbone: Backbone) -> Completion:
    """Return a completion that ends only at its limit."""
    (answer,) = decode(
        backbone, [PROMPTS[0]], [DecodeRequest("p", 0, Decode(max_new_tokens=20), key=5)]
    )
    assert answer.stop == "length"
    assert len(answer.tokens) == 20
    return answer


@pytest.mark.parametrize("place", [0, 4, 19])
def test_any_of_several_end_tokens_ends_an_answer_and_is_kept_in_its_tokens(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    longer = free(backbone)
    place = longer.tokens.index(longer.tokens[place])
    never = next(token for token in range(300) if token not in longer.tokens)
    for ids in ((longer.tokens[place], never), (never, longer.tokens[place])):
        monkeypatch.setattr(backbone, "eos_ids", ids)
        (answer,) = decode(
            backbone, [PROMPTS[0]], [DecodeRequest("p", 0, Decode(max_new_tokens=20), key=5)]
        )
        assert answer.stop == "stop"
        assert answer.tokens == longer.tokens[: place + 1]
        assert answer.logprobs == longer.logprobs[: place + 1]


def test_the_end_token_is_not_in_the_text(backbone: Backbone) -> None:
    # The distribution is nearly uniform, so about one token in 150 is an end token.
    answers = decode(
        backbone, PROMPTS, requests(Decode(max_new_tokens=40, temperature=20.0), answers=10)
    )
    ended = [answer for answer in answers if answer.tokens[-1] == 1]
    assert ended
    for answer in ended:
        assert answer.stop == "stop"
        assert "<eos>" not in answer.text
        assert answer.text == backbone.tokenizer.decode(
            answer.tokens[:-1], skip_special_tokens=True
        )


def test_a_stop_string_is_cut_from_the_text_and_kept_in_the_tokens(backbone: Backbone) -> None:
    longer = free(backbone)
    whole = backbone.tokenizer.decode(longer.tokens)
    middle = next(
        place for place in range(3, len(whole) - 2) if "�" not in whole[place : place + 2]
    )
    stop = whole[middle : middle + 2]
    settings = Decode(max_new_tokens=20, stop=("no such text", stop))
    other = DecodeRequest("p", 1, Decode(max_new_tokens=20), key=6)
    answer, beside = decode(backbone, PROMPTS[:2], [DecodeRequest("p", 0, settings, key=5), other])
    assert answer.stop == "stop"
    assert answer.text == whole[: whole.index(stop)]
    assert answer.tokens == longer.tokens[: len(answer.tokens)]
    assert stop in backbone.tokenizer.decode(answer.tokens)
    assert stop not in backbone.tokenizer.decode(answer.tokens[:-1])
    assert len(beside.tokens) == 20, "a row without stop strings goes on"


def test_an_answer_ends_with_the_context(folder_of: FolderOf, architecture: Architecture) -> None:
    backbone = Backbone.load(folder_of(architecture))
    long_prompt = list(range(10, 10 + 90))
    asked = [
        DecodeRequest("p", 0, Decode(max_new_tokens=50), key=1),
        DecodeRequest("p", 1, Decode(max_new_tokens=50), key=2),
    ]
    cut_short, whole = decode(backbone, [long_prompt, PROMPTS[0]], asked)
    assert len(cut_short.tokens) == 96 - 90 or cut_short.stop == "stop"
    assert len(whole.tokens) == 50 or whole.stop == "stop"
    (last_place,) = decode(
        backbone, [list(range(10, 10 + 95))], [DecodeRequest("p", 0, Decode(), key=1)]
    )
    assert len(last_place.tokens) == 1


def test_logits_that_are_not_finite_are_a_fault_of_every_row(backbone: Backbone) -> None:
    with torch.no_grad():
        backbone.model.lm_head.weight[7] = torch.nan
    found = decode(backbone, PROMPTS, requests(Decode(max_new_tokens=4)))
    assert {one.cause for one in found} == {"not_finite"}
    assert "lower the learning rate" in found[0].message


@pytest.mark.parametrize("shared", [1, 10**9], ids=["prompts shared", "prompts copied"])
@pytest.mark.parametrize("adapter", [None, "a"])
def test_a_prompt_whose_logits_are_not_finite_is_a_fault_of_its_rows_alone(
    folder_of: FolderOf,
    with_adapter: Load,
    adapter: str | None,
    shared: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "SHARED", shared)
    backbone = with_adapter(folder_of(), "cpu")
    adapters = None if adapter is None else [adapter] * 3
    asked = requests(Decode(max_new_tokens=12))

    def read(prompts: list[list[int]]) -> list[Completion | Fault]:
        received: list[int] = []
        found = decode(
            backbone, prompts, asked, adapters=adapters,
            on_completion=lambda request, answer: received.append(request),
        )  # fmt: skip
        assert sorted(received) == list(range(9))
        return found

    whole = read(PROMPTS)

    def broken(module: Any, given: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return torch.where((given[0] == 60)[..., None], torch.nan, out)

    backbone.model.get_input_embeddings().register_forward_hook(broken)
    found = read([PROMPTS[0], PROMPTS[1], PROMPTS[2]])
    assert all(isinstance(one, Fault) and one.cause == "not_finite" for one in found[:3])
    assert says(found[0].message, "policy p … logits … prompt")
    for before, after in zip(whole[3:], found[3:], strict=True):
        if 60 not in before.tokens[:-1]:
            assert after == before


def test_logits_that_a_temperature_makes_infinite_are_a_fault_of_their_row_alone(
    backbone: Backbone,
) -> None:
    settings = Decode(max_new_tokens=4)
    cold = settings.model_copy(update={"temperature": 1e-45})
    asked = [DecodeRequest("p", row, cold if row == 1 else settings, key=row) for row in range(3)]
    first, broken, last = decode(backbone, PROMPTS, asked)
    alone = decode(backbone, PROMPTS, [asked[0], asked[2]])
    assert [first.tokens, last.tokens] == [one.tokens for one in alone]
    assert isinstance(broken, Fault)
    assert "divided by the temperature 1e-45, are not finite" in broken.message
    assert isinstance(
        decode(backbone, [PROMPTS[1]], [DecodeRequest("p", 0, cold, key=1)])[0], Fault
    )


def test_an_answer_that_the_tokenizer_fails_at_is_a_fault_and_the_others_are_completions(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Decode(max_new_tokens=4, temperature=0.7)
    asked = [DecodeRequest("small", 0, settings, key=key, version=3) for key in range(3)]
    whole = decode(backbone, [PROMPTS[0]], asked)
    read = backbone.tokenizer.batch_decode

    def fails(rows: list[list[int]], **settings: Any) -> list[str]:
        if list(whole[1].tokens) in rows:
            raise ValueError("no such token")
        return read(rows, **settings)

    monkeypatch.setattr(backbone.tokenizer, "batch_decode", fails)
    first, broken, last = decode(backbone, [PROMPTS[0]], asked)
    assert (first, last) == (whole[0], whole[2])
    assert (first.policy, first.version, first.temperature) == ("small", 3, 0.7)
    assert isinstance(broken, Fault)
    assert (broken.where, broken.cause) == ("sampler", "tokenizer")
    assert says(broken.message, "policy small … tokenizer … answer … ValueError: no such token")


def programmed(
    backbone: Backbone, monkeypatch: pytest.MonkeyPatch, following: dict[int, int]
) -> None:
    """Make the next token a function of the last one."""
    forward = backbone.logits

    def next_ones(tokens_BL: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        logits_B1V, cache = forward(tokens_BL, *args, **kwargs)
        wanted = [following.get(int(row[-1]), 42) for row in tokens_BL]
        sure_B1V = torch.full_like(logits_B1V, -100.0)
        sure_B1V[range(len(wanted)), 0, wanted] = 100.0
        return sure_B1V, cache

    monkeypatch.setattr(backbone, "logits", next_ones)


@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [
        (("<bos>",), "A", 2),
        (("<bos>", "zzz"), "A", 2),
        (("A", "<bos>"), "", 1),
        (("<bos>\n",), "A", 2),
        (("A<bos>",), "A", 2),
        (("<pad>",), "A\nB", 6),
        ((), "A\nB", 6),
    ],
)
def test_a_stop_string_of_special_tokens_ends_a_completion_and_is_not_in_its_text(
    backbone: Backbone,
    monkeypatch: pytest.MonkeyPatch,
    stop: tuple[str, ...],
    text: str,
    tokens: int,
) -> None:
    """The model answers A<bos>\\nB<end>, whatever the prompt; <end> is an end token."""
    words = backbone.tokenizer
    a, bos, line, b, end = (words.encode(one)[0] for one in ("A", "<bos>", "\n", "B", "<end>"))
    programmed(backbone, monkeypatch, {200: a, a: bos, bos: line, line: b, b: end})
    plain = DecodeRequest("p", 0, Decode(max_new_tokens=9), key=1)
    asked = [plain, replace(plain, decode=Decode(max_new_tokens=9, stop=stop)), plain]
    before, found, after = decode(backbone, [[5, 60, 200]], asked)
    assert before == after
    assert (before.text, len(before.tokens), before.stop) == ("A\nB", 5, "stop")
    assert (found.text, len(found.tokens), found.stop) == (text, min(tokens, 5), "stop")
    assert found.tokens == before.tokens[: len(found.tokens)]


def test_an_end_token_that_is_no_special_token_is_not_in_the_text(
    folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = Backbone.load(folder_of(), end_tokens=["\n", "B"])
    words = backbone.tokenizer
    a, line = (words.encode(one)[0] for one in ("A", "\n"))
    programmed(backbone, monkeypatch, {200: a, a: line})
    (found,) = decode(backbone, [[200]], [DecodeRequest("p", 0, Decode(max_new_tokens=9), key=1)])
    assert (found.text, found.tokens, found.stop) == ("A", (a, line), "stop")
