"""Runs a suite's tests and says, one line a time, what came of them. Trusted code that meets untrusted objects.

The lines, each behind a secret: [BEGIN, index], [DONE, index, status, kind, message], and last [END, how, kind, message]. An
index counts the chosen tests.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from unittest import TestCase
from unittest.case import doModuleCleanups

from motet.sandbox import protocol
from motet.sandbox.program import described
from motet.sandbox.protocol import Compiled
from motet.sandbox.world import Gone

Say: TypeAlias = Callable[[list[Any]], None]


class Broken(BaseException):
    """The judge itself failed. Not an Exception, so that no test catches it."""


class _Failed(Exception):
    """A test failed with an exception of the class and message given."""


class Seal:
    """Notices where a program that shares this process has patched what judges it, and mends it."""

    def __init__(self, *owners: Any) -> None:
        self._owners = [(owner, dict(vars(owner))) for owner in owners]

    def broken(self) -> bool:
        """Whether anything is patched now; it is mended."""
        found = False
        for owner, saved in self._owners:
            now = vars(owner)
            for name in [name for name in (now.keys() | saved.keys()) if now.get(name) is not saved.get(name)]:
                found = True
                if name in saved:
                    setattr(owner, name, saved[name])
                else:
                    delattr(owner, name)
        return found


class Bench:
    """Where tests are run one after the other."""

    def __init__(self, say: Say, lost: Callable[[], BaseException | None], seal: Seal) -> None:
        """`lost` raises Gone where the candidate is, and returns an assertion that the candidate kept to itself."""
        self._say, self._lost, self._seal = say, lost, seal
        self.done: set[int] = set()

    def case(self, index: int) -> "_Case":
        """A block that is one test: whatever it raises is its failure. Raises: Gone, where the candidate is."""
        return _Case(self, index)

    def begin(self, index: int) -> None:
        self._tell([protocol.BEGIN, index])

    def result(self, index: int, status: str, kind: str = "", message: str = "") -> None:
        kept = self._lost()  # whatever the test made of it
        if self._seal.broken():
            status, kind, message = "failed", "Tampered", "the program patched what judges it"
        elif kept is not None and status == "passed":
            status, (kind, message) = "failed", described(kept)
        self.done.add(index)
        self._tell([protocol.DONE, index, status, kind, message])

    def _tell(self, line: list[Any]) -> None:
        try:
            self._say(line)
        except MemoryError:
            raise  # values of the candidate may have taken all
        except Exception as error:
            raise Broken(*described(error)) from error


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
        else:  # of whatever class: a test of a program that calls sys.exit() has failed
            self._bench.result(self._index, "failed", *described(error))
        return True


def examine(suite: Compiled, space: dict[str, Any], bench: Bench) -> tuple[str | None, str, str]:
    """Runs a compiled suite in a namespace where the candidate's names can be found; returns how it ended.

    Ends: None, or "suite" with the class and message of what the suite's own set-up raised. Raises: Gone.
    """
    space[protocol.CASE] = bench.case
    try:
        exec(suite.first, space)  # noqa: S102
        _RUN[suite.kind](suite, space, bench)
    except (Gone, Broken):
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
            pass  # `check` returned before it came here, and is content


def _run_asserts(suite: Compiled, space: dict[str, Any], bench: Bench) -> None:
    for index, code in enumerate(suite.entries):
        with bench.case(index):
            exec(code, space)  # noqa: S102


# ---------------------------------------------------------------------------------------------------- unittest


class _Outcome:
    """What unittest tells about one test; the first bad news counts."""

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
        _run_class(space[owner], members, bench, suite.skips, end_module if owner == owners[-1] else lambda: None)


def _run_class(
    kind: Any, methods: Sequence[tuple[int, str]], bench: Bench, skips: bool, then: Callable[[], None]
) -> None:
    """`then` is called behind the last test, and is a part of it."""
    try:
        kind.setUpClass()
    except BaseException as error:  # noqa: BLE001
        for index, _ in methods:
            bench.result(index, "not_run", *described(error))
        return
    last = methods[-1][0]
    for index, method in methods:
        with bench.case(index):
            outcome = _Outcome(skips)
            kind(method).run(outcome)
            if index == last:  # so that what goes wrong there is somebody's failure
                kind.tearDownClass()
                kind.doClassCleanups()
                for _, unclean, _ in kind.tearDown_exceptions:
                    raise unclean
                then()
            if outcome.bad is not None:
                raise _Failed(*outcome.bad)


_RUN: Final = {"check": _run_check, "asserts": _run_asserts, "unittest": _run_classes}
