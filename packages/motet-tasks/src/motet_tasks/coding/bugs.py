"""Faulty functions and their solutions: rows of HumanEvalFix, or mutants of other solutions.

    HumanEvalFix: HumanEval's fields and buggy_solution, bug_type (optional: import, test_setup)
                  data set: bigcode/humanevalpack, python

Other data that problems.py reads has no bugs; mutation creates them.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self, TypeAlias

from codejudge import Limits, Suite, Verdict
from codejudge.source import Source, definition
from motet.core.seeding import derive
from motet.errors import ConfigError, shortened
from motet_tasks.coding.problems import CodingProblem, problem_in, read_problem
from motet_tasks.rewards.code import Program
from motet_tasks.rewards.mutation_operators import is_docstring
from motet_tasks.rewards.mutations import mutants
from motet_tasks.rewards.repair import Lines, faulty_lines

Verdicts: TypeAlias = Callable[[Sequence[Program], Suite, Limits | None], Sequence[Verdict]]
"""Runs all tests on each of several programs, with the sandbox's own limits or the given ones."""
QUICK = Limits(wall_seconds=4.0, cpu_seconds=1)
"""Limits of the first test run of a mutant. They are short because many mutants never end."""
_CALLED = re.compile(r"^check\(.*\)[ \t]*$", re.MULTILINE)
"""HumanEvalFix ends its tests with this call. It is removed because the suite calls `check`."""


@dataclass(frozen=True)
class Bug:
    """A faulty function."""

    id: str
    problem: CodingProblem
    program: str
    """The faulty function and what it needs beyond the problem's prelude. It has no docstring that
    says what the function should do."""
    solution: str
    """The same code without the fault."""
    kind: str
    """The kind of fault."""

    @classmethod
    def load(cls, id: str, fields: Mapping[str, Any]) -> Self:
        """Load the bug of a task from its fields."""
        return cls(
            id,
            CodingProblem.load(fields["problem"]),
            fields["program"],
            fields["solution"],
            fields["kind"],
        )

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a task, as plain JSON values."""
        return {
            "problem": self.problem.fields,
            "program": self.program,
            "solution": self.solution,
            "kind": self.kind,
        }

    @cached_property
    def lines(self) -> Lines:
        """The faulty lines of the program."""
        return faulty_lines(self.program, self.solution)

    def with_code(self, code: Source) -> Program:
        """Return the whole program with `code` as the function."""
        return Program(self.problem.entry_point, code, prelude=self.problem.given)


def read_bug(row: Mapping[str, Any]) -> Bug:
    """Read the bug of a row. Raises: ConfigError if the row has no bug or no solution."""
    problem = _problem(row)
    if "buggy_solution" not in row or row["buggy_solution"] is None:
        raise ConfigError(
            f"row {problem.id} has no buggy_solution; expected one, as in HumanEvalFix: set "
            "environment.mutate: true to make bugs from the solutions"
        )
    faulty = read_problem({**row, "canonical_solution": row["buggy_solution"]})
    assert faulty.solution is not None
    kind = str(row["bug_type"]) if "bug_type" in row else "given"
    name = problem.entry_point
    return Bug(
        problem.id,
        problem,
        undocumented(faulty.solution, name),
        undocumented(_solution(problem), name),
        kind,
    )


def asked_bug(text: str) -> Bug:
    """Return the bug of a person's function, whose docstring says what it should do.

    Nobody knows its solution, which is empty. Raises: ConfigError if there is no such function.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    tree = Source(text).tree
    functions = [] if tree is None else [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    function = functions[-1] if functions else None
    if function is None or len(function.body) < 2 or not is_docstring(function.body[0]):
        raise ConfigError(
            f"got {shortened(text)!r}; expected a Python function with a bug, and a docstring that "
            "says what it should do"
        )
    lines = text.split("\n")  # as Python counts them: U+2028 and the like end no line
    problem = problem_in("\n".join(lines[: function.body[0].end_lineno]))
    code = "\n".join(lines[function.lineno - 1 : function.end_lineno])
    return Bug(problem.id, problem, undocumented(code, function.name), "", "asked")


def made_bugs(row: Mapping[str, Any], seed: int, limit: int) -> list[Bug]:
    """Return at most `limit` mutants of a row's solution, always the same ones.

    They have not been tested yet. Raises: ConfigError if the row has no solution.
    """
    problem = _problem(row)
    solution = undocumented(_solution(problem), problem.entry_point)
    found = mutants(solution, derive(seed, problem.id), limit)
    return [
        Bug(f"{problem.id}, bug {number}", problem, mutant.source, solution, mutant.operator)
        for number, mutant in enumerate(found, start=1)
    ]


def proven(
    bugs: Sequence[Bug], wanted: int, grading: Sequence[int], verdicts: Verdicts
) -> list[Bug]:
    """Return up to `wanted` of `bugs` for which a grading test fails.

    All `bugs` belong to one problem. Returns none if the solution does not pass all tests. Programs
    are tested in batches, in parallel. A program that only exceeds the time limit is a bug too, but
    is used last, because tests of an incomplete repair would also run into the limit.
    """
    if not bugs:
        return []
    suite = bugs[0].problem.suite
    if not verdicts([bugs[0].with_code(Source(bugs[0].solution))], suite, None)[0].passed:
        return []
    found: list[Bug] = []
    slow: list[Bug] = []
    for batch in _batches(bugs, 2 * wanted):
        judged = verdicts([bug.with_code(Source(bug.program)) for bug in batch], suite, QUICK)
        for bug, verdict in zip(batch, judged, strict=True):
            came = {verdict.cases[index].status for index in grading}
            (slow if "timeout" in came else found if came != {"passed"} else []).append(bug)
        if len(found) >= wanted:
            return found[:wanted]
    return found + list(islice(_hanging(slow, suite, grading, verdicts), wanted - len(found)))


def _hanging(
    bugs: Sequence[Bug], suite: Suite, grading: Sequence[int], verdicts: Verdicts
) -> Iterator[Bug]:
    """Yield those bugs that still fail with the sandbox's own limits."""
    for bug in bugs:
        cases = verdicts([bug.with_code(Source(bug.program))], suite, None)[0].cases
        if any(cases[index].status != "passed" for index in grading):
            yield bug


def undocumented(code: str, name: str) -> str:
    """Return `code` without the docstring of function `name`.

    Returns it unchanged if the docstring shares a line with other code or is the whole body.
    """
    text = Source(code)
    function = definition(text.tree, name) if text.tree is not None else None
    if function is None or len(function.body) == 1 or not is_docstring(function.body[0]):
        return code
    start, end = text.span(function.body[0])
    begin, stop = text.starts[text.line(start) - 1], text.end_of_line(end)
    return (
        code
        if code[begin:start].strip() or code[end:stop].strip()
        else code[:begin] + code[stop:].lstrip("\r\n")
    )


def _problem(row: Mapping[str, Any]) -> CodingProblem:
    if "test" not in row or row["test"] is None:
        return read_problem(row)
    before = [str(row[field]) for field in ("import", "test_setup") if row.get(field)]
    return read_problem({**row, "test": "\n".join([*before, _CALLED.sub("", str(row["test"]))])})


def _solution(problem: CodingProblem) -> str:
    if problem.solution is None:
        raise ConfigError(
            f"row {problem.id} has no solution; expected a canonical_solution, or the code of "
            "MBPP, to make bugs from"
        )
    return problem.solution


def _batches(bugs: Sequence[Bug], size: int) -> Iterator[Sequence[Bug]]:
    return (bugs[start : start + size] for start in range(0, len(bugs), size))
