"""Divides a known solution among a team: the first helper does the first part of the work and
returns the values that the rest needs."""

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from codejudge.source import bound_outside, definition
from motet.errors import EnvironmentFault
from motet_tasks.coding.problems import CodingProblem, needed_for
from motet_tasks.rewards.cooperation import cooperation

_LEAVING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal, ast.Delete)
_ENCLOSING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
_CERTAIN = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Import, ast.ImportFrom)


class NoSolution(EnvironmentFault):
    """The data has no solution for this problem."""

    cause = "no_solution"


def share_out(problem: CodingProblem, helpers: Sequence[str]) -> dict[str, str]:
    """Return function -> code for `helpers` and the problem's own function.

    Together they are the known solution. If its body cannot be cut in two, the first helper gets
    all of it. Further helpers return their arguments.

    Raises: NoSolution.
    """
    if problem.solution is None:
        raise NoSolution(
            f"problem {problem.id} has no solution in its data; expected a canonical_solution, or "
            "the code of MBPP"
        )
    if not helpers:
        return {problem.entry_point: problem.solution}
    tree = ast.parse(problem.solution)
    function = definition(tree, problem.entry_point)
    assert function is not None
    call = f"{helpers[0]}({problem.arguments})"
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    cut = min(_cuts(function.args, body, helpers[0]), key=_Cut.imbalance, default=None)
    if cut is None:
        first, rest = body, _statements(f"return {call}")
    else:
        first = [*cut.first, *_statements(f"return {cut.handed}")]
        rest = [*_statements(f"{cut.handed} = {call}"), *cut.rest]
    bodies = {helpers[0]: first}
    bodies |= {name: _statements("return locals()") for name in helpers[1:]}
    heads = {name: f"def {name}({ast.unparse(function.args)}):" for name in helpers}
    parts = {name: _function(heads[name], body) for name, body in bodies.items()}
    parts[problem.entry_point] = _function(problem.signature, rest)
    return {name: _with_needs(part, tree, function) for name, part in parts.items()}


class _Cut(NamedTuple):
    first: Sequence[ast.stmt]
    rest: Sequence[ast.stmt]
    handed: str
    """The names that `first` binds and `rest` reads, separated by commas."""

    def imbalance(self) -> int:
        return abs(sum(map(_height, self.first)) - sum(map(_height, self.rest)))


def _cuts(arguments: ast.arguments, body: Sequence[ast.stmt], helper: str) -> Iterator[_Cut]:
    """Yield every valid place to cut the body.

    The first part must not leave the function. The names passed on must certainly have a value.
    The second part must use them and do work of its own.
    """
    parameters = {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)}
    for at in range(1, len(body)):
        first, rest = body[:at], body[at:]
        inside = [node for statement in first for node in ast.walk(statement)]
        if any(isinstance(node, (*_LEAVING, *_ENCLOSING)) for node in inside):
            return
        bound = dict.fromkeys(
            name for statement in first for name in sorted(bound_outside(statement))
        )
        certain = parameters.union(
            *(bound_outside(one) for one in first if isinstance(one, _CERTAIN))
        )
        read = {
            node.id
            for statement in rest
            for node in ast.walk(statement)
            if isinstance(node, ast.Name)
        }
        handed = [name for name in bound if name in read]
        if not handed or not certain.issuperset(handed):
            continue
        cut = _Cut(first, rest, ", ".join(handed))
        main = _function("def main():", [*_statements(f"{cut.handed} = {helper}()"), *rest])
        found = cooperation(ast.Module([main], []), main.name, [helper])
        if found.called and not found.ignored and not found.wrapper:
            yield cut


def _height(statement: ast.stmt) -> int:
    return (statement.end_lineno or statement.lineno) - statement.lineno + 1


def _statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _function(head: str, body: Sequence[ast.stmt]) -> ast.FunctionDef:
    function = ast.parse(f"{head} ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    function.body = list(body)
    return function


def _with_needs(part: ast.FunctionDef, tree: ast.Module, function: ast.FunctionDef) -> str:
    """Return the part's source, preceded by the other statements of the solution that it needs."""
    names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)}
    return "\n\n".join(ast.unparse(node) for node in (*needed_for(tree, names, function), part))
