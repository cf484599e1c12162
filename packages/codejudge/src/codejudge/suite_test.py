import pytest

from codejudge import Case, CaseResult, Suite, Verdict
from tests.fixtures.messages import facts

CHECK = """
METADATA = {}

def check(candidate):
    import math
    assert candidate(1) == 1
    assert True, "always"
    x = candidate(2)
    for each in range(3):
        assert candidate(each) == each
    print(x)
"""
CLASSES = """
import unittest

class Base(unittest.TestCase):
    def test_b(self):
        pass

class ATest(Base):
    def setUp(self): pass
    def test_a(self): pass
    @unittest.skip("not now")
    def test_c(self): pass

@unittest.skip("not ever")
class Never(unittest.TestCase):
    def test_d(self): pass

class Helper:
    def test_e(self): pass
"""


def test_the_statements_of_check_that_assert_are_its_cases() -> None:
    cases = Suite.check(CHECK, "f").cases
    assert [case.name for case in cases] == ["test 1", "test 2"]
    assert cases[0].text == "assert candidate(1) == 1"
    assert cases[1].text == "for each in range(3):\n    assert candidate(each) == each\nprint(x)", (
        "the rest is the last one's"
    )


def test_a_check_without_asserts_is_one_case() -> None:
    assert Suite.check("def check(candidate):\n    candidate(1)\n    assert True", "f").cases == (
        Case("test 1", "candidate(1)\nassert True"),
    )


def test_a_statement_that_calls_a_function_that_asserts_is_a_case() -> None:
    source = """
def same(x, y): assert x == y
def twice(x, y): same(x, y); same(y, x)
def check(candidate):
    def inner(x): assert x
    twice(candidate(1), 1)
    y = candidate(2)
    inner(y)
"""
    assert [case.text for case in Suite.check(source, "f").cases] == [
        "twice(candidate(1), 1)",
        "inner(y)",
    ]


def test_each_statement_is_a_case_but_those_that_ask_nothing() -> None:
    suite = Suite.asserts(("assert f(1) == 2", "assert True", "assert f(2)"), "import math")
    assert suite.cases == (Case("test 1", "assert f(1) == 2"), Case("test 2", "assert f(2)"))


def test_the_test_methods_of_test_classes_are_cases_inherited_ones_too() -> None:
    assert [case.name for case in Suite.unittest(CLASSES).cases] == [
        "Base.test_b",
        "ATest.test_a",
        "ATest.test_b",
    ]
    assert Suite.unittest(CLASSES).cases[1].text == "def test_a(self): pass"


@pytest.mark.parametrize(
    "suite",
    [
        Suite.check("def chek(candidate): assert candidate(1)", "f"),
        Suite.check("def check(candidate:", "f"),
        Suite.asserts(("assert True",)),
        Suite.asserts(("assert (",)),
        Suite.unittest("class T: pass"),
    ],
)
def test_what_is_no_such_suite_is_a_value_error(suite: Suite) -> None:
    with pytest.raises(ValueError, match="suite"):
        _ = suite.cases


def test_tests_are_chosen_by_their_indices() -> None:
    suite = Suite.asserts(("assert f(1)", "assert f(2)", "assert f(3)"))
    assert suite.chosen == (0, 1, 2)
    assert suite.choose((2, 0)).chosen == (0, 2)
    assert suite.choose((2, 0)).cases == suite.cases
    for wrong in ((3,), (-1,), (1, 1)):
        with pytest.raises(
            ValueError,
            match="expected different numbers from 0 to 2, because the suite has 3 tests",
        ):
            _ = suite.choose(wrong).chosen


def test_a_verdict_passes_where_there_are_tests_and_all_pass() -> None:
    passed, failed = CaseResult("a", "passed"), CaseResult("b", "failed", "AssertionError")
    assert Verdict((passed, passed)).passed
    assert Verdict((passed, failed)).share == 0.5
    assert not Verdict((passed, failed)).passed
    assert not Verdict(()).passed
    assert Verdict(()).share == 0.0


def test_what_time_memory_or_a_signal_decided_may_end_otherwise_next_time() -> None:
    passed = CaseResult("a", "passed")
    assert Verdict((passed,)).deterministic
    assert Verdict((passed,), "raised").deterministic
    assert not Verdict((passed,), "crashed").deterministic
    assert not Verdict((passed, CaseResult("b", "timeout", "timeout"))).deterministic
    assert not Verdict((passed, CaseResult("b", "failed", "MemoryError"))).deterministic


def test_the_statements_of_a_suite_may_be_a_column_of_a_dataset():
    listed = Suite.asserts(["assert f(1) == 2", "assert f(2) == 3"])
    assert listed == Suite.asserts(("assert f(1) == 2", "assert f(2) == 3"))
    assert len(listed.cases) == 2
    with pytest.raises(TypeError, match=facts("'assert f(1) == 2' … expected … list")):
        Suite.asserts("assert f(1) == 2")
