"""In which `with` blocks of a suite the candidate may swallow an exception. Host only: the text is trusted.

A test may ask for just that: `with Quiet(): raise KeyError`. But a block that is left early does not
do the rest of what it does, and where that would have failed the test, the test must not pass. So
the list is of the blocks in which nothing can fail a test, and of the exceptions that tests raise.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

Block: TypeAlias = tuple[str, int, int]
"""The text and the line of a `with`, and the line of the `raise` that ends its block; 0 for every exception."""

_CHECKS: Final = (ast.Assert, ast.Raise, ast.Compare, ast.AugAssign, ast.Yield, ast.YieldFrom, ast.Await)
_RUNS_TEXT: Final = frozenset({"exec", "eval"})
_Blocks: Final = ast.With | ast.AsyncWith
_Functions: Final = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def lenient(trees: Sequence[ast.Module], names: Sequence[str]) -> Iterator[Block]:
    """The blocks of some texts that share their global names."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    bound = _RUNS_TEXT | {name for node in nodes for name in _binds(node)}
    own = frozenset(node.name for node in nodes if isinstance(node, _Functions))
    for tree, name in zip(trees, names, strict=True):
        for node in ast.walk(tree):
            if isinstance(node, _Blocks):
                last = max(item.context_expr.end_lineno or node.lineno for item in node.items)
                raised = _last_raise(node.body)
                ends = [raised] if raised else [0] if _checks_nothing(node, bound, own) else []
                yield from ((name, line, end) for line in range(node.lineno, last + 1) for end in ends)


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]


def _last_raise(body: Sequence[ast.stmt]) -> int | None:
    """The line of the `raise` with which a block ends, whatever happens in it."""
    match body[-1]:
        case ast.Raise(lineno=line):
            return line
        case ast.With(body=inner) | ast.AsyncWith(body=inner):
            return _last_raise(inner)
    return None


def _checks_nothing(block: ast.With | ast.AsyncWith, bound: frozenset[str], own: frozenset[str]) -> bool:
    """Whether a block only uses what it manages, the program's functions, and Python's: no name of the suite's can check."""
    targets = {
        node.id
        for item in block.items
        if item.optional_vars is not None
        for node in ast.walk(item.optional_vars)
        if isinstance(node, ast.Name)
    }
    managed = {ast.unparse(item.context_expr) for item in block.items}

    def harmless(node: ast.AST) -> bool:
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                return name in targets or name in managed or name not in bound
            case ast.Attribute(attr=name):
                if ast.unparse(node) in managed:
                    return True
                if name in own or name.startswith(("assert", "fail")):
                    return False
        return not isinstance(node, _CHECKS) and all(map(harmless, ast.iter_child_nodes(node)))

    return all(map(harmless, block.body))
