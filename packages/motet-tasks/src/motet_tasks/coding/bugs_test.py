import pytest

from codejudge import CaseResult, Verdict
from codejudge.source import Source
from motet.errors import ConfigError
from motet_tasks.coding.bugs import QUICK, Bug, made_bugs, proven, read_bug, undocumented
from tests.fixtures.messages import facts

PROMPT = '''\
import math


def total(xs):
    """Sum of squares.

    >>> total([7])
    49
    """
'''
SOLUTION = "    squares = [x * x for x in xs]\n    return math.floor(sum(squares))\n"
ROW = {
    "task_id": "t/1",
    "prompt": PROMPT,
    "entry_point": "total",
    "canonical_solution": SOLUTION,
    "test": (
        "def check(candidate):\n    assert candidate([]) == 0\n    assert candidate([1, 2]) == 5\n"
    ),
}
GIVEN = {
    **ROW,
    "buggy_solution": SOLUTION.replace("x * x", "x + x"),
    "bug_type": "operator misuse",
    "failure_symptoms": "incorrect output",
    "declaration": "import math\n\n\ndef total(xs):\n",
    "import": "",
    "test_setup": "import string",
    "test": "\n\ndef check(total):\n    assert total([1, 2]) == 5\n\ncheck(total)",
    "example_test": "def check(total):\n    assert total([7]) == 49\ncheck(total)\n",
}
MBPP = {
    "task_id": 7,
    "text": "Write a function to add two numbers.",
    "code": "def add(a, b):\r\n\treturn a + b",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    "test_setup_code": "",
}


def test_a_row_of_humanevalfix_is_a_bug():
    bug = read_bug(GIVEN)
    assert (
        bug.program
        == "def total(xs):\n    squares = [x + x for x in xs]\n    return math.floor(sum(squares))"
    )
    assert bug.solution == bug.program.replace("x + x", "x * x")
    assert (bug.id, bug.kind, bug.lines) == ("t/1", "operator misuse", {2})
    assert bug.with_code(Source(bug.program)).sources == ["import math", bug.program]
    assert bug.problem.examples == ("assert total([7]) == 49",)


def test_its_tests_are_run_by_whoever_judges():
    suite = read_bug(GIVEN).problem.suite
    assert [case.text for case in suite.cases] == ["assert total([1, 2]) == 5"]
    assert "\nimport string\n" in suite.source
    assert "\ncheck(" not in suite.source


def test_a_bug_outlives_json():
    bug = read_bug(GIVEN)
    assert Bug.load(bug.id, bug.fields) == bug


def test_a_row_without_a_bug_says_how_to_make_one():
    with pytest.raises(
        ConfigError, match=r"row t/1 has no buggy_solution.*set environment\.mutate: true"
    ):
        read_bug(ROW)


@pytest.mark.parametrize("row", [ROW, MBPP])
def test_bugs_are_made_of_any_solution_and_always_the_same(row):
    bugs = made_bugs(row, 0, 6)
    assert bugs == made_bugs(row, 0, 6)
    assert bugs != made_bugs(row, 1, 6)
    assert len({bug.program for bug in bugs}) == len(bugs) >= 4
    assert all(bug.program != bug.solution and bug.lines for bug in bugs)
    assert all('"""' not in bug.program for bug in bugs)


def test_a_row_without_a_solution_cannot_be_broken():
    row = {key: value for key, value in ROW.items() if key != "canonical_solution"}
    with pytest.raises(ConfigError, match=facts("t/1 … no solution … canonical_solution")):
        made_bugs(row, 0, 1)


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ('def f():\n    """One."""\n    return 1', "def f():\n    return 1"),
        ("def f():\n    '''One.\n\n    Two.\n    '''\n\n    return 1", "def f():\n    return 1"),
        ('x = 1\ndef f():\n  "é"\n  return "é"', 'x = 1\ndef f():\n  return "é"'),
        ('def f(): "One."; return 1', None),
        ('def f():\n    """One."""', None),
        ('def f():\n    """One."""  # two\n    return 1', None),
        ("def f(", None),
        ('def g():\n    """One."""\n    return 1', None),
    ],
)
def test_what_a_function_should_do_is_taken_out_of_it(code, left):
    assert undocumented(code, "f") == (code if left is None else left)


class Judge:
    """Returns `statuses` as verdicts, for the solution first and then for the bugs in order.

    Records what it was asked.
    """

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.asked = []

    def __call__(self, programs, suite, limits):
        self.asked.append((len(programs), limits))
        said = [self.statuses.pop(0) for _ in programs]
        return [
            Verdict(tuple(CaseResult(str(n), status) for n, status in enumerate(each)))
            for each in said
        ]


PASSED, FAILED, LATE = ("passed", "passed"), ("passed", "failed"), ("passed", "timeout")


def numbers(bugs):
    return [int(bug.id.rpartition(" ")[2]) for bug in bugs]


def test_a_mutant_that_passes_all_tests_is_no_bug():
    judge = Judge(PASSED, PASSED, FAILED, PASSED, FAILED)
    assert numbers(proven(made_bugs(ROW, 0, 8), 2, (0, 1), judge)) == [2, 4]
    assert judge.asked == [(1, None), (4, QUICK)]  # the first batch is enough


def test_only_tests_that_grade_prove_a_bug():
    judge = Judge(PASSED, FAILED, FAILED, ("failed", "passed"), PASSED)
    assert numbers(proven(made_bugs(ROW, 0, 4), 2, (0,), judge)) == [3]


def test_what_never_ends_is_the_last_choice_and_must_fail_with_time_enough():
    judge = Judge(PASSED, LATE, FAILED, LATE, PASSED, PASSED, LATE)
    assert numbers(proven(made_bugs(ROW, 0, 4), 2, (0, 1), judge)) == [2, 3]
    assert judge.asked == [(1, None), (4, QUICK), (1, None), (1, None)]


def test_a_solution_that_fails_has_no_bugs():
    assert proven(made_bugs(ROW, 0, 4), 2, (0, 1), Judge(FAILED)) == []
    assert proven([], 2, (0, 1), Judge()) == []
