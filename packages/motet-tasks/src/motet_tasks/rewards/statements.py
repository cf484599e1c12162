"""Choose the statements of a program that belong to it, without those that only try it out."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from codejudge.source import bound_outside, free


@dataclass(frozen=True)
class Piece:
    """A top-level statement and its text. `node` is None if it cannot be parsed."""

    text: str
    node: ast.stmt | None


DECORATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINING = (*DECORATED, ast.Import, ast.ImportFrom)
_ASSIGNING = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_SPEAKING = frozenset({"print", "input", "open", "exit", "quit", "eval", "exec", "breakpoint"})


def own_statements(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the statements of the program itself, without code that only tries it out.

    An assignment that calls something is kept only if kept code reads its name.
    """
    nodes = [piece.node for piece in pieces if piece.node is not None]
    read = {name for node in nodes if _defining(node) for name in free(node)}
    own = {name for node in nodes if isinstance(node, _ASSIGNING) for name in _named(node)}
    bound = {name for node in nodes for name in bound_outside(node)}
    kept: list[Piece] = []
    for piece in reversed(pieces):
        node = piece.node
        assert node is not None
        if isinstance(node, _ASSIGNING) and (_named(node) & read or not _calls(node)):
            read |= _loaded([node])
            kept.append(piece)
        elif _defining(node) or (_sets_recursion(node) and free(node) <= bound):
            kept.append(piece)
        elif (
            isinstance(node, ast.For | ast.While | ast.Expr)
            and (filled := _filled(node)) & read
            and filled <= own
        ):
            read |= _loaded([node])
            kept.append(piece)
    return kept[::-1]


def _filled(statement: ast.stmt) -> set[str]:
    """Return the names of what a loop or a call fills or changes.

    Returns an empty set if it asserts or raises, or if it prints or does other input or output.
    """
    found: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.Assert() | ast.Raise():
                return set()
            case ast.Name(id=name) if name in _SPEAKING:
                return set()
            case (
                ast.Expr(value=ast.Call(func=ast.Attribute(value=place)))
                | ast.Subscript(value=place, ctx=ast.Store())
                | ast.AugAssign(target=place)
            ):
                while isinstance(place, ast.Subscript | ast.Attribute):
                    place = place.value
                found.add(place.id if isinstance(place, ast.Name) else "")
    return found


def _sets_recursion(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=[argument])
        ):
            return name == "setrecursionlimit" and not _calls(argument)
    return False


def _defining(node: ast.stmt) -> bool:
    """Test for a definition or an import, or a choice between them such as `try: import x`."""
    if isinstance(node, ast.If):
        tests = {name.id for name in ast.walk(node.test) if isinstance(name, ast.Name)}
        return "__name__" not in tests and all(map(_harmless, (*node.body, *node.orelse)))
    if isinstance(node, ast.Try):
        handled = [statement for handler in node.handlers for statement in handler.body]
        return all(map(_harmless, (*node.body, *handled, *node.orelse, *node.finalbody)))
    return isinstance(node, _DEFINING)


def _harmless(node: ast.stmt) -> bool:
    return _defining(node) or isinstance(node, (*_ASSIGNING, ast.Pass))


def _named(node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> set[str]:
    targets: Iterable[ast.expr] = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {
        name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
    }


def _loaded(nodes: Iterable[ast.AST]) -> set[str]:
    names = (inner for node in nodes for inner in ast.walk(node) if isinstance(inner, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def _calls(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) for inner in ast.walk(node))
