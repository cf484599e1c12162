"""Run the tests of a suite and write their results, one line per event.

This is trusted code that handles untrusted objects.

The lines are [BEGIN, index], [DONE, index, status, kind, message], and at last
[END, how, kind, message]. Each line starts with a secret. An index is a position among the chosen
tests.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from unittest import TestCase
from unittest.case import doModuleCleanups

from codejudge import protocol
from codejudge.candidate_client import Gone
from codejudge.program import described
from codejudge.protocol import Compiled

Say: TypeAlias = Callable[[list[Any]], None]


class JudgeFailure(BaseException):
    """The judge itself failed. No subclass of Exception, so tests do not catch it by accident."""


class _Failed(Exception):
    """A test failed with an exception of the class and message given."""


class Seal:
    """Detect and undo patches of the judge's own objects by a program in the same process.

    `owners` are the modules and classes to protect.
    """

    def __init__(self, *owners: Any) -> None:
        self._owners = [(owner, dict(vars(owner))) for owner in owners]

    def broken(self) -> bool:
        """Return whether anything was patched since the last call, and restore it."""
        found = False
        for owner, saved in self._owners:
            now = vars(owner)
            for name in [
                name for name in (now.keys() | saved.keys()) if now.get(name) is not saved.get(name)
            ]:
                found = True
                if name in saved:
                    setattr(owner, name, saved[name])
                else:
                    delattr(owner, name)
        return found


class Bench:
    """Run tests one after the other and report their results."""

    def __init__(self, say: Say, lost: Callable[[], BaseException | None], seal: Seal) -> None:
        """`lost` raises Gone if the candidate has ended.

        Otherwise it returns a failed assertion that the candidate caught and did not propagate, or
        None.
        """
        self._say, self._lost, self._seal = say, lost, seal
        self.done: set[int] = set()

    def case(self, index: int) -> "_Case":
        """Return a context manager for one test. Any exception in its block fails the test.

        Raises: Gone if the candidate has ended.
        """
        return _Case(self, index)

    def begin(self, index: int) -> None:
        self._tell([protocol.BEGIN, index])

    def result(self, index: int, status: str, kind: str = "", message: str = "") -> None:
        kept = self._lost()  # counts even if the test passed
        if self._seal.broken():
            status, kind, message = "failed", "Tampered", "the program changed code of the judge"
        elif kept is not None and status == "passed":
            status, (kind, message) = "failed", described(kept)
        self.done.add(index)
        self._tell([protocol.DONE, index, status, kind, message])

    def _tell(self, line: list[Any]) -> None:
        try:
            self._say(line)
        except MemoryError:
            raise  # the candidate's values may have filled the memory
        except Exception as error:
            raise JudgeFailure(*described(error)) from error


class _Case:
    def __init__(self, bench: Bench, index: int) -> None:
        self._bench, self._index = bench, index

    def __enter__(self) -> None:
        self._bench.begin(self._index)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if error is None:
            self._bench.result(self._index, "passed")
        elif isinstance(error, _Failed):
            self._bench.result(self._index, "failed", *error.args)
        else:  # any class, also SystemExit: if the program calls sys.exit(), the test fails
            self._bench.result(self._index, "failed", *described(error))
        return True


def examine(suite: Compiled, space: dict[str, Any], bench: Bench) -> tuple[str | None, str, str]:
    """Run a compiled suite in `space`, which also resolves the candidate's names.

    Returns (None, "", "") normally. If the suite's own set-up raised an exception, it returns
    ("suite", class name, message). Raises: Gone if the candidate has ended, JudgeFailure if the
    judge itself failed.
    """
    space[protocol.CASE] = bench.case
    try:
        exec(suite.first, space)  # noqa: S102
        _RUN[suite.kind](suite, space, bench)
    except (Gone, JudgeFailure):
        raise
    except BaseException as error:  # noqa: BLE001
        return "suite", *described(error)
    return None, "", ""


def _run_check(suite: Compiled, space: dict[str, Any], bench: Bench) -> None:
    name, count = suite.entries
    try:
        candidate = eval(name, space)  # noqa: S307 - the suite's own text
    except Exception as error:
        for index in range(count):
            with bench.case(index):
                raise error
        return
    space["check"](candidate)
    for index in sorted(set(range(count)) - bench.done):
        with bench.case(index):
            pass  # `check` returned before this test, so the test passes


def _run_asserts(suite: Compiled, space: dict[str, Any], bench: Bench) -> None:
    for index, code in enumerate(suite.entries):
        with bench.case(index):
            exec(code, space)  # noqa: S102


# ------------------------------------------------------------ unittest


class _Outcome:
    """Result object that unittest reports one test to. It keeps the first failure."""

    def __init__(self, skips: bool) -> None:
        self._skips = skips
        self.bad: tuple[str, str] | None = None

    def _failed(self, error: tuple[Any, BaseException, Any]) -> None:
        self.bad = self.bad or described(error[1])

    def addError(self, test: TestCase, error: Any) -> None:
        self._failed(error)

    def addFailure(self, test: TestCase, error: Any) -> None:
        self._failed(error)

    def addSubTest(self, test: TestCase, part: TestCase, error: Any) -> None:
        if error is not None:
            self._failed(error)

    def addUnexpectedSuccess(self, test: TestCase) -> None:
        self.bad = self.bad or ("UnexpectedSuccess", "expected to fail")

    def addSkip(self, test: TestCase, reason: str) -> None:
        if not self._skips:
            self.bad = self.bad or ("SkipTest", str(reason)[:300])

    def addExpectedFailure(self, test: TestCase, error: Any) -> None:
        pass

    def addSuccess(self, test: TestCase) -> None:
        pass

    def startTest(self, test: TestCase) -> None:
        pass

    def stopTest(self, test: TestCase) -> None:
        pass

    def addDuration(self, test: TestCase, seconds: float) -> None:
        pass


def _run_classes(suite: Compiled, space: dict[str, Any], bench: Bench) -> None:
    if "setUpModule" in space:
        space["setUpModule"]()
    methods: dict[str, list[tuple[int, str]]] = {}
    for index, entry in enumerate(suite.entries):
        owner, _, method = entry.partition(".")
        methods.setdefault(owner, []).append((index, method))

    def end_module() -> None:
        if "tearDownModule" in space:
            space["tearDownModule"]()
        doModuleCleanups()

    owners = list(methods)
    for owner, members in methods.items():
        _run_class(
            space[owner],
            members,
            bench,
            suite.skips,
            end_module if owner == owners[-1] else lambda: None,
        )


def _run_class(
    kind: Any,
    methods: Sequence[tuple[int, str]],
    bench: Bench,
    skips: Sequence[str],
    then: Callable[[], None],
) -> None:
    """Run the test methods of one class. `then` is called after the last test, as a part of it."""
    try:
        kind.setUpClass()
    except BaseException as error:  # noqa: BLE001
        for index, _ in methods:
            bench.result(index, "not_run", *described(error))
        return
    last = methods[-1][0]
    for index, method in methods:
        with bench.case(index):
            outcome = _Outcome(f"{kind.__name__}.{method}" in skips)
            kind(method).run(outcome)
            if index == last:  # a failure in the tear-down counts as a failure of the last test
                kind.tearDownClass()
                kind.doClassCleanups()
                for _, unclean, _ in kind.tearDown_exceptions:
                    raise unclean
                then()
            if outcome.bad is not None:
                raise _Failed(*outcome.bad)


_RUN: Final = {"check": _run_check, "asserts": _run_asserts, "unittest": _run_classes}
