"""Read a config that is written in Python, as the published ones of MAPoRL. Nothing is executed.

The file is parsed. These parts of Python are read: literals, names that were assigned before,
dictionaries and their items, f-strings, simple arithmetic, comparisons, `if`, and lists made of
another list. `LoraConfig(r=8)` is the mapping {r: 8}. The result is the mapping `config`.

A value that only running the file could give, such as the time, is left out with a message.
"""

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.config.yaml import Document, KeyPath
from motet.errors import ConfigError, shortened
from motet.safety.reading import read_text
from motet.safety.visible import on_one_line

RECORDS = frozenset({"LoraConfig", "LoftQConfig", "dict"})
"""Calls with keywords only that are read as mappings."""
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_LONGEST = 10_000
"""Maximum length of a string."""
_LARGEST = 10**18
"""Maximum size of an integer."""
_MOST_VALUES = 10_000
"""Maximum number of values in one list or mapping, nested ones included."""


@dataclass(frozen=True)
class Computed:
    """A value that only running the file could give."""

    line: int
    source: str


@dataclass
class _Names:
    """The variables of a file: their values, and the lines that assigned them."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


def read_python_config(path: Path) -> Document:
    """Read the mapping `config` of a Python file, without running it.

    Raises: ConfigError in one line if the file is missing, is not Python, has a statement that
    Motet does not read, or defines no mapping `config`.
    """
    where = on_one_line(str(path))
    try:
        tree = ast.parse(read_text(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{where} does not exist; expected a config") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where} cannot be read: {error}; expected Python in UTF-8") from error
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ConfigError(f"{where} is not Python: {error}") from error
    names = _Names()
    try:
        _read_body(tree.body, names)
    except _Unread as error:
        raise ConfigError(f"{where}:{error}") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: is nested too deeply; expected a config") from error
    found = names.values.get("config")
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"{where}: expected a mapping config = {{...}} of keys and values")
    computed = {key: value for key, value in found.items() if isinstance(value, Computed)}
    kept = {key: value for key, value in found.items() if key not in computed}
    places: dict[KeyPath, str] = {(): where}
    for key in kept:
        line = names.lines[key] if key in names.lines else names.lines["config"]
        places[key,] = f"{where}:{line}"
    left_out = tuple(
        f"{where}:{value.line}: {key} is left out: {shortened(value.source, 60)} is computed, "
        "and the file is read, not run"
        for key, value in computed.items()
    )
    return Document(kept, places, left_out)


class _Unread(Exception):
    """A part of the file that is not read. Its text begins with the line."""

    def __init__(self, node: ast.AST, expected: str) -> None:
        source = shortened(" ".join(ast.unparse(node).split()), 60)
        super().__init__(f"{_line(node)}: got {source}, expected {expected}")


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 1))


def _read_body(body: list[ast.stmt], names: _Names) -> None:
    for statement in body:
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                pass
            case ast.Expr(ast.Constant()) | ast.Expr(ast.Call(ast.Name("print"))):
                pass
            case ast.Expr(ast.Call(ast.Name("exit"))):
                raise _Unread(statement, "settings that the file itself accepts: it ends here")
            case ast.Assign([ast.Name(name)], expression):
                names.values[name] = _bounded(_value(expression, names.values), expression)
                names.lines[name] = statement.lineno
            case ast.If(test, then, otherwise):
                holds = _value(test, names.values)
                if isinstance(holds, Computed):
                    raise _Unread(test, "a condition on values of the file")
                _read_body(then if holds else otherwise, names)
            case _:
                raise _Unread(statement, "an assignment, such as seed = 1: the file is not run")


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression, or Computed."""
    match node:
        case ast.Constant(bool() | int() | float() | str() | None as constant):
            return constant
        case ast.Name(name) if name in names:
            return names[name]
        case ast.List(items) | ast.Tuple(items):
            return [_value(item, names) for item in items]
        case ast.Dict(keys, values) if None not in keys:
            pairs = zip(keys, values, strict=True)
            return {
                _known(key, names): _value(value, names) for key, value in pairs if key is not None
            }
        case ast.Call(ast.Name(name), [], keywords) if name in RECORDS and all(
            one.arg is not None for one in keywords
        ):
            return {str(one.arg): _value(one.value, names) for one in keywords}
        case ast.Call():
            return Computed(node.lineno, ast.unparse(node))
        case ast.ListComp(element, [ast.comprehension(ast.Name(name), items, [], 0)]):
            found = _value(items, names)
            if isinstance(found, list):
                return [_value(element, {**names, name: item}) for item in found]
        case ast.IfExp(test, then, otherwise):
            holds = _value(test, names)
            if isinstance(holds, Computed):
                return holds
            return _value(then if holds else otherwise, names)
    parts = [_value(part, names) for part in _operands(node)]
    computed = next((part for part in parts if isinstance(part, Computed)), None)
    if computed is not None:
        return computed
    try:
        return _applied(node, parts)
    except (TypeError, ValueError, KeyError, IndexError, ArithmeticError) as error:
        raise _Unread(node, f"values that fit together ({error})") from error


def _known(node: ast.expr, names: Mapping[str, Any]) -> str:
    key = _value(node, names)
    if not isinstance(key, str):
        raise _Unread(node, "a text as the key")
    return key


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left, _, right) | ast.Compare(left, [_], [right]):
            yield from (left, right)
        case ast.BoolOp(_, values) | ast.JoinedStr(values):
            yield from values
        case ast.FormattedValue(value, -1, None) | ast.UnaryOp(_, value):
            yield value
        case ast.Subscript(value, ast.Slice()):
            yield value
        case ast.Subscript(value, index):
            yield from (value, index)
        case _:
            raise _Unread(node, "a literal, or a name that was assigned before")


def _applied(node: ast.expr, parts: list[Any]) -> Any:
    match node:
        case ast.BinOp(_, operation, _) | ast.Compare(_, [operation], _) if (
            type(operation) in _OPERATORS
        ):
            if isinstance(operation, ast.Mult) and not all(
                isinstance(part, int | float) for part in parts
            ):
                raise TypeError("only numbers are multiplied")
            return _OPERATORS[type(operation)](*parts)
        case ast.BoolOp(operation, _):
            return (all if isinstance(operation, ast.And) else any)(parts)
        case ast.JoinedStr():
            return "".join(str(part) for part in parts)
        case ast.FormattedValue():
            return str(parts[0])
        case ast.UnaryOp(ast.Not()):
            return not parts[0]
        case ast.UnaryOp(ast.USub()):
            return -parts[0]
        case ast.Subscript(_, ast.Slice()):
            raise TypeError("a slice is not read")
        case ast.Subscript():
            return parts[0][parts[1]]
        case _:
            raise TypeError("not read")


def _bounded(value: Any, node: ast.AST) -> Any:
    """Return the value. Raises _Unread if it is larger than any config needs."""
    pending, count = [value], 0
    while pending:
        part = pending.pop()
        count += 1
        large = (isinstance(part, str) and len(part) > _LONGEST) or (
            isinstance(part, int) and abs(part) > _LARGEST
        )
        if large or count > _MOST_VALUES:
            raise _Unread(node, "a value of the size that a config needs")
        pending += (
            part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        )
    return value
