"""Find the `with` blocks of a suite in which the candidate may swallow an exception.

This module runs on the host only: the suite's source is trusted.

Some tests check that the candidate swallows an exception: `with Quiet(): raise KeyError`. But a
swallowed exception also skips the rest of the block. If the rest would have failed the test, the
test must not pass. So swallowing is allowed in two cases only: nothing in the block can fail a
test, or the exception comes from the suite's own `raise` at the end of the block.
"""

import ast
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

WithBlock: TypeAlias = tuple[str, int, int]
"""Source name of the `with`, its line, and the line of the `raise` that ends the block.

The last item is 0 if any exception may be swallowed.
"""

_CHECKS: Final = (
    ast.Assert,
    ast.Raise,
    ast.Compare,
    ast.AugAssign,
    ast.Yield,
    ast.YieldFrom,
    ast.Await,
)
_RUNS_TEXT: Final = frozenset({"exec", "eval"})
_Blocks: Final = ast.With | ast.AsyncWith
_Functions: Final = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def lenient(trees: Sequence[ast.Module], names: Sequence[str]) -> Iterator[WithBlock]:
    """Yield the blocks in which exceptions may be swallowed.

    `trees` are parsed sources that share one global namespace. `names` are the source names.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    bound = _RUNS_TEXT | {name for node in nodes for name in _binds(node)}
    own = frozenset(node.name for node in nodes if isinstance(node, _Functions))
    for tree, name in zip(trees, names, strict=True):
        for node in ast.walk(tree):
            if isinstance(node, _Blocks):
                last = max(item.context_expr.end_lineno or node.lineno for item in node.items)
                raised = _last_raise(node.body)
                ends = [raised] if raised else [0] if _checks_nothing(node, bound, own) else []
                yield from (
                    (name, line, end) for line in range(node.lineno, last + 1) for end in ends
                )


def _binds(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.alias(name=name, asname=other):
            yield other or name.partition(".")[0]


def _last_raise(body: Sequence[ast.stmt]) -> int | None:
    """Return the line of the `raise` that always ends the block; None if there is none."""
    match body[-1]:
        case ast.Raise(lineno=line):
            return line
        case ast.With(body=inner) | ast.AsyncWith(body=inner):
            return _last_raise(inner)
    return None


def _checks_nothing(
    block: ast.With | ast.AsyncWith, bound: frozenset[str], own: frozenset[str]
) -> bool:
    """Test whether nothing in the block can fail a test.

    The block may use only the objects of its `with` items, names of the program, and names of
    Python. A name that the suite defines could contain a check.
    """
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
