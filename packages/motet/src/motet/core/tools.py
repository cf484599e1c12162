"""Tools that an agent may call: what it is told of them, its calls, and which arguments fit.

The schemas of arguments are those of JSON Schema. Only the keywords that describe the arguments of
functions are read (`fits`). No pattern and no reference is followed: a schema may be a stranger's,
as that of an MCP server.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names that tools may have: those of OpenAI's API, which all chat templates can write."""
MOST_CALLS = 16
"""Calls of one reply."""
DEEPEST = 32
"""Levels of lists and mappings in arguments and schemas."""
_LONGEST_INTEGER = 1024
"""Bits. Python writes no integer of more than 4300 digits."""


@dataclass(frozen=True)
class ToolSchema:
    """What a model is told of a tool."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(hash=False)
    """The JSON schema of its arguments, which is one of an object."""

    @property
    def function(self) -> dict[str, Any]:
        """It as OpenAI's API and chat templates have it."""
        said = {
            "name": self.name, "description": self.description, "parameters": dict(self.parameters),
        }  # fmt: skip
        return {"type": "function", "function": said}


@dataclass(frozen=True)
class ToolCall:
    """One call of an assistant."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Plain JSON values by their names."""
    id: str = ""
    """What the result names, so that each belongs to its call. Empty: results come in order."""

    def __str__(self) -> str:
        """Return it as people read it: add(a=3, b=4)."""
        said = (f"{key}={_json(value)}" for key, value in self.arguments.items())
        return f"{self.name}({', '.join(said)})"

    def row(self, *, as_text: bool) -> dict[str, Any]:
        """Return it as OpenAI's API and chat templates have it. `as_text`: with its arguments as a
        JSON text."""
        arguments = _json(dict(self.arguments)) if as_text else dict(self.arguments)
        return {
            "type": "function",
            "id": self.id,
            "function": {"name": self.name, "arguments": arguments},
        }

    @property
    def written(self) -> str:
        """How a model without a form of its own writes it, for demonstrations."""
        said = {"name": self.name, "arguments": dict(self.arguments)}
        return f"<tool_call>\n{_json(said)}\n</tool_call>"


class Tool(Protocol):
    """Something that an agent may call: an object with a name, a description, the JSON schema of
    its arguments, and a method `__call__(**arguments)`, which may be async.

    `motet.tool` makes one of a function. A tool may be called several times with equal arguments,
    as in a tree or after a retry.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def __call__(self) -> Callable[..., Any]: ...


def schema_of(tool: Tool) -> ToolSchema:
    """Return what a model is told of a tool."""
    return ToolSchema(tool.name, tool.description, tool.parameters)


def wrong_tool(tool: Any) -> str:
    """Return what is wrong with an object that should be a tool; empty if nothing is."""
    missing = [
        key for key in ("name", "description", "parameters") if getattr(tool, key, None) is None
    ]
    if missing or not callable(tool):
        lacks = ", ".join(missing) or "__call__"
        return (
            f"an object of type {type(tool).__name__} without {lacks}; expected a function, or an "
            "object with name, description, parameters (a JSON schema) and __call__"
        )
    if not isinstance(tool.name, str) or not NAME.fullmatch(tool.name):
        return f"the name {tool.name!r}; expected up to 64 letters, digits, _ and -"
    if not isinstance(tool.description, str):
        return f"a description of type {type(tool.description).__name__}; expected a string"
    return wrong_schema(tool.parameters)


def wrong_schema(schema: Any) -> str:
    """Return what is wrong with the JSON schema of arguments; empty if nothing is."""
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        return f"parameters {_short(schema)}; expected a JSON schema of an object"
    if not isinstance(schema.get("properties", {}), Mapping):
        return f"properties {_short(schema['properties'])}; expected a mapping"
    why = not_plain(schema)
    return f"a schema with {why}; expected plain JSON values" if why else ""


# ------------------------------------------------------------------------------------- plain values


def not_plain(value: Any, depth: int = DEEPEST) -> str:
    """Return why a value is no plain JSON that can be recorded and shown to a model, or nothing.

    NaN, infinities, lone surrogates and deep nesting are refused: `json.loads` lets them pass.
    """
    if value is None or isinstance(value, bool):
        return ""
    if isinstance(value, int):
        return "" if value.bit_length() <= _LONGEST_INTEGER else "an integer of hundreds of digits"
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"the number {value}"
    if isinstance(value, str):
        return "a lone surrogate" if re.search("[\ud800-\udfff]", value) else ""
    if depth == 0:
        return f"values nested deeper than {DEEPEST} levels"
    inner: Iterable[Any]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            return "a key that is no string"
        inner = (*value.keys(), *value.values())
    elif isinstance(value, list | tuple):
        inner = value
    else:
        return f"a value of type {type(value).__name__}"
    return next((why for one in inner if (why := not_plain(one, depth - 1))), "")


def call_of(name: Any, arguments: Any, id: str = "") -> ToolCall | str:
    """Return a call, or what is wrong with it. `arguments` may be a JSON text."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as error:
            return f"its arguments are no JSON: {error}"
    arguments = {} if arguments is None else arguments
    if not isinstance(name, str) or not name:
        return f"its name is {_short(name)}; expected that of a tool"
    if not isinstance(arguments, Mapping):
        return f"its arguments are {_short(arguments)}; expected an object of names and values"
    why = not_plain(arguments) or not_plain(name)
    return f"it has {why}" if why else ToolCall(name, dict(arguments), id)


# ---------------------------------------------------------------------------- arguments and schema


def misfit(call: ToolCall, tools: Sequence[ToolSchema]) -> str:
    """Return why a call cannot be made, in words for the model; empty if it can."""
    tool = next((one for one in tools if one.name == call.name), None)
    if tool is None:
        known = ", ".join(one.name for one in tools) or "none"
        return f"there is no tool {_short(call.name)}; tools are {known}"
    return fits(dict(call.arguments), tool.parameters, "the arguments")


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list | tuple),
    "object": lambda value: isinstance(value, Mapping),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool))
        or (isinstance(value, float) and value.is_integer())
    ),
}
_BOUNDS: Sequence[tuple[str, str, Callable[[Any, Any], bool]]] = (
    ("minimum", "at least", lambda value, bound: value >= bound),
    ("maximum", "at most", lambda value, bound: value <= bound),
    ("exclusiveMinimum", "more than", lambda value, bound: value > bound),
    ("exclusiveMaximum", "less than", lambda value, bound: value < bound),
)


def fits(value: Any, schema: Any, where: str) -> str:
    """Return how a value misses its JSON schema, or nothing. `where` names the value.

    Unknown keywords and those of a wrong type are passed over: the tool itself has the last word.
    """
    if not isinstance(schema, Mapping) or (value is None and schema.get("nullable") is True):
        return ""
    named = schema.get("type")
    types = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    if types and not any(_TYPES[one](value) for one in types if one in _TYPES):
        return f"{where} must be of type {' or '.join(map(str, types))}, got {_short(value)}"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"{where} must be one of {_short(choices)}, got {_short(value)}"
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            said = [fits(value, option, where) for option in options]
            if all(said):
                return said[0]
    if _TYPES["number"](value):
        return _bounded(value, schema, where)
    if isinstance(value, Mapping):
        return _object(value, schema, where)
    if isinstance(value, list | tuple) and "items" in schema:
        each = (fits(one, schema["items"], f"{where}[{n}]") for n, one in enumerate(value))
        return next(filter(None, each), "")
    return ""


def _bounded(value: float, schema: Mapping[str, Any], where: str) -> str:
    for key, words, holds in _BOUNDS:
        bound = schema.get(key)
        if _TYPES["number"](bound) and not holds(value, bound):
            return f"{where} must be {words} {bound}, got {_short(value)}"
    return ""


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> str:
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            return f"{where} lack {name!r}; expected {_short(list(known))}"
    other = schema.get("additionalProperties")
    for name, one in value.items():
        if name not in known and other is False:
            return f"{where} have {_short(name)}; expected only {_short(list(known))}"
        said = fits(one, known.get(name, other), f"argument {_short(name)}")
        if said:
            return said
    return ""


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:160]} ... {text[-30:]}"
