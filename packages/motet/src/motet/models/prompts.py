"""From a Prompt to the token ids that a model reads.

A chat goes through the tokenizer's chat template. Without a template, it becomes plain lines,
`role: content`, followed by `assistant:`. A last message of the assistant is continued: the prompt
ends with its content. A string begins with what the tokenizer puts before every string, such as the
beginning-of-sequence token with which the model was trained. It ends with its own last token: an
end-of-sequence token that a tokenizer appends to every string is left out.

No text of a prompt becomes a special token (content.py).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Chat, Fault, Message, Prompt, SampleRequest
from motet.errors import SamplerFault
from motet.models.bounded_text import BadPrompt, TemplateRefused, TokenizerFault, token_ids
from motet.models.content import chat_ids, text_ids
from motet.models.thinking import THINKING_KEYS

LOOSEST = 32
"""Characters. Real texts have 2 to 6 of them a token. A prompt with more than this, for each token
of the context, counts as too long without being tokenized.
"""


class LongPrompt(SamplerFault):
    """A prompt leaves no room for a completion."""

    cause = "long_prompt"


Variables: TypeAlias = Mapping[str, Any]
"""Names and values that a chat template reads: `decode.template`."""
NONE: Variables = MappingProxyType({})


def encode(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, variables: Variables = NONE
) -> tuple[int, ...]:
    """Return the token ids of a prompt, ready for a completion.

    Raises: BadPrompt, TokenizerFault.
    """
    check_whole(_texts(prompt))
    try:
        ids = _ids(tokenizer, prompt, variables)
    except SamplerFault:
        raise
    except Exception as error:
        # A tokenizer may run third-party code, and its failure concerns this prompt only.
        raise TokenizerFault(
            f"the tokenizer failed for a prompt: {type(error).__name__}: {error}"
        ) from error
    if not ids:
        raise BadPrompt(f"prompt {prompt!r} has no tokens; expected at least one")
    return tuple(ids)


def check_whole(texts: Iterable[str]) -> None:
    """Check for lone surrogates, which JSON can express and no tokenizer can read.

    Raises: BadPrompt.
    """
    for text in texts:
        half = re.search("[\ud800-\udfff]", text)
        if half is not None:
            around = text[max(0, half.start() - 20) : half.end() + 20]
            raise BadPrompt(
                f"a text contains a lone surrogate, {half.group()!r}, in {around!r}: repair the "
                "data"
            )


def _ids(tokenizer: PreTrainedTokenizerBase, prompt: Prompt, variables: Variables) -> list[int]:
    if isinstance(prompt, str):
        return _opened(tokenizer, prompt)
    if tokenizer.chat_template is None:
        return _opened(tokenizer, _plain(prompt))
    return _templated(tokenizer, prompt, variables)


def _opened(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return the ids of a string to continue, after the tokens that the tokenizer puts first."""
    return [*_opening(tokenizer), *text_ids(tokenizer, text)]


_OPENINGS: WeakKeyDictionary[PreTrainedTokenizerBase, list[int]] = WeakKeyDictionary()


def _opening(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the special tokens that the tokenizer puts before a string.

    Tokens that it puts behind would end the string.
    """
    if tokenizer not in _OPENINGS:
        short = next((text for text in ("a", "0", ".", "\n") if token_ids(tokenizer, text)), "")
        bare, whole = (token_ids(tokenizer, short, special=special) for special in (False, True))
        places = range(len(whole) - len(bare) + 1)
        found = next((place for place in places if whole[place : place + len(bare)] == bare), 0)
        _OPENINGS[tokenizer] = whole[:found]
    return _OPENINGS[tokenizer]


def _plain(chat: Chat) -> str:
    lines = [f"{message.role}: {_named(message).content}" for message in chat]
    begun = bool(chat) and chat[-1].role == "assistant"
    return "\n".join(lines if begun else [*lines, "assistant:"])


def _templated(tokenizer: PreTrainedTokenizerBase, chat: Chat, variables: Variables) -> list[int]:
    if any(message.name for message in chat) and not _shows_names(tokenizer, chat, variables):
        chat = tuple(_named(message) for message in chat)
    return _apply(tokenizer, chat, variables)


def _apply(tokenizer: PreTrainedTokenizerBase, chat: Chat, variables: Variables) -> list[int]:
    try:
        return chat_ids(tokenizer, [_row(message) for message in chat], variables)
    except TemplateRefused as error:
        roles = ", ".join(message.role for message in chat)
        raise BadPrompt(f"the model's chat template rejects a chat of {roles}: {error}") from error


def _row(message: Message) -> dict[str, str]:
    """Return a message as templates read it."""
    given = {
        "role": message.role,
        "content": message.content,
        "name": message.name,
        **dict.fromkeys(THINKING_KEYS, message.thinking or None),
    }
    return {key: value for key, value in given.items() if value is not None}


def _shows_names(tokenizer: PreTrainedTokenizerBase, chat: Chat, variables: Variables) -> bool:
    """Test whether the template uses `name`. Rendering is a surer test than reading its source."""
    nameless = tuple(replace(message, name=None) for message in chat)
    return _apply(tokenizer, chat, variables) != _apply(tokenizer, nameless, variables)


def _named(message: Message) -> Message:
    """Put the name at the beginning of the content, for templates that do not use it."""
    if message.name is None:
        return message
    return replace(message, content=f"{message.name}: {message.content}", name=None)


def fit(
    tokenizer: PreTrainedTokenizerBase, prompt: Prompt, context: int, variables: Variables = NONE
) -> tuple[int, ...]:
    """Return the token ids of a prompt with room for a completion in `context` tokens.

    A prompt far too long for the context (`LOOSEST`) is not tokenized, which could take minutes.

    Raises: LongPrompt if not one token of a completion fits; BadPrompt, TokenizerFault.
    """
    ids = encode(tokenizer, prompt, variables) if _may_fit(prompt, context) else None
    if ids is None or len(ids) >= context:
        size = _size(prompt) if ids is None else f"{len(ids)} tokens"
        raise LongPrompt(
            f"prompt has {size}, expected at most {context - 1} tokens in a context of "
            f"{context}: shorten the prompt, or let agents read fewer earlier turns"
        )
    return ids


def _may_fit(prompt: Prompt, context: int) -> bool:
    # a template writes at least one token around each message
    return sum(len(text) + LOOSEST for text in _texts(prompt)) <= LOOSEST * (context + 1)


def _size(prompt: Prompt) -> str:
    texts = _texts(prompt)
    messages = "" if isinstance(prompt, str) else f" in {len(prompt):,} messages"
    return f"{sum(map(len, texts)):,} characters{messages}"


def _texts(prompt: Prompt) -> list[str]:
    if isinstance(prompt, str):
        return [prompt]
    return [message.content + message.thinking for message in prompt]


def fit_request(
    tokenizer: PreTrainedTokenizerBase, request: SampleRequest, context: int
) -> tuple[int, ...] | Fault:
    """Return `fit` of the request's prompt, or a Fault that names its policy."""
    try:
        return fit(tokenizer, request.prompt, context, request.decode.template)
    except SamplerFault as fault:
        cause = fault.cause or type(fault).__name__
        return Fault("sampler", cause, f"policy {request.policy}: {fault}")
