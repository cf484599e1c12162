"""How a model is told of tools and writes calls: in the form of its chat template, or as text.

A template is tried: it writes a call, and the readers of tool_calls.py read it. The first that gets
the same call has found the form. So nothing depends on the name of a model, and a form that cannot
be read back is not used. A tokenizer may bring a response template of transformers, which is read
in the limited process of bounded_text.py, because its patterns are a stranger's.

A model without a template, or whose template writes no calls that can be read back, gets the plain
form: the tools are described in the system message, calls are JSON between <tool_call> tags, and
results are messages of the user.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from motet.core import Chat, Message
from motet.core.tools import ToolCall, ToolSchema, call_of
from motet.errors import SamplerFault
from motet.models.bounded_text import chat_text, parsed_response
from motet.models.tool_calls import (
    Read,
    Said,
    read_glm,
    read_harmony,
    read_hermes,
    read_invoke,
    read_list,
    read_llama,
    read_mistral,
    read_python,
    read_xml,
    said_of,
)


@dataclass(frozen=True)
class ToolForm:
    """How one model reads and writes calls."""

    name: str
    read: Read
    native: bool = True
    """Whether the chat template shows tools, calls and results."""
    as_text: bool = False
    """Whether the template takes arguments as a JSON text."""
    whole: bool = False
    """Whether the reader also takes the thinking before an answer."""

    def said(self, text: str, tools: Sequence[ToolSchema]) -> Said:
        """Read a completion with its special tokens. It never fails for a text."""
        try:
            return self.read(text, tools)
        except SamplerFault as error:
            return Said(text, (), str(error))


PLAIN = ToolForm("plain", read_hermes, native=False)
_READERS: Mapping[str, ToolForm] = {
    "qwen_xml": ToolForm("qwen_xml", read_xml),
    "hermes": ToolForm("hermes", read_hermes),
    "glm": ToolForm("glm", read_glm),
    "gpt_oss": ToolForm("gpt_oss", read_harmony, whole=True),
    "mistral": ToolForm("mistral", read_mistral),
    "llama": ToolForm("llama", read_llama),
    "invoke": ToolForm("invoke", read_invoke),
    "list": ToolForm("list", read_list),
    "python": ToolForm("python", read_python),
}
CALL_ENDS = ("<|call|>", "<|eom_id|>")
"""Tokens with which gpt-oss and Llama 3 end a call, and not a turn."""

_TOOL = ToolSchema(
    "look_up",
    "Looks up a word.",
    {
        "type": "object",
        "properties": {
            "word": {"type": "string", "description": "The word."},
            "count": {"type": "integer", "description": "How many."},
        },
        "required": ["word", "count"],
    },
)
_CALL = ToolCall("look_up", {"word": "zqz1 zqz2", "count": 37}, "zqzcall01")
"""A call that no template writes itself. Mistral wants an id of nine letters and digits."""
_RESULT, _QUESTION = "zqz3", "zqz4"
_FORMS: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[object, ToolForm]] = WeakKeyDictionary()


def form_of(tokenizer: PreTrainedTokenizerBase) -> ToolForm:
    """Return the form of a model's calls. It is found once for each template."""
    template = tokenizer.chat_template
    version = (str(template), str(_response_template(tokenizer)))
    known = _FORMS.get(tokenizer)
    if known is None or known[0] != version:
        known = _FORMS[tokenizer] = (version, PLAIN if template is None else _tried(tokenizer))
    return known[1]


def call_ends(tokenizer: PreTrainedTokenizerBase) -> tuple[str, ...]:
    """Return the tokens that end a completion behind a call, but no turn."""
    template = str(tokenizer.chat_template)
    added = {one.content for one in tokenizer.added_tokens_decoder.values()}
    return tuple(one for one in CALL_ENDS if one in added and one in template)


def tools_of(prompt: Chat | str) -> tuple[ToolSchema, ...]:
    """Return the tools that a prompt offers, each name once."""
    if isinstance(prompt, str):
        return ()
    return tuple({one.name: one for message in prompt for one in message.tools}.values())


# ------------------------------------------------------------------------------------------- trials


def _tried(tokenizer: PreTrainedTokenizerBase) -> ToolForm:
    forms = [*_of_response_template(tokenizer), *_READERS.values()]
    for as_text in (False, True):
        written = _written(tokenizer, as_text)
        for form in forms if written else ():
            said = form.said(written, (_TOOL,))
            if [(one.name, one.arguments) for one in said.calls] == [(_CALL.name, _CALL.arguments)]:
                return replace(form, as_text=as_text)
    return PLAIN


def probe(as_text: bool) -> list[dict[str, Any]]:
    """Return a chat with a call and its result."""
    return [
        {"role": "user", "content": _QUESTION},
        {"role": "assistant", "content": "", "tool_calls": call_rows((_CALL,), as_text)},
        {"role": "tool", "content": _RESULT, "name": _CALL.name, "tool_call_id": _CALL.id},
    ]


def probe_text(tokenizer: PreTrainedTokenizerBase, *, as_text: bool) -> str:
    """Return what the template makes of a chat with a call; empty if it refuses that."""
    try:
        return chat_text(tokenizer, probe(as_text), tools=[_TOOL.function])
    except SamplerFault:
        return ""


def _written(tokenizer: PreTrainedTokenizerBase, as_text: bool) -> str:
    """Return what the template writes for a call, as a completion would be; empty if it does not
    show the tool, the call or its result."""
    rows, tools = probe(as_text), [_TOOL.function]
    whole = probe_text(tokenizer, as_text=as_text)
    if _TOOL.description not in whole or _RESULT not in whole:
        return ""
    try:
        asked = chat_text(tokenizer, rows[:1], tools=tools)
        said = chat_text(tokenizer, rows[:2], tools=tools, answer=False)
    except SamplerFault:
        return ""
    pairs = enumerate(zip(asked, said, strict=False))
    same = next((n for n, (one, other) in pairs if one != other), min(len(asked), len(said)))
    written = said[same:].rstrip()
    # A completion is read without the token that ended it.
    ends = {*map(str, tokenizer.all_special_tokens), *CALL_ENDS}
    while last := next((one for one in ends if one and written.endswith(one)), ""):
        written = written.removesuffix(last).rstrip()
    return written


# ------------------------------------------------------------------------ transformers' own parser


def _response_template(tokenizer: PreTrainedTokenizerBase) -> Mapping[str, Any] | None:
    """Return the tokenizer's response template, which versions of transformers before 5.2x do not
    read."""
    found = vars(tokenizer).get("response_template")
    return found if isinstance(found, Mapping) else None


def _of_response_template(tokenizer: PreTrainedTokenizerBase) -> Iterator[ToolForm]:
    template = _response_template(tokenizer)
    if template is not None:
        yield ToolForm("response_template", partial(_read_response, template), whole=True)


def _read_response(template: Mapping[str, Any], text: str, tools: Sequence[ToolSchema]) -> Said:
    message = parsed_response(template, text, [one.function for one in tools])
    calls = message.get("tool_calls") or []
    found = [_of_message(one) for one in calls] if isinstance(calls, list) else ["it is no list"]
    content, thinking = (
        next((message[key] for key in keys if isinstance(message.get(key), str)), "")
        for keys in (("content",), ("reasoning_content", "thinking", "reasoning"))
    )
    return said_of(content, found, thinking)


def _of_message(call: Any) -> ToolCall | str:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "it has no function"
    return call_of(function.get("name"), function.get("arguments"))


# ------------------------------------------------------------------------------------------ prompts


def call_rows(calls: Sequence[ToolCall], as_text: bool) -> list[dict[str, Any]]:
    """Return calls as templates read them. `as_text`: with arguments as a JSON text."""
    return [call.row(as_text=as_text) for call in calls]


def one_call_each(chat: Chat) -> Chat:
    """Return a chat with each call in a message of its own, before its result: for templates that
    refuse several."""
    found: list[Message] = []
    waiting: list[ToolCall] = []
    for message in chat:
        if message.role == "tool" and waiting:
            place = next((n for n, one in enumerate(waiting) if one.id == message.call_id), 0)
            found.append(Message("assistant", "", calls=(waiting.pop(place),)))
        if len(message.calls) > 1:
            waiting = list(message.calls)
            if message.content or message.thinking:
                found.append(replace(message, calls=()))
            continue
        found.append(message)
    return tuple(found)


INTRODUCTION = (
    'To call a tool, write <tool_call>{"name": NAME, "arguments": {...}}</tool_call> and stop. You '
    "then read its <tool_response>. Tools:"
)


def without_system(chat: Chat) -> Chat:
    """Return a chat whose system message is the beginning of the user's first one."""
    if len(chat) < 2 or (chat[0].role, chat[1].role) != ("system", "user"):
        return chat
    first = replace(chat[1], content=f"{chat[0].content}\n\n{chat[1].content}")
    return (first, *chat[2:])


def plain_chat(chat: Chat, tools: Sequence[ToolSchema]) -> Chat:
    """Return a chat without tools, calls and results, which are written in its texts."""
    found: list[Message] = []
    if tools:
        told = "\n".join(json.dumps(one.function["function"], ensure_ascii=False) for one in tools)
        first = chat[0] if chat and chat[0].role == "system" else Message("system", "")
        found.append(Message("system", f"{first.content}\n\n{INTRODUCTION}\n{told}".strip()))
        chat = chat[1:] if first is chat[0] else chat
    after_result = False
    for message in chat:
        if message.role == "tool":
            text = f"<tool_response>\n{message.content}\n</tool_response>"
            if after_result:
                text = f"{found.pop().content}\n{text}"
            found.append(Message("user", text))
        elif message.calls:
            calls = "\n".join(call.written for call in message.calls)
            text = f"{message.content}\n{calls}".strip()
            found.append(replace(message, content=text, calls=(), tools=()))
        else:
            found.append(replace(message, tools=()))
        after_result = message.role == "tool"
    return tuple(found)
