"""What ends a completion: read off templates in use, given in a config, and stop strings."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from transformers import GenerationConfig, PreTrainedTokenizerFast

from motet.core import Message
from motet.errors import ConfigError
from motet.models.completions import (
    CompletionEnds,
    completion_ends,
    stop_ids,
    turn_end,
)
from motet.models.tiny import byte_level_bpe
from motet.settings import Decode
from tests.fixtures.messages import facts

SPECIALS = ("<pad>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<end_of_turn>", "<|user|>",
            "<|eom|>", "<|eot|>")  # fmt: skip


def tokenizer(template: str | None, specials: Sequence[str] = SPECIALS) -> PreTrainedTokenizerFast:
    raw = byte_level_bpe(["assistant user"], 300, special_tokens=tuple(specials))
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<|endoftext|>"
    )
    made.chat_template = template
    return made


def turns(end: str, last: str | None = None, head: str = "<|im_start|>' + m.role + '\n") -> str:
    """Return a template whose turns end with `end`, and the last one with `last`."""
    last = end if last is None else last
    return (
        "{% for m in messages %}{{ '" + head + "' + m.content }}"
        "{% if loop.last and not add_generation_prompt %}{{ '" + last + "' }}"
        "{% else %}{{ '" + end + "' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )


def channels(end: str) -> str:
    """Return a template with a channel for thinking before the answer; `end` ends a turn."""
    return (
        "{% for m in messages %}<|im_start|>{{ m.role }}{% if m.reasoning_content %}"
        "{{ m.reasoning_content }}<|eom|>{% endif %}{{ m.content }}" + end + "{% endfor %}"
    )


PLAIN = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
ENDS = {
    "ChatML": (turns("<|im_end|>\n"), ("<|im_end|>",), ()),
    "Gemma trims the content": (
        turns("<end_of_turn>\n").replace("m.content", "(m.content | trim)"),
        ("<end_of_turn>",),
        (),
    ),
    "end of sequence": (turns("<|endoftext|>"), ("<|endoftext|>",), ()),
    "two tokens": (turns("<|eom|><|eot|>\n"), ("<|eom|>",), ()),
    "white space before the token": (turns("\n<|im_end|>\n"), ("<|im_end|>",), ()),
    "the last turn stays open": (turns("<|im_end|>\n", last=""), ("<|im_end|>",), ()),
    "the next turn begins with a token": (
        turns("", head="<|user|>' + m.role + '\n"),
        ("<|user|>",),
        (),
    ),
    "another token ends earlier turns": (
        turns("<|im_end|>\n", last="<|endoftext|>"),
        ("<|endoftext|>", "<|im_end|>"),
        (),
    ),
    "a token ends the thinking, too": (channels("<|eom|>"), ("<|im_start|>",), ()),
    "a token ends the thinking and the answer": (channels("<|eom|>!<|eot|>"), ("<|eot|>",), ()),
    "plain text": (turns("</answer>\n"), (), ("</answer>",)),
    "plain text before a token": (turns("[/ANS]<|im_end|>\n"), ("<|im_end|>",), ("[/ANS]",)),
    "a quotation mark": (turns('"\n'), (), ()),
    "lines": (PLAIN, (), ()),
    "lines that always ask for an answer": (PLAIN + "assistant:", (), ()),
    "a template that refuses every chat": ("{{ raise_exception('no') }}{{ messages }}", (), ()),
    "a template that drops answers": ("{{ messages[0].content }}<|im_end|>", (), ()),
    "none": (None, (), ()),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_a_turn_is_read_off_the_template(name: str) -> None:
    template, tokens, texts = ENDS[name]
    words = tokenizer(template)
    found = turn_end(words)
    assert words.convert_ids_to_tokens(list(found.turn)) == list(tokens)
    assert found.turn_text == texts


def test_an_end_that_is_no_token_of_this_tokenizer_is_a_string() -> None:
    words = tokenizer(turns("<|im_end|>\n"), specials=("<pad>", "<|endoftext|>", "<|im_start|>"))
    found = turn_end(words)
    assert found == CompletionEnds(turn_text=("<|im_end|>",))
    chat, asked = (Message("user", "hi"),), Decode(stop=("x",))
    assert found.decode_of(asked, chat).stop == ("x", "<|im_end|>")
    assert found.decode_of(asked, "raw") is asked
    assert CompletionEnds(turn=(3,)).decode_of(asked, chat) is asked


def test_a_completion_ends_at_all_tokens_that_anybody_names() -> None:
    words = tokenizer(turns("<|im_end|>\n"))
    generation = GenerationConfig(eos_token_id=[5, 6])
    found = completion_ends("m", generation, words, ["<|user|>", "Q", 7, "<|user|>"])
    q = words.convert_tokens_to_ids("Q")
    assert found == CompletionEnds(eos=(1, 5, 6), added=(5, q, 7), turn=(3,))
    assert found.ids == tuple(sorted((1, 3, 5, 6, 7, q)))


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("never", "'never' … no single token … model 'm' … 'n', 'e', … decode"),
        (10_000, "token 10000 … model 'm' … tokens"),
    ],
)
def test_an_end_token_that_is_none_is_refused(wanted: str | int, said: str) -> None:
    with pytest.raises(ConfigError, match=facts(f"end_tokens … {said}")):
        completion_ends("m", None, tokenizer(None), [wanted])


def test_the_special_tokens_that_stop_strings_are_or_contain_end_a_completion() -> None:
    words = tokenizer(None)
    assert stop_ids(words, ("<|im_end|>", "\n", "<|im_end|>\n", "<|im", "<pad>")) == (3, 0)
    assert stop_ids(words, ("x<|user|>",)) == (5,)


def test_saved_tokenizers_have_the_same_end(tmp_path: Path) -> None:
    words = tokenizer(turns("<|im_end|>\n"))
    words.save_pretrained(tmp_path)
    again = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert turn_end(again) == turn_end(words) == CompletionEnds(turn=(3,))
