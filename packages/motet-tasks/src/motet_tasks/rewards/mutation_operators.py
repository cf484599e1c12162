"""Mutation operators: each function yields the possible edits of a program for one kind of mistake.

`OPERATORS` is the table of them.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from codejudge.source import Source

Edit: TypeAlias = tuple[int, int, str]
"""(start offset, end offset, replacement)."""
_Symbols: TypeAlias = Mapping[type[ast.AST], tuple[str, tuple[str, ...]]]
"""Type of an operator's node -> its symbol, and the symbols that it is mistaken for."""

_ARITHMETIC: _Symbols = {
    ast.Add: ("+", ("-",)),
    ast.Sub: ("-", ("+",)),
    ast.Mult: ("*", ("+",)),
    ast.Div: ("/", ("//", "*")),
    ast.FloorDiv: ("//", ("%", "/")),
    ast.Mod: ("%", ("//",)),
    ast.Pow: ("**", ("*",)),
    ast.BitAnd: ("&", ("|",)),
    ast.BitOr: ("|", ("&",)),
    ast.BitXor: ("^", ("|",)),
    ast.LShift: ("<<", (">>",)),
    ast.RShift: (">>", ("<<",)),
    ast.And: ("and", ("or",)),
    ast.Or: ("or", ("and",)),
}
_COMPARISONS: _Symbols = {
    ast.Lt: ("<", ("<=", ">")),
    ast.LtE: ("<=", ("<", ">=")),
    ast.Gt: (">", (">=", "<")),
    ast.GtE: (">=", (">", "<=")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: ("not in", ("in",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: ("is not", ("is",)),
}
_PAIRS = (
    ("min", "max"), ("any", "all"), ("sum", "len"), ("sorted", "list"), ("upper", "lower"),
    ("append", "extend"), ("startswith", "endswith"), ("lstrip", "rstrip"), ("floor", "ceil"),
    ("keys", "values"), ("find", "rfind"),
)  # fmt: skip
_CONFUSED = {one: other for pair in _PAIRS for one, other in (pair, pair[::-1])}
_LARGEST = 2**63
"""Larger numbers are not mutated: Python refuses to write the largest ones as decimals."""
_UNTOUCHED = ("annotation", "returns", "decorator_list")
"""Fields of a node that are never mutated: they do not affect the run, or affect too much."""
_BETWEEN = r"(?:[\s()\\]|#[^\r\n]*)*"
"""What may be between two operands besides their operator."""


# ------------------------------------------------------------------------- what may be changed


def _nodes(text: Source) -> Iterator[ast.AST]:
    """Yield every node that may be changed."""
    if text.tree is not None:
        yield from _changeable(text.tree)


def _changeable(node: ast.AST, *, nested: bool = True) -> Iterator[ast.AST]:
    """Yield `node` and the nodes below it that may be changed.

    Annotations, return annotations, decorators, docstrings, patterns and f-strings are left out:
    positions in f-strings are not exact. Functions and classes below `node` are included only if
    `nested`.
    """
    if isinstance(node, ast.JoinedStr | ast.pattern) or is_docstring(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in _UNTOUCHED:
            continue
        for child in value if isinstance(value, list) else [value]:
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if isinstance(child, ast.AST) and (nested or not inner):
                yield from _changeable(child, nested=nested)


def is_docstring(node: ast.AST) -> bool:
    """Test whether the statement is a bare constant, which has no effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _symbol(text: Source, left: ast.expr, symbol: str) -> tuple[int, int]:
    """Return the span of the operator `symbol` after its left operand."""
    pattern = re.compile(_BETWEEN + "(" + r"\s+".join(map(re.escape, symbol.split())) + ")")
    match = pattern.match(text.text, text.span(left)[1])
    assert match is not None
    return match.span(1)


# ----------------------------------------------------------------------------- symbols and values


def _exchanged(
    text: Source, left: ast.expr, operator: ast.AST, table: _Symbols, assigning: str = ""
) -> Iterator[Edit]:
    if type(operator) in table:
        symbol, others = table[type(operator)]
        start, end = _symbol(text, left, symbol + assigning)
        yield from ((start, end, other + assigning) for other in others)


def operator(text: Source) -> Iterator[Edit]:
    """`+` becomes `-`, `//` becomes `%`, `and` becomes `or`."""
    for node in _nodes(text):
        match node:
            case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                continue  # formatting
            case ast.BinOp(left=left, op=op):
                yield from _exchanged(text, left, op, _ARITHMETIC)
            case ast.AugAssign(target=target, op=op):
                yield from _exchanged(text, target, op, _ARITHMETIC, "=")
            case ast.BoolOp(op=op, values=[*lefts, _]):
                for left in lefts:
                    yield from _exchanged(text, left, op, _ARITHMETIC)


def comparison(text: Source) -> Iterator[Edit]:
    """`<` becomes `<=` or `>`, `in` becomes `not in`."""
    for node in _nodes(text):
        if isinstance(node, ast.Compare):
            for left, op in zip((node.left, *node.comparators), node.ops, strict=False):
                yield from _exchanged(text, left, op, _COMPARISONS)


def constant(text: Source) -> Iterator[Edit]:
    """Change a number by 1, negate a boolean, or empty a string."""
    for node in _nodes(text):
        if isinstance(node, ast.Constant):
            yield from (
                (*text.span(node), other) for other in _other_constants(node.value, text.of(node))
            )


def _other_constants(value: object, written: str) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (repr(not value),)
    if isinstance(value, int | float):
        return (repr(value + 1), repr(value - 1)) if abs(value) < _LARGEST else ()
    if isinstance(value, str):
        opening = re.match(r"([a-zA-Z]*)(\"\"\"|'''|\"|')", written)
        assert opening is not None
        return (opening[0] + ("" if value else " ") + opening[2],)
    return ()


def wrong_function(text: Source) -> Iterator[Edit]:
    """`min` becomes `max`, `append` becomes `extend`."""
    for node in _nodes(text):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in _CONFUSED:
                yield (*text.span(node), _CONFUSED[name])
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in _CONFUSED:
                end = text.span(node)[1]
                yield end - len(name), end, _CONFUSED[name]


# ------------------------------------------------------------------------------------- off by one


def off_by_one(text: Source) -> Iterator[Edit]:
    """Add 1 to or subtract 1 from an index, or a bound of a range or a slice."""
    counters = frozenset(_counters(text))
    for node in _nodes(text):
        bounds: list[ast.expr | None] = []
        match node:
            case ast.Call(func=ast.Name(id="range"), args=args):
                bounds = [arg for arg in args[:2] if not isinstance(arg, ast.Starred)]
            case ast.Slice(lower=lower, upper=upper):
                bounds = [lower, upper]
            case ast.Subscript(slice=index, ctx=ast.Load()) if _is_index(index, counters):
                bounds = [index]
        for bound in bounds:
            if bound is not None:
                yield from ((*text.span(bound), _moved(text, bound, by)) for by in (1, -1))


def _counters(text: Source) -> Iterator[str]:
    """Yield the names of integer variables.

    These are loop variables over a `range`, counters of `enumerate`, and targets of an augmented
    assignment with an integer constant, such as `+= 1`.
    """
    for node in _nodes(text):
        match node:
            case ast.AugAssign(target=ast.Name(id=name), value=ast.Constant(value=int())):
                yield name
            case ast.For(target=target, iter=ast.Call(func=ast.Name(id=over))):
                yield from _counting(target, over)
            case ast.comprehension(target=target, iter=ast.Call(func=ast.Name(id=over))):
                yield from _counting(target, over)


def _counting(target: ast.expr, over: str) -> Iterator[str]:
    match over, target:
        case ("range", ast.Name(id=name)) | ("enumerate", ast.Tuple(elts=[ast.Name(id=name), *_])):
            yield name


def _is_index(node: ast.expr, counters: frozenset[str]) -> bool:
    match node:
        case (
            ast.Constant(value=value)
            | ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value))
        ):
            return isinstance(value, int)
        case ast.Name(id=name):
            return name in counters
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)


def _moved(text: Source, node: ast.expr, by: int) -> str:
    """Return the source of `node` plus `by`, as short as a person would write it."""
    match node:
        case ast.Constant(value=int(value)) if abs(value) < _LARGEST:
            return str(value + by)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))) if (
            abs(value) < _LARGEST
        ):
            return str(by - value)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=ast.Constant(value=1)):
            if isinstance(op, ast.Sub) == (by > 0):  # `x - 1` plus 1 is `x`
                return text.text[
                    text.span(node)[0] : _symbol(text, left, _ARITHMETIC[type(op)][0])[0]
                ].rstrip()
    plain = isinstance(
        node,
        ast.Name
        | ast.Constant
        | ast.Call
        | ast.Attribute
        | ast.Subscript
        | ast.UnaryOp
        | ast.BinOp,
    )
    written = text.of(node) if plain else f"({text.of(node)})"
    return f"{written} {'+' if by > 0 else '-'} 1"


# -------------------------------------------------------------------------------- names and calls


def wrong_variable(text: Source) -> Iterator[Edit]:
    """Replace a variable of a function by another one that has a value at that point."""
    for function in _nodes(text):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        known = list(_known(text, function))
        for node in _changeable(function, nested=False):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                start, end = text.span(node)
                names = sorted({name for name, since, until in known if since <= start < until})
                if node.id in names:
                    yield from ((start, end, other) for other in names if other != node.id)


def _known(
    text: Source, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[tuple[str, int, int]]:
    """Yield the function's variables as (name, start, end) of where each can be read.

    A variable can be read from the line after its assignment on.
    """
    body = text.span(function.body[0])[0], text.span(function)[1]
    yield from ((name, *body) for name in _parameters(function.args))
    own = list(_changeable(function, nested=False))
    inner: set[int] = set()
    for node in own:
        match node:
            case ast.ListComp(elt=elt) | ast.SetComp(elt=elt) | ast.GeneratorExp(elt=elt):
                parts = [elt]
            case ast.DictComp(key=key, value=value):
                parts = [key, value]
            case ast.Lambda(args=args, body=value):
                yield from ((name, *text.span(value)) for name in _parameters(args))
                continue
            case _:
                continue
        bound = [
            name
            for each in node.generators
            for name in ast.walk(each.target)
            if isinstance(name, ast.Name)
        ]
        inner |= {id(name) for name in bound}
        parts += [condition for each in node.generators for condition in each.ifs]
        yield from ((name.id, *text.span(part)) for name in bound for part in parts)
    for node in own:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in inner:
            yield node.id, text.end_of_line(text.span(node)[1]), body[1]


def _parameters(args: ast.arguments) -> list[str]:
    every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
    return [each.arg for each in every if each is not None]


def swapped_arguments(text: Source) -> Iterator[Edit]:
    """Swap two neighbouring arguments of a call."""
    for node in _nodes(text):
        if isinstance(node, ast.Call):
            for one, other in zip(node.args, node.args[1:], strict=False):
                if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred):
                    (start, middle), (behind, end) = text.span(one), text.span(other)
                    yield start, end, text.of(other) + text.text[middle:behind] + text.of(one)


# ---------------------------------------------------------------------- conditions and statements


def negated_condition(text: Source) -> Iterator[Edit]:
    """`if x` becomes `if not x`, `if not x` becomes `if x`."""
    for node in _nodes(text):
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield (*text.span(test), _negated(text, test))
            case ast.comprehension(ifs=tests):
                yield from ((*text.span(test), _negated(text, test)) for test in tests)


def _negated(text: Source, test: ast.expr) -> str:
    written = text.of(test)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return written.removeprefix("not").lstrip()
    loose = isinstance(test, ast.BoolOp | ast.IfExp | ast.NamedExpr | ast.Lambda)
    return f"not ({written})" if loose else f"not {written}"


def dropped_statement(text: Source) -> Iterator[Edit]:
    """Drop an assignment, a call or a branch, empty a loop's body, or return None."""
    for node in _nodes(text):
        match node:
            case ast.Return(value=ast.expr() as value):
                yield (*text.span(value), "None")
            case ast.For(body=body) | ast.While(body=body):
                yield text.span(body[0])[0], text.span(body[-1])[1], "pass"
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                yield from (
                    _without(text, one, alone=len(block) == 1)
                    for one in block
                    if _is_droppable(one)
                )


def _is_droppable(node: ast.stmt) -> bool:
    kinds = ast.Assign | ast.AugAssign | ast.Expr | ast.If | ast.Raise | ast.Break | ast.Continue
    return isinstance(node, kinds) and not is_docstring(node)


def _without(text: Source, node: ast.stmt, *, alone: bool) -> Edit:
    """Remove a statement.

    Its lines are deleted if they hold nothing else and its block keeps another statement. Otherwise
    `pass` replaces the statement.
    """
    start, end = text.span(node)
    begin, stop = text.starts[text.line(start) - 1], text.end_of_line(end)
    branch = text.text.startswith("elif", start)
    if (
        (alone and not branch)
        or text.text[begin:start].strip()
        or text.text[end:stop].partition("#")[0].strip()
    ):
        return start, end, "pass"
    following = text.starts[text.line(end)] if text.line(end) < len(text.starts) else stop
    return begin, following, ""


OPERATORS: Mapping[str, Callable[[Source], Iterator[Edit]]] = MappingProxyType(
    {
        each.__name__: each
        for each in (
            operator, comparison, constant, off_by_one, wrong_function, wrong_variable,
            swapped_arguments, negated_condition, dropped_statement,
        )
    }
)  # fmt: skip
