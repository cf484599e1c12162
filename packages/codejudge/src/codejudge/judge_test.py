import builtins
import marshal
import unittest
from typing import Any

import pytest

from codejudge import Suite, plan, program
from codejudge.judge import Bench, Seal, examine
from codejudge.protocol import BEGIN, DONE, Compiled


def examined(
    suite: Suite, source: str, seal: Seal | None = None
) -> tuple[list[Any], tuple[str | None, str, str]]:
    """Run a suite in the program's namespace. Return the result of each test and how it ended."""
    lines: list[list[Any]] = []
    compiled = Compiled(*marshal.loads(plan.compiled(suite.text, suite.entry_point, suite.chosen)))
    space: dict[str, Any] = {"__name__": "candidate"}
    assert program.run([source], space) == (None, "")
    end = examine(compiled, space, Bench(lines.append, lambda: None, seal or Seal()))
    begun = [line[1] for line in lines if line[0] == BEGIN]
    done = [line[1:] for line in lines if line[0] == DONE]
    assert begun == [index for index, status, *_ in done if status != "not_run"], (
        "one at a time, in order"
    )
    return [(status, kind) if kind else status for _, status, kind, _ in done], end


FINE = (None, "", "")


def test_a_failing_test_does_not_stop_the_next() -> None:
    check = Suite.check(
        "def check(f):\n    assert f(1) == 1\n    assert f(2) == 0\n"
        "    x = f(3)\n    assert x == 3",
        "f",
    )
    assert examined(check, "def f(x): return x") == (
        ["passed", ("failed", "AssertionError"), "passed"],
        FINE,
    )
    assert examined(check, "def f(x): raise SystemExit") == (
        [("failed", "SystemExit"), ("failed", "SystemExit")],
        ("suite", "SystemExit", ""),
    ), "where the set-up between tests fails, the rest does not run"
    assert examined(check, "def g(x): return x") == ([("failed", "NameError")] * 3, FINE)


def test_a_check_that_returns_early_is_content_with_the_rest() -> None:
    check = Suite.check(
        "def check(candidate):\n    assert candidate\n"
        "    if candidate(0): return\n    assert candidate(1)",
        "f",
    )
    assert examined(check, "def f(x): return x == 0") == (["passed", "passed"], FINE)
    assert examined(check, "def f(x): return False") == (
        ["passed", ("failed", "AssertionError")],
        FINE,
    )


def test_what_stands_behind_the_last_test_is_part_of_it() -> None:
    check = Suite.check("def check(candidate):\n    assert candidate(1)\n    candidate(0)", "f")
    assert examined(check, "def f(x): return 1 // x") == ([("failed", "ZeroDivisionError")], FINE)


def test_statements_share_what_their_set_up_made() -> None:
    suite = Suite.asserts(("assert f(xs) == 1", "assert xs == [1]", "assert 1 / 0"), "xs = [1]")
    assert examined(suite, "def f(xs): return xs[0]")[0] == [
        "passed",
        "passed",
        ("failed", "ZeroDivisionError"),
    ]
    broken = Suite.asserts(("assert f(1)",), "f(0)")
    assert examined(broken, "def f(x): return 1 / x") == (
        [],
        ("suite", "ZeroDivisionError", "division by zero"),
    )


CLASSES = """
import unittest
log = []
def setUpModule(): log.append("module")
class A(unittest.TestCase):
    @classmethod
    def setUpClass(cls): log.append("class")
    def setUp(self): log.append("up"); self.x = f(1)
    def tearDown(self): log.append("down")
    def test_a(self): self.assertEqual(self.x, 1)
    def test_b(self): self.assertEqual(log, ["module", "class", "up", "down", "up"])
    @unittest.expectedFailure
    def test_c(self): self.assertEqual(self.x, 2)
    @unittest.expectedFailure
    def test_d(self): self.assertEqual(self.x, 1)
    def test_e(self):
        for i in (1, 2):
            with self.subTest(i=i): self.assertEqual(self.x, i)
    def test_f(self): self.skipTest("later")
class B(unittest.TestCase):
    @classmethod
    def setUpClass(cls): f(0)
    def test(self): pass
class C(unittest.TestCase):
    def setUp(self): f(0)
    def test(self): pass
class D(unittest.TestCase):
    @classmethod
    def tearDownClass(cls): f(0)
    def test_a(self): pass
    def test_b(self): pass
"""


def test_classes_run_as_unittest_runs_them() -> None:
    expected = [
        "passed", "passed", "passed", ("failed", "UnexpectedSuccess"), ("failed", "AssertionError"),
        "passed", ("not_run", "ZeroDivisionError"), ("failed", "ZeroDivisionError"), "passed",
        ("failed", "ZeroDivisionError"),
    ]  # fmt: skip
    assert examined(Suite.unittest(CLASSES), "def f(x): return 1 // x") == (expected, FINE)


def test_only_a_suite_that_speaks_of_skipping_may_skip() -> None:
    suite = Suite.unittest("import unittest\nclass T(unittest.TestCase):\n    def test(self): f()")
    assert examined(suite, "import unittest\ndef f(): raise unittest.SkipTest('no')")[0] == [
        ("failed", "SkipTest")
    ]


SKIPPING = """
import sys, unittest
class T(unittest.TestCase):
    def test_a(self):
        if f(1) is None: self.skipTest("nothing to test")
        self.assertEqual(f(1), 1)
    @unittest.skipIf(f(1) is None, "nothing to test")
    def test_b(self): self.assertEqual(f(1), 1)
    def test_c(self):
        value = f(1)
        if value is None: raise unittest.SkipTest("nothing to test")
    @unittest.skipIf(sys.version_info < (99,), "an older machine")
    def test_d(self): self.assertEqual(f(1), 1)
    def test_e(self):
        if sys.platform: self.skipTest("this machine")
        self.assertEqual(f(1), 1)
    def test_f(self): self.assertEqual(f(1), 1)
class U(unittest.TestCase):
    def setUp(self):
        self.value = f(1)
        if self.value is None: self.skipTest("nothing to test")
    def test(self): self.assertEqual(self.value, 1)
"""


@pytest.mark.parametrize("together", [False, True])
def test_a_program_cannot_choose_that_a_test_is_skipped(together: bool) -> None:
    suite = Suite.unittest(SKIPPING, entry_point="f", together=together)
    bad = ("failed", "SkipTest")
    wrong = [bad, bad, bad, "passed", "passed", ("failed", "AssertionError"), bad]
    assert examined(suite, "def f(x): return None")[0] == wrong
    right = ["passed"] * 7
    assert examined(suite, "def f(x): return x")[0] == right


def test_a_program_that_patches_its_judge_is_noticed_and_the_judge_mended() -> None:
    suite = Suite.unittest(
        "import unittest\nclass T(unittest.TestCase):\n"
        "    def test_a(self): f()\n    def test_b(self): self.fail()"
    )
    source = "import unittest\ndef f(): unittest.TestCase.fail = lambda *_: None"
    seal = Seal(unittest.TestCase)
    assert examined(suite, source, seal)[0] == [
        ("failed", "Tampered"),
        ("failed", "AssertionError"),
    ]
    assert not seal.broken()


def test_a_seal_mends_what_was_changed_added_or_taken_away() -> None:
    seal, before = Seal(builtins), dict(vars(builtins))
    builtins.len, builtins.new = max, 1  # type: ignore[assignment, attr-defined]
    del builtins.ascii
    assert seal.broken()
    assert vars(builtins) == before
    assert not seal.broken()
