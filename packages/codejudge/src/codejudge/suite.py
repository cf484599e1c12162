"""Tests of a program as trusted text, and the verdict on a program."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, Self

from codejudge import plan
from codejudge.plan import SuiteKind
from codejudge.report import Failure

Status = Literal["passed", "failed", "timeout", "not_run"]
"""Result of a test.

- failed: an assertion or any other exception.
- timeout: the test took too long.
- not_run: something ended the run before this test.
"""


@dataclass(frozen=True)
class Case:
    """One test of a suite: its name, and its source text for people to read."""

    name: str
    text: str


@dataclass(frozen=True)
class Suite:
    """Trusted tests. Create one with `check`, `asserts` or `unittest`.

    The tested code runs in another process than the tests, which access its objects through
    stand-ins, unless `together`. needs.py determines whether a suite needs `together`. Asserts that
    are always true do not count as tests. Event loops and threads cannot start in a sandbox.
    """

    kind: SuiteKind
    source: str
    """check: text that defines `check(candidate)`. asserts: the set-up code. unittest: text with
    TestCase classes.
    """
    statements: tuple[str, ...] = ()
    """asserts: one statement per test."""
    entry_point: str | None = None
    """check: the name of the function passed as `candidate`. Other kinds: the name under test, also
    if Python has a builtin of that name.
    """
    together: bool = False
    """Run tests and candidate in one process, because the tests need the object itself. The verdict
    records it.
    """
    files: bool = False
    """Whether tests and candidate get a private scratch folder as working directory, which is
    deleted afterwards.
    """
    only: tuple[int, ...] | None = None
    """Which tests to run, as indices of `cases`. None means all."""

    @classmethod
    def check(cls, source: str, entry_point: str) -> Self:
        """Make a suite in the style of HumanEval.

        Every top-level statement of `check` that asserts is a test. All tests pass if `check`
        returns.
        """
        return cls("check", source, entry_point=entry_point)

    @classmethod
    def asserts(
        cls, statements: Iterable[str], setup: str = "", entry_point: str | None = None
    ) -> Self:
        """Make a suite in the style of MBPP: one test per statement, after `setup`.

        Programs can also use what `setup` imports.

        Raises: TypeError if `statements` is one string.
        """
        if isinstance(statements, str):
            raise TypeError(
                f"got the statements {statements[:60]!r}, expected a list of strings, one for each "
                "test"
            )
        return cls("asserts", setup, statements=tuple(statements), entry_point=entry_point)

    @classmethod
    def unittest(
        cls,
        source: str,
        *,
        entry_point: str | None = None,
        together: bool = False,
        files: bool = False,
    ) -> Self:
        """Make a suite in the style of ClassEval: one test per test method."""
        return cls("unittest", source, entry_point=entry_point, together=together, files=files)

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every test in order, regardless of `only`.

        Raises ValueError if the source is not a valid suite of this kind.
        """
        return tuple(Case(test.name, test.text) for test in plan.find(self.text))

    @property
    def text(self) -> plan.Text:
        """The parts that determine which tests there are."""
        return plan.Text(self.kind, self.source, self.statements)

    @property
    def chosen(self) -> tuple[int, ...]:
        """The tests to run, as indices of `cases`. Raises ValueError for an invalid index."""
        count = len(plan.find(self.text))
        chosen = tuple(range(count)) if self.only is None else self.only
        if any(not 0 <= index < count for index in chosen) or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"got tests {chosen}, expected different numbers from 0 to {count - 1}, because "
                f"the suite has {count} tests"
            )
        return tuple(sorted(chosen))

    def choose(self, indices: tuple[int, ...]) -> Self:
        """Return the same suite, running only these of `cases`."""
        return replace(self, only=indices)


@dataclass(frozen=True)
class CaseResult:
    """The result of one test.

    `kind` and `message` (bounded) are those of the exception; both are empty if the test passed.
    """

    name: str
    status: Status
    kind: str = ""
    message: str = ""


@dataclass(frozen=True)
class Verdict:
    """The result of a program under a suite: one result per test to run, in order."""

    cases: tuple[CaseResult, ...]
    failure: Failure | None = None
    """Why the program itself did not reach its tests, or ended before they were over."""
    message: str = ""
    together: bool = False
    """Tests and candidate shared one process, so the candidate could have manipulated its judge."""
    seconds: float = field(default=0.0, compare=False)

    @property
    def share(self) -> float:
        """The share of the tests that passed; 0 if there are none."""
        return (
            sum(case.status == "passed" for case in self.cases) / len(self.cases)
            if self.cases
            else 0.0
        )

    @property
    def passed(self) -> bool:
        """Whether there are tests and all of them passed."""
        return bool(self.cases) and all(case.status == "passed" for case in self.cases)

    @property
    def deterministic(self) -> bool:
        """Whether another run would give the same result.

        This ignores clocks and entropy that the program reads.
        """
        ended = self.failure in (None, "syntax", "raised", "exited", "output")
        return ended and not any(
            case.status == "timeout" or case.kind == "MemoryError" for case in self.cases
        )
