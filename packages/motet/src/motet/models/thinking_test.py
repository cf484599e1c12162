"""What an agent thinks is told from its answer, and ended at its budget."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from motet.batch import Rows
from motet.batch.batches import forced_places
from motet.core import Completion, ScoreRequest
from motet.models.backbone import Backbone
from motet.models.bounded_text import token_ids
from motet.models.completions import with_texts
from motet.models.decode import DecodeRequest, decode
from motet.models.forward import forward, score_requests
from motet.models.rows import padded
from motet.models.thinking import Thinker
from motet.models.tiny import byte_level_bpe
from motet.settings import Decode, Thinking

FolderOf = Callable[..., Path]
CHANNELS = Thinking(
    start="<|channel|>analysis<|message|>", end="<|end|><|channel|>final<|message|>"
)


@pytest.fixture(scope="module")
def words() -> PreTrainedTokenizerFast:
    marks = ("<pad>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>")
    raw = byte_level_bpe(["<think>\nWe add.\n</think>\n\n5"], 300, special_tokens=marks)
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<|return|>")


def read(
    words: PreTrainedTokenizerFast, said: str, decode: Decode, prompt: str = "2+3?"
) -> Completion:
    tokens: Sequence[int] = words(said, add_special_tokens=False)["input_ids"]
    end = words.convert_tokens_to_ids("<|return|>")
    stop = "stop" if tokens and tokens[-1] == end else "length"
    one = Completion("p", "", stop, 0, tuple(tokens), (-1.0,) * len(tokens))
    asked = words(prompt, add_special_tokens=False)["input_ids"]
    (found,) = with_texts(words, [one], [decode], [asked], {end})
    assert isinstance(found, Completion)
    return found


TAGS = Thinking()
ASKED = "2+3?<think>\n"
CASES = [
    (TAGS, "2+3?", "<think>\nWe add.\n</think>\n\n5", "We add.", "5"),
    (TAGS, ASKED, "We add.\n</think>\n\n5", "We add.", "5"),
    (TAGS, ASKED, "We add.</think>5</think>6", "We add.", "5</think>6"),
    (TAGS, ASKED, "We add, and", "We add, and", ""),
    (TAGS, "2+3?", "<think>We add, and", "We add, and", ""),
    (TAGS, "2+3?", "5 <think>", "", "5 <think>"),
    (TAGS, "2+3?", "", "", ""),
    (TAGS, ASKED, "</think>", "", ""),
    (
        CHANNELS,
        "2+3?",
        "<|channel|>analysis<|message|>We add.<|end|><|channel|>final<|message|>5",
        "We add.",
        "5",
    ),
]


@pytest.mark.parametrize(("thinking", "prompt", "said", "thought", "answer"), CASES)
@pytest.mark.parametrize("end", ["", "<|return|>"])
def test_the_answer_is_what_follows_the_thinking(
    words: PreTrainedTokenizerFast,
    thinking: Thinking,
    prompt: str,
    said: str,
    thought: str,
    answer: str,
    end: str,
) -> None:
    found = read(words, said + end, Decode(thinking=thinking), prompt)
    assert (found.thinking, found.text) == (thought, answer)
    assert found.reply.thinking == thought
    assert found.tokens == tuple(words(said + end, add_special_tokens=False)["input_ids"])


def test_without_the_setting_all_is_the_answer(words: PreTrainedTokenizerFast) -> None:
    said = "<think>We add.</think>5"
    assert (read(words, said, Decode()).text, read(words, said, Decode()).thinking) == (said, "")


def test_thinking_is_shown_where_the_config_says_so(words: PreTrainedTokenizerFast) -> None:
    shown = Decode(thinking=Thinking(shown=True))
    found = read(words, "<think>\nWe add.\n</think>\n\n5", shown)
    assert (found.text, found.thinking) == ("<think>\nWe add.\n</think>\n\n5", "We add.")


def test_a_stop_string_ends_the_answer_and_not_the_thinking(
    words: PreTrainedTokenizerFast,
) -> None:
    decode = Decode(thinking=TAGS, stop=("\n\n",))
    found = read(words, "<think>\nWe\n\nadd.\n</think>\n\n5\n\n6", decode)
    assert (found.thinking, found.text) == ("We\n\nadd.", "5")


@pytest.mark.parametrize("thinking", [TAGS, CHANNELS])
def test_a_thinker_knows_where_it_is(words: PreTrainedTokenizerFast, thinking: Thinking) -> None:
    said = f"{thinking.start}We add.{thinking.end}5"
    tokens: Sequence[int] = words(said, add_special_tokens=False)["input_ids"]
    thinker = Thinker.of(words, words("2+3?")["input_ids"], thinking)
    states = []
    for count in range(1, len(tokens) + 1):
        thinker.read(tokens[:count], count)
        states.append(thinker.state)
    assert states == sorted(states, key=("before", "thinks", "answers").index)
    again = Thinker.of(words, words("2+3?")["input_ids"], thinking)
    for count, state in enumerate(states, start=1):
        again.read(tokens[max(0, count - again.window(count)) : count], count)
        assert again.state == state, "its window is enough"
    assert set(states) == {"before", "thinks", "answers"}
    assert words.decode(tokens[thinker.answer_from :]) == "5"


def test_one_that_answers_at_once_does_not_think(words: PreTrainedTokenizerFast) -> None:
    thinker = Thinker.of(words, words("2+3?")["input_ids"], Thinking(max_tokens=1))
    thinker.read(words("5")["input_ids"], len(words("5")["input_ids"]))
    assert (thinker.state, thinker.to_come) == ("answers", [])


@pytest.mark.parametrize(
    ("thinking", "put_in"),
    [
        (TAGS, "\n</think>\n\n"),
        (CHANNELS, "<|end|><|channel|>final<|message|>"),
        (Thinking(closing="Enough.</think>"), "Enough.</think>"),
    ],
)
def test_at_the_budget_the_end_tag_comes_as_the_family_writes_it(
    words: PreTrainedTokenizerFast, thinking: Thinking, put_in: str
) -> None:
    thinking = thinking.model_copy(update={"max_tokens": 1})
    thinker = Thinker.of(words, words("2+3?")["input_ids"], thinking)
    said = [*words(thinking.start)["input_ids"], *words("We add")["input_ids"]]
    for count in range(1, len(said) + 1):
        thinker.read(said[:count], count)
        if thinker.to_come:
            break
    assert words.decode(thinker.to_come) == put_in


# ------------------------------------------------------------------------------------- the budget

LIMIT = 5
BUDGET = Decode(thinking=Thinking(max_tokens=LIMIT), max_new_tokens=48)


@pytest.fixture
def backbone(folder_of: FolderOf) -> Backbone:
    return Backbone.load(folder_of())


def asked(tokenizer: PreTrainedTokenizerBase) -> list[list[int]]:
    return [token_ids(tokenizer, text) for text in ("2+3?<think>", "a longer one, 7?<think>\n")]


def test_a_thinking_that_is_too_long_is_ended_and_the_end_is_certain(backbone: Backbone) -> None:
    prompts = asked(backbone.tokenizer)
    requests = [DecodeRequest("p", row % 2, BUDGET, key=row) for row in range(6)]
    answers = decode(backbone, prompts, requests)
    closing = token_ids(backbone.tokenizer, "\n</think>\n\n")
    for request, answer in zip(requests, answers, strict=True):
        assert isinstance(answer, Completion)
        assert answer.tokens is not None
        assert answer.logprobs is not None
        if len(answer.tokens) <= LIMIT:
            assert answer.forced is None
            continue
        first, end = LIMIT, LIMIT + len(closing)
        assert answer.forced == (first, end)
        assert list(answer.tokens[first:end]) == closing
        assert answer.logprobs[first:end] == (0.0,) * len(closing)
        assert all(one < 0 for one in (*answer.logprobs[:first], *answer.logprobs[end:]))
        assert "</think>" not in answer.text
        alone = decode(backbone, [prompts[request.prompt]], [replace(request, prompt=0)])[0]
        assert isinstance(alone, Completion)
        assert (alone.tokens, alone.text, alone.forced) == (
            answer.tokens,
            answer.text,
            answer.forced,
        )
        assert alone.logprobs == pytest.approx(answer.logprobs, abs=1e-4)
    assert any(isinstance(one, Completion) and one.forced for one in answers)
    scored = score_requests(
        backbone,
        [
            ScoreRequest("p", tuple(prompts[request.prompt]), one.tokens, 1.0, one.forced)
            for request, one in zip(requests, answers, strict=True)
            if isinstance(one, Completion) and one.tokens is not None
        ],
    )
    for one, logprobs in zip(answers, scored, strict=True):
        assert isinstance(one, Completion)
        assert logprobs == pytest.approx(one.logprobs, abs=1e-4)


def test_a_closing_that_the_limit_cuts_off_is_forced_as_far_as_it_goes(backbone: Backbone) -> None:
    short = BUDGET.model_copy(update={"max_new_tokens": LIMIT + 2})
    prompts = asked(backbone.tokenizer)[:1]
    answers = decode(backbone, prompts, [DecodeRequest("p", 0, short, key=key) for key in range(4)])
    cut = [one for one in answers if isinstance(one, Completion) and one.forced]
    assert cut
    assert all(one.forced == (LIMIT, LIMIT + 2) and one.stop == "length" for one in cut)


def test_nothing_is_learned_from_what_was_put_in(backbone: Backbone) -> None:
    """The gradient is that of the other tokens' log-probabilities."""
    prompts_PL, prompt_mask_PL = padded(
        asked(backbone.tokenizer)[:1], backbone.pad_id, "left", torch.device("cpu")
    )
    tokens_BL = torch.tensor([[5, 9, 60, 33, 8], [7, 12, 61, 9, 44]])
    rows = Rows(
        prompts_PL, prompt_mask_PL, torch.zeros(2, dtype=torch.int64), tokens_BL,
        torch.ones_like(tokens_BL, dtype=torch.bool),
        forced_BL=forced_places([(1, 3), (0, 0)], 5),
    )  # fmt: skip

    def gradient(rows: Rows, keep_BL: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        backbone.model.zero_grad()
        logp_BL, entropy_BL = forward(backbone, rows, torch.ones(2))
        ((logp_BL + 0.1 * entropy_BL) * keep_BL).sum().backward()
        grads = [one.grad.flatten() for one in backbone.model.parameters() if one.grad is not None]
        return logp_BL.detach(), torch.cat(grads)

    for parameter in backbone.model.parameters():
        parameter.requires_grad_(True)
    with backbone.policy(None):
        got_BL, grad = gradient(rows, torch.ones(2, 5))
        left = torch.tensor([[1.0, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
        plain_BL, expected = gradient(replace(rows, forced_BL=None), left)
    torch.testing.assert_close(got_BL, plain_BL * left)
    torch.testing.assert_close(grad, expected)
    assert grad.abs().max() > 0


# ------------------------------------------------------------------------------------ the settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"thinking": {"closing": "Enough."}}, "expected one with the end tag, '</think>'"),
        ({"thinking": {"start": ""}}, "at least 1 character"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Decode.model_validate(given)
