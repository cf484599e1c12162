from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from motet.core import Completion
from motet.models.completions import with_texts
from motet.models.tiny import byte_level_bpe
from motet.settings import Decode

MARKS = ("<|end|>", "<|channel|>", "<|message|>")


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    raw = byte_level_bpe(["thought answer"], 300, special_tokens=("<pad>", *MARKS))
    return PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<|end|>")


def text_of(tokenizer: PreTrainedTokenizerFast, sampled: str, decode: Decode) -> str:
    tokens: Sequence[int] = tokenizer(sampled, add_special_tokens=False)["input_ids"]
    stopped = sampled.endswith("<|end|>") or any(stop in sampled for stop in decode.stop)
    logprobs = (-1.0,) * len(tokens)
    one = Completion("p", "", "stop" if stopped else "length", 0, tuple(tokens), logprobs)
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    (found,) = with_texts(tokenizer, [one], [decode], [()], {end})
    assert isinstance(found, Completion)
    assert found.tokens == tuple(tokens), "all sampled tokens are kept and trained"
    return found.text


HARMONY = "<|channel|>thought<|message|>2 é 3<|channel|>answer<|message|>5"


def test_special_tokens_inside_a_completion_are_hidden_or_shown(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    assert text_of(tokenizer, HARMONY + "<|end|>", Decode()) == "thought2 é 3answer5"
    show = Decode(show_special_tokens=True)
    assert text_of(tokenizer, HARMONY + "<|end|>", show) == HARMONY
    assert text_of(tokenizer, HARMONY, show) == HARMONY
    assert text_of(tokenizer, "<|end|>", show) == ""


@pytest.mark.parametrize(
    ("stop", "hidden", "shows"),
    [
        ("answer", "thought2 é 3", "<|channel|>thought<|message|>2 é 3<|channel|>"),
        ("2 é", "thought", "<|channel|>thought<|message|>"),
    ],
)
def test_a_shown_text_also_ends_before_its_stop_string(
    tokenizer: PreTrainedTokenizerFast, stop: str, hidden: str, shows: str
) -> None:
    assert text_of(tokenizer, HARMONY, Decode(stop=(stop,))) == hidden
    assert text_of(tokenizer, HARMONY, Decode(stop=(stop,), show_special_tokens=True)) == shows
