"""A program less what is never run: what stands behind a `return`, what a constant condition shuts out, and functions that are
made inside of others and never named again. Choices that decide nothing are no choices. What is left reads like the whole."""

import ast
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any

from motet.rewards.python import own_nodes

_COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
    }
)
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def simplified(tree: ast.Module) -> ast.Module:
    """The same, less what is never run; to be looked at, not to be run: a block may be empty. `tree` stays as it is.

    Raises: RecursionError for a tree that the parser could make and Python cannot walk.
    """
    found = _Simplified().visit(tree)
    assert isinstance(found, ast.Module)
    return found


class _Simplified(ast.NodeTransformer):
    """From the inside out: what a node holds is simple when the node is looked at."""

    def visit(self, node: ast.AST) -> Any:
        node = copy(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                setattr(node, name, list(value))
        return super().visit(node)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, _block(value))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        return _Without(_unnamed(node)).generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        self.generic_visit(node)
        return None if isinstance(node.value, ast.Constant | ast.Lambda | ast.GeneratorExp) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
        self.generic_visit(node)
        return None if _truth(node.test) else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is not None:
            return node.body if truth else node.orelse
        return [ast.Expr(node.test), *node.body] if _same(node.body, node.orelse) else node

    def visit_While(self, node: ast.While) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is False:
            return node.orelse
        once = (
            truth and node.body and isinstance(node.body[-1], ast.Return) and not _holds(node, ast.Break, ast.Continue)
        )
        return node.body if once else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is not None:
            return node.body if truth else node.orelse
        return node.body if _same([node.body], [node.orelse]) else node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        deciding, kept = isinstance(node.op, ast.Or), list[ast.expr]()
        for value in node.values:
            truth = _truth(value)
            if truth is not None and truth is not deciding and value is not node.values[-1]:
                continue
            if not (kept and _same([kept[-1]], [value])):
                kept.append(value)
            if truth is deciding:
                break
        node.values = kept
        return node if len(kept) > 1 else kept[0]

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        match node:
            case ast.Subscript(
                value=ast.Tuple(elts=elements) | ast.List(elts=elements), slice=ast.Constant(value=int(at))
            ):
                if 0 <= at < len(elements) and not any(isinstance(one, ast.Starred) for one in elements):
                    return elements[at]
        return node


class _Without(ast.NodeTransformer):
    def __init__(self, nodes: Collection[ast.AST]) -> None:
        self.nodes = nodes

    def visit(self, node: ast.AST) -> Any:
        if node in self.nodes:
            return None
        return super().visit(node) if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) else node


def _unnamed(function: ast.FunctionDef) -> set[ast.AST]:
    """Functions, classes and lambdas made in a function's body whose names nothing that is run mentions."""
    made: dict[str, list[ast.AST]] = {}
    waiting: list[ast.AST] = []
    for node in own_nodes(function):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if not node.decorator_list:
                    made.setdefault(name, []).append(node)
                else:
                    waiting.append(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                made.setdefault(name, []).append(node)
            case ast.Lambda() | ast.Name():
                waiting.append(node)
    lambdas = {node.value for nodes in made.values() for node in nodes if isinstance(node, ast.Assign)}
    waiting = [node for node in waiting if node not in lambdas]
    dropped = dict(made)
    while waiting:
        for inner in ast.walk(waiting.pop()):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load) and inner.id in dropped:
                waiting += dropped.pop(inner.id)
    return {node for nodes in dropped.values() for node in nodes}


def _block(statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements up to the first that leaves; and `if x: return y` before `return y` chooses between the same things."""
    end = next((at + 1 for at, statement in enumerate(statements) if _leaves([statement])), len(statements))
    kept: list[ast.stmt] = []
    tests: list[ast.stmt] = []
    for statement in reversed(statements[:end]):
        if (
            isinstance(statement, ast.If)
            and not statement.orelse
            and _leaves(statement.body)
            and _same(statement.body, kept)
        ):
            tests = [ast.Expr(statement.test), *tests]
        else:
            kept, tests = [statement, *tests, *kept], []
    return [*tests, *kept]


def _leaves(statements: Sequence[ast.stmt]) -> bool:
    """Whether what stands behind the statements is never reached."""
    match statements[-1] if statements else None:
        case ast.If(body=body, orelse=orelse):
            return _leaves(body) and _leaves(orelse)
        case ast.While(test=test) as loop:
            return _truth(test) is True and not _holds(loop, ast.Break)
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
            each = all(_leaves(handler.body) for handler in handlers)
            return _leaves(finalbody) or (each and (_leaves(body) or _leaves(orelse)))
        case statement:
            return isinstance(statement, _LEAVING)


def _holds(node: ast.AST, *kinds: type[ast.AST]) -> bool:
    return any(isinstance(inner, kinds) for inner in ast.walk(node))


def _same(some: Sequence[ast.AST], others: Sequence[ast.AST]) -> bool:
    return len(some) == len(others) and all(ast.dump(a) == ast.dump(b) for a, b in zip(some, others, strict=True))


def _truth(node: ast.expr) -> bool | None:
    """Whether an expression is true, where its text says so."""
    match node:
        case ast.Constant(value=value):
            return bool(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _truth(operand)
            return None if inner is None else not inner
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Dict(values=elements):
            return None if elements else False
        case ast.Compare(left=ast.Constant(value=left), ops=[symbol], comparators=[ast.Constant(value=right)]):
            compared = _COMPARED[type(symbol)] if type(symbol) in _COMPARED else None
            try:
                return None if compared is None else bool(compared(left, right))
            except TypeError:
                return None
    return None
