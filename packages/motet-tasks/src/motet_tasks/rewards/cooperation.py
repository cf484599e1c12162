"""Check in the syntax of main's part whether it calls the helpers, adds work, and uses the results.

These are the published checks, on the tree instead of on lines. A text can pass them without
cooperation. The term `needs_aux` in code.py runs the tests instead.
"""

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from codejudge.source import binds, calls, definition

_APPLYING = {"map", "filter", "reduce", "starmap"}


@dataclass(frozen=True)
class Cooperation:
    """How main uses the helpers that are defined."""

    called: Sequence[str] = ()
    """Helpers' functions that main calls."""
    ignored: Sequence[str] = ()
    """Those of the called functions for which the value of some call is not used."""
    wrapper: bool = False
    """Whether main only returns the result of a helper."""


def cooperation(tree: ast.Module, entry_point: str, names: Sequence[str]) -> Cooperation:
    """Check how main's part uses the helpers' functions `names`.

    `tree` is main's part without its imports of helpers. If main binds a helper's name itself, it
    does not call that helper.
    """
    own = _reached(tree, entry_point)
    called = [
        name for name in names if not binds(tree, name) and any(_applies(one, name) for one in own)
    ]
    ignored = [name for name in called if any(_ignores(one, name) for one in own)]
    inner = [one for node in own for one in ast.walk(node) if isinstance(one, ast.FunctionDef)]
    main, passing = definition(tree, entry_point), set(called)
    for _ in own:  # main may call its own wrappers, and those others
        passing |= {one.name for one in inner if one is not main and _wraps(one, passing)}
    return Cooperation(called, ignored, main is not None and _wraps(main, passing))


def _reached(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the top-level functions and classes that `name` mentions, directly or indirectly."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    defined = {node.name: node for node in tree.body if isinstance(node, kinds)}
    found: dict[str, ast.stmt] = {}
    waiting = {name}
    while waiting := (waiting & defined.keys()) - found.keys():
        found |= {one: defined[one] for one in waiting}
        waiting = {name for one in waiting for name in _read(ast.walk(defined[one]))}
    return list(found.values())


def _applies(node: ast.AST, name: str) -> bool:
    """Test whether `name` is called, is the function that `map` and the like call, or a `key`."""
    given: list[ast.expr] = []
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Name(id=by) | ast.Attribute(attr=by)) if by in _APPLYING:
                given += inner.args[:1]
            case ast.keyword(arg="key", value=value):
                given.append(value)
    return calls(node, name) or any(
        isinstance(value, ast.Name) and value.id == name for value in given
    )


def _ignores(node: ast.AST, name: str) -> bool:
    """Test whether a call of `name` is a statement, or its value is assigned but not read."""
    inside = list(ast.walk(node))
    read = _read(inside).union(
        *(inner.names for inner in inside if isinstance(inner, ast.Global | ast.Nonlocal))
    )
    return any(
        _drops(block, at, name, read)
        for one in inside
        for _, block in ast.iter_fields(one)
        if isinstance(block, list)
        for at in range(len(block))
    )


def _drops(block: Sequence[ast.AST], at: int, name: str, read: Collection[str]) -> bool:
    match block[at]:
        case (
            ast.Expr(value=ast.Call(func=ast.Name(id=called)))
            | ast.Assign(value=ast.Call(func=ast.Name(id=called)))
            | ast.AnnAssign(value=ast.Call(func=ast.Name(id=called)))
            | ast.AugAssign(value=ast.Call(func=ast.Name(id=called)))
        ) if called == name:
            parts = ast.walk(block[at])
        case _:
            return False
    return all(
        isinstance(part, ast.Name)
        and (part.id not in read or _overwritten(part.id, islice(block, at + 1, None)))
        for part in parts
        if isinstance(part, ast.Name | ast.Attribute | ast.Subscript)
        and isinstance(part.ctx, ast.Store)
    )


def _overwritten(name: str, later: Iterable[ast.AST]) -> bool:
    """Test whether the first statement that mentions `name` assigns to it and does not read it."""
    for statement in later:
        mentions = [one for one in ast.walk(statement) if isinstance(one, ast.Name)]
        if any(one.id == name for one in mentions):
            return isinstance(statement, ast.Assign) and name not in _read(mentions)
    return False


def _read(nodes: Iterable[ast.AST]) -> set[str]:
    return {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _wraps(function: ast.FunctionDef, names: Collection[str]) -> bool:
    """Test whether the body is `return CALL`, or `x = CALL` and `return x`, after a docstring."""
    match function.body[1:] if ast.get_docstring(function) is not None else function.body:
        case [ast.Return(value=ast.Call() as call)]:
            return _passes_on(call, names)
        case [
            ast.Assign(targets=[ast.Name(id=given)], value=ast.Call() as call)
            | ast.AnnAssign(target=ast.Name(id=given), value=ast.Call() as call),
            ast.Return(value=ast.Name(id=returned)),
        ]:
            return given == returned and _passes_on(call, names)
    return False


def _passes_on(node: ast.AST, names: Collection[str]) -> bool:
    """Test for a name, a constant, or a call of one of `names` (also as `S().NAME`) with those."""
    match node:
        case ast.Name() | ast.Constant():
            return True
        case ast.Starred(value=value) | ast.keyword(value=value):
            return _passes_on(value, names)
        case (
            ast.Call(func=ast.Name(id=name))
            | ast.Call(func=ast.Attribute(attr=name, value=ast.Call(func=ast.Name(), args=[])))
        ):
            given = [*node.args, *node.keywords]
            return name in names and all(_passes_on(value, names) for value in given)
    return False
