"""From the text of a completion to the calls in it, in each of the forms that models write.

    Hermes, Qwen         <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    Qwen3-Coder, Qwen3.5 <tool_call><function=NAME><parameter=KEY>...</parameter></function>...
    GLM 4.5              <tool_call>NAME<arg_key>KEY</arg_key><arg_value>...</arg_value></tool_call>
    Llama 3              {"name": ..., "parameters": {...}}, perhaps after <|python_tag|>
    Mistral              [TOOL_CALLS][{"name": ..., "arguments": {...}}]
                         [TOOL_CALLS]NAME[ARGS]{...}
    gpt-oss              <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}
    MiniMax M2           <minimax:tool_call><invoke name="NAME"><parameter name="KEY">...
    DeepSeek V3.2        <｜DSML｜function_calls><｜DSML｜invoke name="NAME">...
    Nemotron             <TOOLCALL>[{"name": ..., "arguments": {...}}]</TOOLCALL>
    LFM 2                <|tool_call_start|>[NAME(KEY='...')]<|tool_call_end|>
    OLMo 3               <function_calls>NAME(KEY="...")</function_calls>

All of them read a text with its special tokens. A form is a reader of such texts, and tool_forms.py
finds the one of a model. Patterns are not used where a text could make them slow.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.core.tools import MOST_CALLS, ToolCall, ToolSchema, call_of


@dataclass(frozen=True)
class Said:
    """A completion in its parts."""

    text: str
    """What it says besides its calls."""
    calls: tuple[ToolCall, ...] = ()
    problem: str = ""
    """Why a call in it cannot be read; then none of its calls is made."""
    thinking: str = ""
    """What the form itself marks as thought, as the channels of gpt-oss do."""


Read: TypeAlias = Callable[[str, Sequence[ToolSchema]], Said]
"""Reads a completion with its special tokens. The schemas tell the types of untyped arguments."""


def said_of(text: str, found: Sequence[ToolCall | str], thinking: str = "") -> Said:
    """Return a completion with its calls, or with what is wrong with the first broken one."""
    broken = next((one for one in found if isinstance(one, str)), "")
    if not broken and len(found) > MOST_CALLS:
        broken = f"it has {len(found)} calls; expected at most {MOST_CALLS}"
    calls = tuple(one for one in found if isinstance(one, ToolCall))
    return Said(text, () if broken else calls, broken, thinking)


# ------------------------------------------------------------------------------- between two tags


_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


def read_hermes(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read calls between tags, each a JSON object with a name and arguments."""
    outside, bodies = _between(text, _OPEN, _CLOSE)
    return said_of(outside, [_of_json(body, "arguments", "parameters") for body in bodies])


def read_xml(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read calls between tags, each a function with parameters as tags of their own.

    Some models leave out the outer tags.
    """
    outside, bodies = _between(text, _OPEN, _CLOSE)
    if not bodies:
        outside, functions = _between(text, "<function=", "</function>")
        bodies = [f"<function={one}</function>" for one in functions]
    return said_of(outside, [_of_xml(body, tools) for body in bodies])


def _of_xml(body: str, tools: Sequence[ToolSchema]) -> ToolCall | str:
    _, head, rest = body.partition("<function=")
    name, closed, rest = rest.partition(">")
    if not head or not closed:
        return "it has no <function=NAME>"
    properties = _properties(name.strip(), tools)
    arguments: dict[str, Any] = {}
    _, given = _between(rest.partition("</function>")[0], "<parameter=", "</parameter>")
    for one in given:
        key, closed, value = one.partition(">")
        if not closed:
            return "it has a <parameter= without an end"
        # The template puts the value between line breaks, which are no part of it.
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[key.strip()] = typed(value, properties.get(key.strip()))
    return call_of(name.strip(), arguments)


def read_glm(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read calls between tags, each a name with keys and values as tags of their own."""
    outside, bodies = _between(text, _OPEN, _CLOSE)
    return said_of(outside, [_of_keys(body, tools) for body in bodies])


def _of_keys(body: str, tools: Sequence[ToolSchema]) -> ToolCall | str:
    name = body.partition("<arg_key>")[0].strip()
    keys, values = (_between(body, f"<{tag}>", f"</{tag}>")[1] for tag in ("arg_key", "arg_value"))
    if len(keys) != len(values):
        return f"it has {len(keys)} <arg_key> and {len(values)} <arg_value>"
    properties = _properties(name, tools)
    given = zip(map(str.strip, keys), values, strict=True)
    return call_of(name, {key: typed(value, properties.get(key)) for key, value in given})


def _properties(name: str, tools: Sequence[ToolSchema]) -> Mapping[str, Any]:
    """Return the schemas of a tool's arguments, as far as there are any."""
    schema = next((one for one in tools if one.name == name), None)
    found = schema.parameters.get("properties") if schema is not None else None
    return found if isinstance(found, Mapping) else {}


def typed(text: str, schema: Any) -> Any:
    """Return the value of an argument that is written as plain text: itself if its schema takes a
    string, else what it is as JSON."""
    named = schema.get("type") if isinstance(schema, Mapping) else None
    types = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if "string" in types:
        return text
    spelt = {"True": "true", "False": "false", "None": "null"}.get(text.strip(), text)
    try:
        return json.loads(spelt)
    except (ValueError, RecursionError):
        return text


_INVOKES = (
    ("<minimax:tool_call>", "</minimax:tool_call>", ""),
    ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "｜DSML｜"),
)
"""Tags around calls, and what their inner tags begin with."""


def read_invoke(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read calls whose names and keys are attributes of tags."""
    for open_, close, mark in _INVOKES:
        outside, bodies = _between(text, open_, close)
        if bodies:
            found: list[ToolCall | str] = []
            for body in bodies:
                _, calls = _between(body, f"<{mark}invoke name=", f"</{mark}invoke>")
                found += [_of_invoke(one, mark, tools) for one in calls] or ["it has no <invoke"]
            return said_of(outside, found)
    return Said(text)


def _of_invoke(body: str, mark: str, tools: Sequence[ToolSchema]) -> ToolCall | str:
    quoted, closed, rest = body.partition(">")
    name = quoted.strip().strip("\"'")
    properties = _properties(name, tools)
    arguments: dict[str, Any] = {}
    _, given = _between(rest, f"<{mark}parameter name=", f"</{mark}parameter>")
    for one in given:
        attributes, marked, value = one.partition(">")
        key, _, more = attributes.strip().lstrip("\"'").replace("'", '"').partition('"')
        if not marked:
            return "it has a <parameter without an end"
        plain = 'string="true"' in more
        arguments[key] = value if plain else typed(value, properties.get(key))
    return call_of(name, arguments) if closed else "it has an <invoke without an end"


_LISTS = (("<TOOLCALL>", "</TOOLCALL>"), ("<tool_calls>", "</tool_calls>"))


def read_list(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read one JSON list of calls between tags."""
    for open_, close in _LISTS:
        outside, bodies = _between(text, open_, close)
        if bodies:
            found: list[ToolCall | str] = []
            for body in bodies:
                values = list(_values(body.strip(), ","))
                listed = values[0] if values and isinstance(values[0], list) else values
                found += [_of_value(one, "arguments", "parameters") for one in listed] or [
                    "it is no JSON"
                ]
            return said_of(outside, found)
    return Said(text)


# ------------------------------------------------------------------------------------ Python calls


_PYTHON = (("<|tool_call_start|>", "<|tool_call_end|>"), ("<function_calls>", "</function_calls>"))
_NAMES = {"true": True, "false": False, "null": None}


def read_python(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read calls that are written as those of Python functions, in a list or one on each line.
    Nothing of them is run."""
    for open_, close in _PYTHON:
        outside, bodies = _between(text, open_, close)
        if bodies:
            return said_of(outside, [call for body in bodies for call in _of_python(body)])
    return Said(text)


def _of_python(body: str) -> list[ToolCall | str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a backslash in a text is none of Motet's business
            lines = ast.parse(body.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        lines = []
    found: list[ToolCall | str] = []
    for line in lines:
        value = line.value if isinstance(line, ast.Expr) else line
        calls = value.elts if isinstance(value, ast.List) else [value]
        found += [_of_function(one) for one in calls]
    return found or ["it is no call of a function"]


def _of_function(node: ast.AST) -> ToolCall | str:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return "it is no call of a function"
    if node.args or any(given.arg is None for given in node.keywords):
        return "it has an argument without a name"
    try:
        name = ast.unparse(node.func)
        arguments = {str(given.arg): _literal(given.value) for given in node.keywords}
    except (ValueError, TypeError, RecursionError, MemoryError):
        return "its name or arguments are no plain values"
    return call_of(name, arguments)


class _JsonNames(ast.NodeTransformer):
    """Some templates write mappings as JSON: true, false and null."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(_NAMES[node.id]) if node.id in _NAMES else node


def _literal(node: ast.expr) -> Any:
    return ast.literal_eval(_JsonNames().visit(node))


# --------------------------------------------------------------------------------------- bare JSON


_PYTHON_TAG = "<|python_tag|>"


def read_llama(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read a text that is nothing but calls, or calls after <|python_tag|>; several are parted by
    semicolons."""
    before, tag, rest = text.partition(_PYTHON_TAG)
    body = (rest if tag else text).strip()
    values = list(_values(body, ";"))
    if not tag and not (
        values and all(isinstance(one, Mapping) and "name" in one for one in values)
    ):
        begun = body.startswith("{") and '"name"' in body and '"parameters"' in body
        return Said(text, (), "it is no JSON" if begun and not values else "")
    if not values:
        return said_of(before, ["it is no JSON"])
    return said_of(
        before if tag else "", [_of_value(one, "parameters", "arguments") for one in values]
    )


def _values(text: str, between: str) -> Iterator[Any]:
    """Yield the JSON values of a text; nothing if it is anything else."""
    found, place, decoder = [], 0, json.JSONDecoder()
    while place < len(text):
        try:
            value, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            return
        found.append(value)
        rest = text[place:].lstrip(f"{between} \n\t")
        place = len(text) - len(rest)
    yield from found


# ----------------------------------------------------------------------------------------- Mistral


_CALLS = "[TOOL_CALLS]"


def read_mistral(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read one list of calls behind [TOOL_CALLS], or one call behind each."""
    before, *parts = text.split(_CALLS)
    found: list[ToolCall | str] = []
    for part in parts:
        found += _of_part(part.strip())
    return said_of(before, found)


def _of_part(part: str) -> list[ToolCall | str]:
    if part.startswith(("[", "{")) and not part.startswith(("[ARGS]", "[CALL_ID]")):
        values = list(_values(part, "\0"))
        if len(values) != 1:
            return ["it is no JSON"]
        listed = values[0] if isinstance(values[0], list) else [values[0]]
        return [_of_value(one, "arguments", "parameters") for one in listed]
    head, marked, body = part.partition("[ARGS]")
    if not marked:
        place = part.find("{")
        if place < 0:
            return ["it has no arguments"]
        head, body = part[:place], part[place:]
    name, _, id = head.partition("[CALL_ID]")
    return [call_of(name.strip(), body.strip(), id.strip())]


# ----------------------------------------------------------------------------------------- gpt-oss


_START, _MESSAGE, _CHANNEL = "<|start|>", "<|message|>", "<|channel|>"
_ENDS = ("<|call|>", "<|end|>", "<|return|>")
_TO = re.compile(r"to=([^\s<]{1,200})")


def read_harmony(text: str, tools: Sequence[ToolSchema]) -> Said:
    """Read messages to functions; those of the channel `analysis` are thinking."""
    found: list[ToolCall | str] = []
    thoughts, answers = [], []
    begun = text.removeprefix(_START)
    if _MESSAGE not in begun:
        return Said(text)
    for segment in begun.split(_START):
        head, _, body = segment.partition(_MESSAGE)
        for end in _ENDS:
            body = body.partition(end)[0]
        to = _TO.search(head)
        if to is not None and to[1].startswith("functions."):
            found.append(call_of(to[1].removeprefix("functions."), body.strip()))
        elif f"{_CHANNEL}analysis" in head:
            thoughts.append(body)
        else:
            answers.append(body)
    return said_of("\n".join(answers), found, "\n".join(thoughts))


# ------------------------------------------------------------------------------------------- parts


def _between(text: str, start: str, end: str) -> tuple[str, list[str]]:
    """Return what stands outside of pairs of tags, and what inside each. The last may be open."""
    outside, bodies, place = [], [], 0
    while (found := text.find(start, place)) >= 0:
        outside.append(text[place:found])
        begin = found + len(start)
        stop = text.find(end, begin)
        bodies.append(text[begin : stop if stop >= 0 else len(text)])
        place = stop + len(end) if stop >= 0 else len(text)
    return "".join([*outside, text[place:]]).strip(), bodies


def _of_json(body: str, *keys: str) -> ToolCall | str:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        return f"it is no JSON: {error}"
    return _of_value(value, *keys)


def _of_value(value: Any, *keys: str) -> ToolCall | str:
    if not isinstance(value, Mapping):
        return "it is no JSON object with a name and arguments"
    inner = value.get("function")
    value = inner if isinstance(inner, Mapping) else value
    arguments = next((value[key] for key in keys if key in value), None)
    id = value.get("id", "")
    return call_of(value.get("name"), arguments, id if isinstance(id, str) else "")
