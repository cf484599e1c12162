"""Tests of a program as trusted text, and what a program was worth under them."""

from dataclasses import dataclass, field, replace
from typing import Literal, Self

from motet.sandbox import plan
from motet.sandbox.plan import Kind
from motet.sandbox.report import Failure

Status = Literal["passed", "failed", "timeout", "not_run"]
"""`failed`: an assertion or any other exception. `timeout`: it took too long. `not_run`: something before it ended it all."""


@dataclass(frozen=True)
class Case:
    """One thing a suite asks: its name, and the text a person would read."""

    name: str
    text: str


@dataclass(frozen=True)
class Suite:
    """Trusted tests. Make one with `check`, `asserts` or `unittest`.

    The code under judgement lives in another process than the tests, which see its objects through stand-ins, unless `together`:
    needs.py says of a suite whether it must be. Asserts that are true whatever happens are no tests. Event loops and threads do
    not start in a sandbox.
    """

    kind: Kind
    source: str
    """check: text that defines `check(candidate)`. asserts: what runs before them. unittest: text with TestCase classes."""
    statements: tuple[str, ...] = ()
    """asserts: one statement each."""
    entry_point: str | None = None
    """check: the name of what `candidate` is. Others: the name that is tested, also where Python has one like it."""
    together: bool = False
    """One jail for tests and candidate, because these tests need the object itself. The verdict says so."""
    files: bool = False
    """Whether tests and candidate get a private scratch folder as their working directory; it vanishes afterwards."""
    only: tuple[int, ...] | None = None
    """Which tests to run, as indices of `cases`; all of them unless set."""

    @classmethod
    def check(cls, source: str, entry_point: str) -> Self:
        """HumanEval: every top-level statement of `check` that asserts is a test; all pass where `check` comes to its end."""
        return cls("check", source, entry_point=entry_point)

    @classmethod
    def asserts(cls, statements: tuple[str, ...], setup: str = "", entry_point: str | None = None) -> Self:
        """MBPP: one test per statement, after `setup`. What `setup` imports, programs find imported too."""
        return cls("asserts", setup, statements=statements, entry_point=entry_point)

    @classmethod
    def unittest(
        cls, source: str, *, entry_point: str | None = None, together: bool = False, files: bool = False
    ) -> Self:
        """ClassEval: one test per test method."""
        return cls("unittest", source, entry_point=entry_point, together=together, files=files)

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every test in order, whatever `only` says. Raises: ValueError where the source is no such suite."""
        return tuple(Case(test.name, test.text) for test in plan.find(self.text))

    @property
    def text(self) -> plan.Text:
        """What decides which tests there are."""
        return plan.Text(self.kind, self.source, self.statements)

    @property
    def chosen(self) -> tuple[int, ...]:
        """The tests that are to run, as indices of `cases`. Raises: ValueError for an index that is none."""
        count = len(plan.find(self.text))
        chosen = tuple(range(count)) if self.only is None else self.only
        if any(not 0 <= index < count for index in chosen) or len(set(chosen)) < len(chosen):
            raise ValueError(
                f"tests {chosen} of a suite with {count}: expected different numbers from 0 to {count - 1}"
            )
        return tuple(sorted(chosen))

    def choose(self, indices: tuple[int, ...]) -> Self:
        """The same suite, running only these of `cases`."""
        return replace(self, only=indices)


@dataclass(frozen=True)
class CaseResult:
    """What came of one test. `kind` and `message` (bounded) are those of the exception, empty where it passed."""

    name: str
    status: Status
    kind: str = ""
    message: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of a program under a suite: one result per test that was to run, in order."""

    cases: tuple[CaseResult, ...]
    failure: Failure | None = None
    """Why the program itself did not come as far as its tests, or did not come to its end."""
    message: str = ""
    together: bool = False
    """Tests and candidate shared one jail: the candidate could have reached its judge."""
    seconds: float = field(default=0.0, compare=False)

    @property
    def share(self) -> float:
        """The share of the tests that passed; 0 where there are none."""
        return sum(case.status == "passed" for case in self.cases) / len(self.cases) if self.cases else 0.0

    @property
    def passed(self) -> bool:
        """Whether there are tests and all of them passed."""
        return bool(self.cases) and all(case.status == "passed" for case in self.cases)

    @property
    def deterministic(self) -> bool:
        """Whether another run would end the same way, clocks and entropy of the program aside."""
        ended = self.failure in (None, "syntax", "raised", "exited", "output")
        return ended and not any(case.status == "timeout" or case.kind == "MemoryError" for case in self.cases)
