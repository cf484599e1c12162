"""How main works with the functions that helpers wrote, as far as its text says: whether it calls them, has a use of what they
return, and does anything of its own. What a text pretends is another matter; see `needs_aux` in code.py."""

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from motet.rewards.flow import Flow
from motet.rewards.python import binds, calls, definition, own_nodes
from motet.rewards.simplified import simplified

_APPLYING = {"map", "filter", "reduce", "starmap"}
_MOST_BETWEEN = 8
"""How many functions of main's own, each calling the next, are looked through."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Cooperation:
    """How main works with the helpers that are there."""

    called: Sequence[str] = ()
    """Helpers' functions that it calls."""
    ignored: Sequence[str] = ()
    """Of those called: of which some call comes to nothing."""
    wrapper: bool = False
    """Whether all that main does is to return what one of them does, whatever way it takes: passing arguments on in any order,
    giving things other names, and what comes to nothing, is nothing besides."""


def cooperation(tree: ast.Module, entry_point: str, names: Sequence[str]) -> Cooperation:
    """What main's part, without its imports of helpers, does with the helpers' functions `names`.

    A main that gives a helper's name a meaning of its own has not called its partner, nor has one that nests deeper than can be
    followed.
    """
    try:
        simple = simplified(tree)
        own = reached(simple, entry_point)
        called = [name for name in names if not binds(tree, name) and any(applies(node, name) for node in own)]
        ignored = [name for name in called if any(throws_away(node, name) for node in own)]
        main = definition(simple, entry_point)
        wrapper = main is not None and _only_passes_on(main, _passing(own, main, called), must_return=True)
    except RecursionError:
        return Cooperation()
    return Cooperation(called, ignored, wrapper)


def reached(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The top-level functions and classes that `name` leads to, itself first: what it mentions, what those mention, and so on."""
    defined: dict[str, ast.stmt] = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    found: dict[str, ast.stmt] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in defined and current not in found:
            found[current] = defined[current]
            waiting += [node.id for node in ast.walk(defined[current]) if isinstance(node, ast.Name)]
    return list(found.values())


def applies(node: ast.AST, name: str) -> bool:
    """Whether `name` is called somewhere in `node`, by itself or by `map`, `filter`, `reduce` or as a `key`."""
    return calls(node, name) or any(_hands_over(inner, name) for inner in ast.walk(node))


def _hands_over(node: ast.AST, name: str) -> bool:
    if not isinstance(node, ast.Call):
        return False
    by = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    handed = [*(node.args[:1] if by in _APPLYING else []), *(word.value for word in node.keywords if word.arg == "key")]
    return any(isinstance(value, ast.Name) and value.id == name for value in handed)


def throws_away(node: ast.AST, name: str) -> bool:
    """Whether some call of `name` in the functions of `node`, which is simplified, comes to nothing."""
    for function in _functions([node]):
        made = [inner for inner in own_nodes(function) if isinstance(inner, ast.Call)]
        made = [call for call in made if isinstance(call.func, ast.Name) and call.func.id == name]
        used = Flow(function, [name]).used if made else set()
        if any(call not in used for call in made):
            return True
    return False


# ---------------------------------------------------------------------------------------------------- thin wrappers


def _passing(nodes: Sequence[ast.stmt], main: ast.FunctionDef, names: Collection[str]) -> set[str]:
    """`names`, and the functions in `nodes` beside `main` that only pass on what they are given or what `names` return."""
    own = sorted((one for one in _functions(nodes) if one is not main), key=lambda one: one.name)
    left = {name: list(named) for name, named in groupby(own, key=lambda one: one.name)}
    passing = {*names, *_passing_lambdas(nodes, names)}
    for _ in range(_MOST_BETWEEN):
        more = {name for name, named in left.items() if all(_only_passes_on(one, passing) for one in named)}
        left = {name: named for name, named in left.items() if name not in more}
        passing |= more
        if not more:
            break
    return passing


def _passing_lambdas(nodes: Sequence[ast.stmt], names: Collection[str]) -> Iterator[str]:
    for node in (inner for one in nodes for inner in ast.walk(one)):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda(body=body)) if _is_passed_on(body, names):
                yield name


def _functions(nodes: Sequence[ast.AST]) -> list[_Function]:
    return [inner for node in nodes for inner in ast.walk(node) if isinstance(inner, _Function)]


def _only_passes_on(function: _Function, names: Collection[str], *, must_return: bool = False) -> bool:
    """Whether a simplified function only passes things on; with `must_return`, and returns what one of `names` does."""
    reader = _PassingOn(names, Flow(function, names).needed, must_return)
    return reader.block(function.body) and reader.returns


class _PassingOn:
    def __init__(self, names: Collection[str], needed: Collection[ast.stmt], must_return: bool) -> None:
        self.names = names
        self.needed = needed
        self.must_return = must_return
        self.given: set[str] = set()
        """Names that hold what one of `names` returned."""
        self.returns = False

    def block(self, statements: Sequence[ast.stmt], *, handler: bool = False) -> bool:
        return all(self._statement(one, handler) for one in statements if one in self.needed)

    def _statement(self, statement: ast.stmt, handler: bool) -> bool:
        match statement:
            case ast.Return(value=ast.expr() as value):
                if self._is_given(value) or (not self.must_return and _is_passed_on(value, self.names)):
                    self.returns = True
                    return True
                return handler and _is_passed_on(value, self.names)
            case ast.Return() | ast.Raise():
                return handler
            case (
                ast.Assign(targets=[ast.Name(id=target)], value=value)
                | ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value)
            ):
                if self._is_given(value):
                    self.given.add(target)
                    return True
                self.given.discard(target)
                return isinstance(value, ast.Lambda) or _is_passed_on(value, self.names)
            case ast.Try():
                handled = all(self.block(one.body, handler=True) for one in statement.handlers)
                return self.block([*statement.body, *statement.orelse, *statement.finalbody]) and handled
        return isinstance(statement, _Function)

    def _is_given(self, value: ast.expr) -> bool:
        match value:
            case ast.Name(id=name):
                return name in self.given
            case ast.NamedExpr(value=inner):
                return self._is_given(inner)
            case ast.BoolOp(values=values):
                rest = [one for one in values if not isinstance(one, ast.Constant)]
                return len(rest) == 1 and self._is_given(rest[0])
        return _is_call(value, self.names)


def _is_call(node: ast.expr, names: Collection[str]) -> bool:
    match node:
        case (
            ast.Call(func=ast.Name(id=name))
            | ast.Call(func=ast.Attribute(attr=name, value=ast.Call(func=ast.Name(), args=[])))
        ):
            looked_through = name in names
        case ast.Call(func=ast.Lambda(body=body)):
            looked_through = _is_passed_on(body, names)
        case _:
            return False
    handed = [*node.args, *(keyword.value for keyword in node.keywords)]
    return looked_through and all(_is_passed_on(value, names) for value in handed)


def _is_passed_on(node: ast.expr, names: Collection[str]) -> bool:
    if isinstance(node, ast.Starred | ast.NamedExpr):
        return _is_passed_on(node.value, names)
    return isinstance(node, ast.Name | ast.Constant) or _is_call(node, names)
