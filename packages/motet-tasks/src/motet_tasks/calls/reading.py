"""Function calls, read from an answer: Python, JSON, or calls between prose.

get_weather(city="Oslo", days=2)
{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}
"""

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from keyword import iskeyword
from typing import Any

from codejudge.source import parse_bounded
from motet_tasks.rewards.spoken import spoken

_FENCED = re.compile(r"```(?:\w+(?=\s*\n)|(?:json|python|text)\b)?(.*?)(?:```|\Z)", re.DOTALL)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}
"""JSON's words for values, in calls that are otherwise Python."""
_MOST_CHARACTERS = 100_000
"""Characters of an answer that are read. Calls take a few hundred."""
_MOST_CALLS = 200
"""Calls of an answer that are read. A request needs a few."""
_MOST_ENDS, _LONGEST = 10, 4000
"""Closing brackets at which a call between prose is tried to end, and its most characters."""
_MOST_OPENINGS = 200
"""Opening brackets that begin no JSON value, after which no more are tried."""
_OPENINGS, _DECODER = re.compile(r"[\[{]"), json.JSONDecoder()
_MARK = "_of_python"
_DEEPEST = 20
"""Levels of nested lists and objects that are compared."""
_CANNOT_READ = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)


@dataclass(frozen=True)
class FunctionCall:
    """A call with named arguments."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, Any]:
        """Equal for calls that differ only in case, whitespace, quotes and order of arguments."""
        return self.name, canonical(self.arguments)

    def __str__(self) -> str:
        """Return it as `read_calls` reads it: in Python, or in JSON if a name is no identifier."""
        named = [f"{name}={value!r}" for name, value in self.arguments.items()]
        text = f"{self.name}({', '.join(named)})"
        if _in_python(text, {}) == [self]:
            return text
        return json.dumps({"name": self.name, "arguments": self.arguments})


def canonical(value: Any, depth: int = 0) -> Any:
    """Return the hashable form in which values are compared. What is nested too deeply is equal."""
    if depth > _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        pairs = ((str(key), canonical(item, depth + 1)) for key, item in value.items())
        return tuple(sorted(pairs, key=lambda pair: pair[0]))
    if isinstance(value, list | tuple):
        return tuple(canonical(item, depth + 1) for item in value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return " ".join(str(value).strip().strip("\"'").split()).lower()


def unique(calls: Iterable[FunctionCall]) -> list[FunctionCall]:
    """Return the first of equal calls each, in their order."""
    found: dict[tuple[str, Any], FunctionCall] = {}
    for call in calls:
        found.setdefault(call.key, call)
    return list(found.values())


def parameters_of(functions: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the parameters of each function, the required ones first: the order of arguments
    without a name."""
    found = {}
    for function in functions:
        schema = function.get("parameters") or {}
        names = [*(schema.get("required") or ()), *(schema.get("properties") or ())]
        found[str(function.get("name", ""))] = list(dict.fromkeys(names))
    return found


def read_calls(text: str, functions: Sequence[Mapping[str, Any]]) -> list[FunctionCall]:
    """Return the calls of an answer, in their order; none if it has no call that can be read.

    The answer as a whole is read as Python. If it is none, the JSON values in it are read, except
    those in a call of a known function; if they hold no call, calls of the known functions are
    looked for.

    Args:
        functions: the schemas of the known functions (`name` and `parameters`).
    """
    said = spoken(text)[:_MOST_CHARACTERS].strip()
    if "```" in said:
        said = "\n".join(block.strip() for block in _FENCED.findall(said))
    parameters = parameters_of(functions)
    try:
        found = _in_python(said, parameters)
        if not found:
            in_prose = list(_in_prose(said, parameters))
            found = _in_json(said, [(start, end) for start, end, _ in in_prose], parameters)
            found = found or [call for _, _, calls in in_prose for call in calls]
    except _CANNOT_READ:  # nested too deeply for Python to walk
        return []
    return found[:_MOST_CALLS]


# ------------------------------------------------------------------------------------------ Python


def _in_python(text: str, parameters: Mapping[str, Sequence[str]]) -> list[FunctionCall]:
    """Return the calls that are statements of their own, or assigned by one, also as items of a
    list."""
    tree = parse_bounded(text)
    if tree is None and (other := _without_keywords(text, parameters)) != text:
        tree = parse_bounded(other)
    found = []
    for statement in [] if tree is None else tree.body:
        value = (
            statement.value
            if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign)
            else None
        )
        for item in value.elts if isinstance(value, ast.List | ast.Tuple) else [value]:
            found += _calls_of(item, parameters)
    return found


def _without_keywords(text: str, parameters: Mapping[str, Sequence[str]]) -> str:
    """Return a text in which names of parameters that are words of Python, as in
    `convert(from="USD")`, have a mark at their end."""
    reserved = {name for names in parameters.values() for name in names if iskeyword(name)}
    for name in sorted(reserved):
        text = re.sub(rf"\b{name}(?=\s*=(?!=))", name + _MARK, text)
    return text


def _calls_of(node: ast.expr | None, parameters: Mapping[str, Sequence[str]]) -> list[FunctionCall]:
    """Return the call of an expression. Around calls of known functions, as in
    `print(get_weather("Oslo"))`, another one does not count, and `print` never does."""
    if isinstance(node, ast.Await):
        node = node.value
    if not isinstance(node, ast.Call):
        return []
    name = _dotted(node.func)
    if name not in parameters:
        inner = [*node.args, *(one.value for one in node.keywords)]
        within = [call for one in inner for call in _calls_of(one, parameters)]
        known = [call for call in within if call.name in parameters]
        if known or name is None or name == "print":
            return known
    assert name is not None
    names = parameters.get(name, ())
    arguments = {key: _value(item) for key, item in zip(names, node.args, strict=False)}
    named = {
        one.arg.removesuffix(_MARK): _value(one.value)
        for one in node.keywords
        if one.arg is not None
    }
    return [FunctionCall(name, {**arguments, **named})]


def _dotted(node: ast.expr) -> str | None:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner, attr=name):
            above = _dotted(inner)
            return None if above is None else f"{above}.{name}"
    return None


def _value(node: ast.expr) -> Any:
    """Return the value of a literal, and the text of anything else."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name.lower() in _WORDS:
            return _WORDS[name.lower()]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if None not in keys:
            named = zip(keys, values, strict=True)
            return {str(_value(key)): _value(item) for key, item in named if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand)
            if isinstance(value, int | float):
                return -value
    return ast.unparse(node)


# -------------------------------------------------------------------------------------------- JSON


def _in_json(
    text: str, calls: Sequence[tuple[int, int]], parameters: Mapping[str, Sequence[str]]
) -> list[FunctionCall]:
    """Return the calls of all JSON lists and objects of a text that are not inside `calls`, which
    are (start, end) in the text.

    After a bracket that begins no value, only known functions count: what follows may be inside a
    call that was cut off.
    """
    found: list[FunctionCall] = []
    end = failed = 0
    for opening in _OPENINGS.finditer(text):
        start = opening.start()
        if start < end or any(first <= start < last for first, last in calls):
            continue
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            failed += 1
            if failed == _MOST_OPENINGS:
                break
            continue
        found += (one for one in _calls_in(value) if not failed or one.name in parameters)
    return found


def _calls_in(value: Any) -> Iterator[FunctionCall]:
    if isinstance(value, list):
        for item in value:
            yield from _calls_in(item)
    if not isinstance(value, Mapping):
        return
    name = value.get("name", value.get("function"))
    if isinstance(name, Mapping):  # {"type": "function", "function": {"name": ...}}
        yield from _calls_in(name)
    elif name is not None:
        given = value.get("arguments", value.get("parameters"))
        yield FunctionCall(str(name), arguments_of(given))
    elif len(value) == 1:
        ((name, given),) = value.items()
        if isinstance(given, Mapping):
            yield FunctionCall(str(name), dict(given))


def arguments_of(given: Any) -> dict[str, Any]:
    """Return arguments that are an object, or the text of one. Anything else has none."""
    for read in (json.loads, ast.literal_eval) if isinstance(given, str) else ():
        try:
            found = read(given)
        except _CANNOT_READ:
            continue
        return dict(found) if isinstance(found, Mapping) else {}
    return dict(given) if isinstance(given, Mapping) else {}


# ------------------------------------------------------------------------------------------- prose


def _in_prose(
    text: str, parameters: Mapping[str, Sequence[str]]
) -> Iterator[tuple[int, int, list[FunctionCall]]]:
    """Yield the calls of known functions, wherever they are, with the start and the end of each."""
    names = sorted(filter(None, parameters), key=len, reverse=True)
    if not names:
        return
    begins = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, names))})\s*\(")
    end = 0
    for opening in islice(begins.finditer(text), _MOST_CALLS):
        if opening.start() >= end:
            calls, end = _call_at(text, opening.start(), opening.end(), parameters)
            if calls:
                yield opening.start(), end, calls


def _call_at(
    text: str, start: int, end: int, parameters: Mapping[str, Sequence[str]]
) -> tuple[list[FunctionCall], int]:
    """Return the call that begins at `start`, and where it ends; none, and `end`, if it never does.

    It ends at the first closing bracket that leaves a valid call, because a text in it may have
    brackets too.
    """
    closing = end
    for _ in range(_MOST_ENDS):
        closing = text.find(")", closing, start + _LONGEST) + 1
        if not closing:
            break
        if calls := _in_python(text[start:closing], parameters):
            return calls, closing
    return [], end
