"""From a Prompt to the token ids that a model reads.

A chat goes through the tokenizer's chat template. Without a template, it becomes plain lines,
`role: content`, followed by `assistant:`. A last message of the assistant is continued: the prompt
ends with its content. A string begins with what the tokenizer puts before every string, such as the
beginning-of-sequence token with which the model was trained. It ends with its own last token: an
end-of-sequence token that a tokenizer appends to every string is left out.

No text of a prompt becomes a special token (content.py).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Chat, Fault, Message, Prompt, SampleRequest
from motet.core.tools import ToolSchema
from motet.errors import SamplerFault
from motet.models.bounded_text import (
    BadPrompt,
    TemplateRefused,
    TokenizerFault,
    strings_in,
    token_ids,
)
from motet.models.content import chat_ids, text_ids
from motet.models.thinking import THINKING_KEYS
from motet.models.tool_forms import (
    call_rows,
    form_of,
    one_call_each,
    plain_chat,
    tools_of,
    without_system,
)

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
    tools = tools_of(prompt)
    if _has_tools(prompt) and not form_of(tokenizer).native:
        return _in_plain_form(tokenizer, prompt, variables)
    if tokenizer.chat_template is None:
        return _opened(tokenizer, _plain(prompt))
    return _templated(tokenizer, prompt, variables, tools)


def _in_plain_form(
    tokenizer: PreTrainedTokenizerBase, chat: Chat, variables: Variables
) -> list[int]:
    """Return the ids of a chat whose tools, calls and results are texts.

    Some templates know no system message: then the user tells of the tools.
    """
    plain = plain_chat(chat, tools_of(chat))
    if tokenizer.chat_template is None:
        return _opened(tokenizer, _plain(plain))
    try:
        return _templated(tokenizer, plain, variables, ())
    except BadPrompt:
        if chat[0].role == "system" or plain[0].role != "system":
            raise
        return _templated(tokenizer, without_system(plain), variables, ())


def _has_tools(chat: Chat) -> bool:
    return any(one.tools or one.calls or one.role == "tool" for one in chat)


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


def _templated(
    tokenizer: PreTrainedTokenizerBase,
    chat: Chat,
    variables: Variables,
    tools: Sequence[ToolSchema],
) -> list[int]:
    named = any(message.name and message.role != "tool" for message in chat)
    if named and not _shows_names(tokenizer, chat, variables, tools):
        chat = tuple(_named(message) for message in chat)
    return _apply(tokenizer, chat, variables, tools)


def _apply(
    tokenizer: PreTrainedTokenizerBase,
    chat: Chat,
    variables: Variables,
    tools: Sequence[ToolSchema],
) -> list[int]:
    as_text = form_of(tokenizer).as_text if _has_tools(chat) else False
    offered = [one.function for one in tools]
    refused: TemplateRefused | None = None
    for form in _forms(chat):
        try:
            return chat_ids(
                tokenizer, [_row(message, as_text) for message in form], variables, offered
            )
        except TemplateRefused as error:
            refused = refused or error
    roles = ", ".join(message.role for message in chat)
    raise BadPrompt(f"the model's chat template rejects a chat of {roles}: {refused}") from refused


def _forms(chat: Chat) -> Iterator[Chat]:
    """Yield a chat, and then forms of it for templates that refuse several calls in one message, or
    thinking and content before a call."""
    yield chat
    if any(message.calls for message in chat):
        yield one_call_each(chat)
        yield tuple(
            replace(one, thinking="") if one.calls and one.content else one
            for one in one_call_each(chat)
        )


def _row(message: Message, as_text: bool) -> dict[str, Any]:
    """Return a message as templates read it.

    `as_text`: whether they take the arguments of calls as a JSON text.
    """
    given = {
        "role": message.role,
        "content": message.content,
        "name": message.name,
        **dict.fromkeys(THINKING_KEYS, message.thinking or None),
        "tool_calls": call_rows(message.calls, as_text) or None,
        "tool_call_id": message.call_id or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _shows_names(
    tokenizer: PreTrainedTokenizerBase,
    chat: Chat,
    variables: Variables,
    tools: Sequence[ToolSchema],
) -> bool:
    """Test whether the template uses `name`. Rendering is a surer test than reading its source."""
    nameless = tuple(
        message if message.role == "tool" else replace(message, name=None) for message in chat
    )
    shown = _apply(tokenizer, chat, variables, tools)
    return shown != _apply(tokenizer, nameless, variables, tools)


def _named(message: Message) -> Message:
    """Put the name at the beginning of the content, for templates that do not use it."""
    if message.name is None or message.role == "tool":
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
            f"{context}: shorten the prompt, let agents read fewer earlier turns, or give an "
            "embedded model a larger context (models.NAME.embedded.context)"
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
    return [message.content + message.thinking + "".join(_of_tools(message)) for message in prompt]


def _of_tools(message: Message) -> Iterator[str]:
    for call in message.calls:
        yield from (call.name, *strings_in(call.arguments))
    for tool in message.tools:
        yield from strings_in(tool.function)


def fit_request(
    tokenizer: PreTrainedTokenizerBase, request: SampleRequest, context: int
) -> tuple[int, ...] | Fault:
    """Return `fit` of the request's prompt, or a Fault that names its policy."""
    try:
        return fit(tokenizer, request.prompt, context, request.decode.template)
    except SamplerFault as fault:
        cause = fault.cause or type(fault).__name__
        return Fault("sampler", cause, f"policy {request.policy}: {fault}")
