"""From sampled tokens to Completions, and what ends them: end tokens, the end of a turn in the chat
template, and stop strings.

A base model's tokenizer may name one end-of-sequence token, and its chat template may end turns
with another one. A completion ends at both. A template may also end turns with a string that is no
token; that string ends completions of chats.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from weakref import WeakKeyDictionary

from transformers.generation.configuration_utils import GenerationConfig
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Completion, Fault, Prompt
from motet.core.tools import ToolSchema
from motet.errors import ConfigError, SamplerFault, shortened
from motet.models.bounded_text import TokenizerFault, chat_text, token_ids
from motet.models.chat_template import tokenizer_with
from motet.models.loading import eos_of, stored_generation
from motet.models.thinking import (
    THINKING_KEYS,
    begins_to_think,
    thought_of,
    with_special,
)
from motet.models.tool_forms import call_ends, form_of, tools_of
from motet.settings import ChatTemplate, Decode

EndToken = str | int
"""A token of a tokenizer: as it is written in a text, or its number."""
_ANSWER, _NEXT, _THOUGHT = "motetanswer", "motetquestion", "motetthought"
"""Contents of messages that no template writes itself."""
_CHAT = ({"role": "user", "content": _NEXT}, {"role": "assistant", "content": _ANSWER})
_SHORTEST = 3
"""Least characters of a string that ends a turn: a shorter one, such as a quotation mark, would
also end completions in the middle."""


@dataclass(frozen=True)
class CompletionEnds:
    """What ends every completion of a model, besides its limit and the agent's stop strings."""

    eos: tuple[int, ...] = ()
    """The end-of-sequence tokens of the tokenizer and of the generation config."""
    added: tuple[int, ...] = ()
    """`models.NAME.end_tokens`."""
    turn: tuple[int, ...] = ()
    """The token with which the chat template ends a turn."""
    turn_text: tuple[str, ...] = ()
    """The string with which the chat template ends a turn, if it is no token."""
    calls: tuple[str, ...] = ()
    """The tokens that end a call and no turn. They end completions of chats that offer tools."""

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens that end a completion."""
        return tuple(sorted({*self.eos, *self.added, *self.turn}))

    def decode_of(self, decode: Decode, prompt: Prompt) -> Decode:
        """Return how a prompt is sampled: a chat also ends at `turn_text`, and with tools at
        `calls`."""
        more = () if isinstance(prompt, str) else self.turn_text
        more = (*more, *self.calls) if tools_of(prompt) else more
        if not more:
            return decode
        stops = dict.fromkeys((*decode.stop, *more))
        return decode.model_copy(update={"stop": tuple(stops)})


def completion_ends(
    source: str | Path,
    generation: GenerationConfig | None,
    tokenizer: PreTrainedTokenizerBase,
    added: Sequence[EndToken] = (),
) -> CompletionEnds:
    """Return what ends a completion of the model at `source`, whose tokenizer has its template.

    Raises: ConfigError if one of `added` is no token.
    """
    found = turn_end(tokenizer)
    return replace(
        found,
        eos=eos_of(generation, tokenizer),
        calls=call_ends(tokenizer),
        added=tuple(dict.fromkeys(_token(source, tokenizer, one) for one in added)),
    )


def ends_of(
    source: str | Path, template: ChatTemplate | None, added: Sequence[EndToken] = ()
) -> CompletionEnds:
    """Return what ends a completion of the model at `source`, which is not loaded.

    Args:
        template: what replaces or completes the model's own chat template.

    Raises: ConfigError.
    """
    tokenizer, _ = tokenizer_with(source, template)
    return completion_ends(source, stored_generation(source), tokenizer, added)


def _token(source: str | Path, tokenizer: PreTrainedTokenizerBase, wanted: EndToken) -> int:
    if isinstance(wanted, int):
        if not 0 <= wanted < len(tokenizer):
            raise ConfigError(
                f"end_tokens: got token {wanted} for model {str(source)!r}; expected one of the "
                f"{len(tokenizer):,} tokens of its tokenizer"
            )
        return wanted
    known = special_tokens(tokenizer).get(wanted)
    if known is not None:
        return known
    ids = token_ids(tokenizer, wanted)
    if len(ids) != 1 or ids[0] == tokenizer.unk_token_id:
        spelt = shortened(", ".join(map(repr, tokenizer.convert_ids_to_tokens(ids))))
        raise ConfigError(
            f"end_tokens: got {wanted!r}, which is no single token for model {str(source)!r} but "
            f"{spelt or 'nothing'}; expected a token, and a string of several tokens in decode.stop"
        )
    return ids[0]


# ------------------------------------------------------------------------------------ the template


def turn_end(tokenizer: PreTrainedTokenizerBase) -> CompletionEnds:
    """Read off the chat template how it ends a turn of the assistant.

    It may end the last turn with one token and earlier turns with another one: both end
    completions. A token that also stands between the thinking and the answer of one turn, such as
    the end of a channel, does not: completions would end before their answer.
    """
    if tokenizer.chat_template is None:
        return CompletionEnds()
    inside = _inside_a_turn(tokenizer)
    last, earlier = _after_answer(tokenizer, _CHAT), _before_next(tokenizer)
    # The next turn may also begin with a token, and nothing ends the one before it.
    starts = _tokens_in(tokenizer, earlier)[:1]
    found = [_first_outside(tokenizer, last, inside)]
    if starts and earlier.startswith(starts[0]):
        found.append(_first_outside(tokenizer, earlier, inside))
    turn = tuple(dict.fromkeys(special_tokens(tokenizer)[one] for one in found if one))
    tokens = _tokens_in(tokenizer, last)
    plain = (last.partition(tokens[0])[0] if tokens else last).strip()
    # A template that always ends with `assistant:` writes the next turn, not the end of one.
    ignores = len(plain) < _SHORTEST or last == _after_answer(tokenizer, _CHAT, answer=True)
    return CompletionEnds(turn=turn, turn_text=() if ignores else (plain,))


def hides_texts(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether the chat template renders a user's message without its text.

    It may expect a list of parts, as templates of models for images do.
    """
    if tokenizer.chat_template is None:
        return False
    text = _rendered(tokenizer, _CHAT[:1], answer=True)
    return text != "" and _NEXT not in text


def _closing(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the tokens between an answer and the token that ends its turn.

    They close the answer's channel, as in `answer<|close|>response<|end_of_msg|>`.
    """
    template = str(tokenizer.chat_template)
    if _CLOSINGS.get(tokenizer, ("",))[0] != template:
        last = _after_answer(tokenizer, _CHAT)
        end = _first_outside(tokenizer, last, _inside_a_turn(tokenizer))
        closes = end is not None and last.startswith(_tokens_in(tokenizer, last)[0])
        text = last.partition(end)[0] if end is not None and closes else ""
        _CLOSINGS[tokenizer] = template, tuple(token_ids(tokenizer, text)) if text else ()
    return _CLOSINGS[tokenizer][1]


_CLOSINGS: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[str, tuple[int, ...]]] = (
    WeakKeyDictionary()
)


def _before_next(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what the template writes between an answer and the next message."""
    whole = _after_answer(tokenizer, [*_CHAT, _CHAT[0]])
    return whole.partition(_NEXT)[0].strip()


def _inside_a_turn(tokenizer: PreTrainedTokenizerBase) -> frozenset[str]:
    """Return the tokens that the template writes between the thinking and the answer of a turn."""
    thought = dict.fromkeys(THINKING_KEYS, _THOUGHT)
    text = _rendered(tokenizer, [_CHAT[0], {**_CHAT[1], **thought}])
    between = text.rpartition(_ANSWER)[0].rpartition(_THOUGHT)
    return frozenset(_tokens_in(tokenizer, between[2]) if between[1] else ())


def _after_answer(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, str]], *, answer: bool = False
) -> str:
    """Return what the template writes after the answer; empty if it does not render the chat."""
    text = _rendered(tokenizer, rows, answer=answer)
    return text.rpartition(_ANSWER)[2].strip() if _ANSWER in text else ""


def _rendered(
    tokenizer: PreTrainedTokenizerBase, rows: Sequence[Mapping[str, str]], *, answer: bool = False
) -> str:
    try:
        return chat_text(tokenizer, rows, answer=answer)
    except (SamplerFault, ValueError):
        # The first prompt of the run meets the same error, and says so.
        return ""


def _tokens_in(tokenizer: PreTrainedTokenizerBase, written: str) -> list[str]:
    """Return the added tokens in a text, in their order."""
    known = [one for one in special_tokens(tokenizer) if one in written]
    longest_first = sorted(known, key=len, reverse=True)
    return re.findall("|".join(map(re.escape, longest_first)), written) if known else []


def _first_outside(
    tokenizer: PreTrainedTokenizerBase, written: str, inside: Collection[str]
) -> str | None:
    """Return the first added token in a text that is none of `inside`."""
    return next((one for one in _tokens_in(tokenizer, written) if one not in inside), None)


# ------------------------------------------------------------------ stop strings of special tokens


def special_tokens(tokenizer: PreTrainedTokenizerBase) -> Mapping[str, int]:
    """Return the tokens that were added to the vocabulary, such as `<|im_end|>`, by their text."""
    if tokenizer not in _SPECIAL:
        _SPECIAL[tokenizer] = {
            token.content: number
            for number, token in tokenizer.added_tokens_decoder.items()
            if token.content.strip()
        }
    return _SPECIAL[tokenizer]


_SPECIAL: WeakKeyDictionary[PreTrainedTokenizerBase, dict[str, int]] = WeakKeyDictionary()


def stop_ids(tokenizer: PreTrainedTokenizerBase, stops: Sequence[str]) -> tuple[int, ...]:
    """Return the special tokens that the stop strings are or contain, which end a completion.

    A decoded text shows no special token, so `<|im_end|>\\n` ends a completion at `<|im_end|>`.
    """
    known = special_tokens(tokenizer)
    found = (known[text] for stop in stops for text in known if text in stop)
    return tuple(dict.fromkeys(found))


# ----------------------------------------------------------------------- from tokens to completions


NOT_FINITE = "not_finite"
"""The cause of the Fault of a row whose logits are not finite."""


def with_texts(
    tokenizer: PreTrainedTokenizerBase,
    sampled: Sequence[Completion],
    decodes: Sequence[Decode],
    prompts: Sequence[Sequence[int]],
    ends: Collection[int],
    tools: Sequence[Sequence[ToolSchema]] = (),
) -> list[Completion | Fault]:
    """Return completions that were just sampled, which have no text yet, with their texts.

    Each was sampled for the tokens in `prompts`, with the settings in `decodes`. `ends` are the
    tokens that end every completion. `tools` are those that each prompt offers: the calls of them
    are read, and are no part of the text. It is a Fault if a log-probability is not finite, or if
    the tokenizer cannot decode the tokens. The text ends before the token that ended it and before
    the first stop string. It shows special tokens only with `show_special_tokens`, and what was
    thought before it only with `thinking.shown`.
    """
    bodies = [
        _body(tokenizer, one, decode, ends) for one, decode in zip(sampled, decodes, strict=True)
    ]
    texts = texts_of(tokenizer, bodies)
    found: list[Completion | Fault] = []
    for one, decode, prompt, body, (text, error), offered in zip(
        sampled, decodes, prompts, bodies, texts, tools or [()] * len(sampled), strict=True
    ):
        fault = _fault(one, error)
        if fault is not None:
            found.append(fault)
            continue
        text, thinking = _parts(tokenizer, prompt, body, text, decode)
        read = replace(one, text=text, thinking=thinking)
        found.append(_with_calls(tokenizer, read, prompt, body, decode, offered))
    return found


def _with_calls(
    tokenizer: PreTrainedTokenizerBase,
    one: Completion,
    prompt: Sequence[int],
    body: Sequence[int],
    decode: Decode,
    tools: Sequence[ToolSchema],
) -> Completion:
    """Return a completion with the calls in its answer, if its prompt offers tools."""
    if not tools:
        return one
    form = form_of(tokenizer)
    raw = with_special(tokenizer, body)
    if decode.thinking is not None:
        thought = thought_of(tokenizer, prompt, body, decode.thinking)
        begins = begins_to_think(tokenizer, prompt, decode.thinking)
        begun = decode.thinking.start if begins else ""
        answer = thought.begun + with_special(tokenizer, body[thought.answer_from :])
        raw = begun + raw if form.whole else answer
    raw = _cut(raw, decode.stop)
    said = form.said(raw, tools)
    if said.problem:
        return replace(one, text=raw.strip(), unread=said.problem)
    if not said.calls:
        return one
    text = said.text if decode.show_special_tokens else _hidden(tokenizer, said.text)
    thinking = said.thinking or one.thinking
    return replace(one, text=text.strip(), calls=said.calls, thinking=thinking)


def _hidden(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """Return a text without the special tokens that are spelt in it."""
    for token in tokenizer.added_tokens_decoder.values():
        if token.special:
            text = text.replace(token.content, "")
    return text


def _parts(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[int],
    body: Sequence[int],
    text: str,
    decode: Decode,
) -> tuple[str, str]:
    """Return what others read of a completion, and what was thought before it.

    `text` is all of it without special tokens.
    """
    if decode.thinking is None:
        whole = with_special(tokenizer, body) if decode.show_special_tokens else text
        return _cut(whole, decode.stop), ""
    thought = thought_of(tokenizer, prompt, body, decode.thinking)
    rest = body[thought.answer_from :]
    shown = (
        with_special(tokenizer, rest)
        if decode.show_special_tokens
        else texts_of(tokenizer, [rest])[0][0]
    )
    answer = _cut((thought.begun + shown).lstrip(), decode.stop)
    if not decode.thinking.shown or not thought.thinking:
        return answer, thought.thinking
    before = with_special(tokenizer, body[: thought.answer_from]).removesuffix(thought.begun)
    space = "\n\n" if answer else ""
    return f"{before.strip()}{space}{answer}", thought.thinking


def _body(
    tokenizer: PreTrainedTokenizerBase, one: Completion, decode: Decode, ends: Collection[int]
) -> tuple[int, ...]:
    """Return the tokens before the end of one, which need not be a special token."""
    tokens = one.tokens or ()
    if one.stop == "length" or not tokens:
        return tokens
    if tokens[-1] not in ends and tokens[-1] not in stop_ids(tokenizer, decode.stop):
        return tokens
    closing = _closing(tokenizer)
    closed = bool(closing) and tokens[-1 - len(closing) : -1] == closing
    return tokens[: -1 - len(closing)] if closed else tokens[:-1]


def _fault(one: Completion, error: str) -> Fault | None:
    if not all(map(isfinite, one.logprobs or ())):
        message = (
            f"policy {one.policy}: the model's logits for this prompt, divided by the temperature "
            f"{one.temperature:g}, are not finite, so no token can be sampled: raise a temperature "
            "near 0, compute in float32, or lower the learning rate if other prompts fail too"
        )
        return Fault("sampler", NOT_FINITE, message)
    if error:
        message = f"policy {one.policy}: the tokenizer failed for an answer: {error}"
        return Fault("sampler", TokenizerFault.cause, message)
    return None


def texts_of(
    tokenizer: PreTrainedTokenizerBase, tokens: Sequence[Sequence[int]]
) -> list[tuple[str, str]]:
    """Decode each row: (text, ""), or ("", the error) if the tokenizer fails at it."""
    try:
        texts = tokenizer.batch_decode(
            [list(row) for row in tokens],
            skip_special_tokens=True,
            clean_up_tokenization_spaces=False,
        )
        return [(text, "") for text in texts]
    except Exception as error:  # noqa: BLE001 - a tokenizer may run any code
        if len(tokens) == 1:
            return [("", f"{type(error).__name__}: {error}")]
    return [text for row in tokens for text in texts_of(tokenizer, [row])]


def _cut(text: str, stops: Sequence[str]) -> str:
    """Return a text up to the first stop string."""
    found = [text.find(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text
