import asyncio
from dataclasses import dataclass

import pytest

from codejudge.suite import CaseResult, Suite, Verdict
from motet.core import Message
from motet.environments.history import Exchange
from motet_tasks.coding.turns import Examples, TurnOptions, Turns
from motet_tasks.feedback_modes import WITHOUT_TESTS, Attempt
from motet_tasks.scaling import Scaling
from tests.fixtures.messages import says

GRADING = Suite.asserts(("assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3"))
EXAMPLES = Suite.asserts(
    ("assert f(4) == 4", "assert f(5) == 5", "assert f(6) == 6", "assert f(7) == 7")
)
STATUSES = ("passed", "failed", "timeout", "not_run")
ATTEMPT = Attempt(
    "Write f.", {"main": "the function `f`"}, {"main": "?"}, {"main": ""}, {"main": []}, share=0.0
)
CODE = "def f(x): return x"


class Judge:
    """Gives the n-th case of a suite the n-th of STATUSES. Records what it was asked."""

    def __init__(self):
        self.judged = []

    async def judge(self, sources, suite):
        self.judged.append((list(sources), [suite.cases[index].text for index in suite.chosen]))
        return Verdict(
            tuple(CaseResult(suite.cases[index].name, STATUSES[index]) for index in suite.chosen)
        )


@dataclass
class Worth:
    levels: float
    success: float

    @property
    def terms(self):
        return {"success": self.success}


def made(judge=None, turns=2, reward=None, **options):
    chosen = TurnOptions(reward=reward or Scaling(), **options)
    return Turns(chosen, ("helper", "main"), sandbox=judge, turns=turns, expert=None, person=None)


def texts(suite):
    return None if suite is None else [suite.cases[index].text for index in suite.chosen]


@pytest.mark.parametrize(
    ("solution", "doubtful", "right"),
    [
        (None, False, (0, 1, 2, 3)),
        (None, True, ()),
        ([CODE], False, (0, 2, 3)),  # the solution fails 1
        ([CODE], True, (0,)),  # it passes 0
    ],
)
def test_examples_are_believed_unless_they_are_doubtful(solution, doubtful, right):
    found = asyncio.run(Examples(EXAMPLES, solution, doubtful).right(Judge()))
    assert texts(found) == ([EXAMPLES.cases[index].text for index in right] or None)


def test_where_no_example_is_right_there_are_none():
    wrong = Examples(EXAMPLES.choose((1,)), [CODE])
    assert asyncio.run(wrong.right(Judge())) is None


def test_tests_that_may_be_shown_do_not_grade_and_stand_before_examples():
    turns = made(feedback={"sandbox_slice": 1})
    assert texts(turns.grading(GRADING)) == ["assert f(2) == 2", "assert f(3) == 3"]
    assert texts(asyncio.run(turns.shown(GRADING, Examples(EXAMPLES)))) == ["assert f(1) == 1"]
    assert texts(asyncio.run(made().shown(GRADING, Examples(EXAMPLES)))) == texts(EXAMPLES)
    assert asyncio.run(made().shown(GRADING, None)) is None


@pytest.mark.parametrize(
    ("turn", "success", "stop", "done"),
    [
        (1, 0.0, True, False),
        (2, 0.0, True, True),
        (1, 1.0, True, True),
        (1, 1.0, False, False),
        (2, 1.0, False, True),
    ],
)
def test_a_turn_pays_all_alike_and_the_last_one_ends_it(turn, success, stop, done):
    paid = made(reward=Scaling(scale=2.0, shift=-1.0)).pay(
        "state", turn, Worth(3.0, success), stop=stop
    )
    assert (paid.state, paid.rewards, paid.done) == ("state", {"helper": 5.0, "main": 5.0}, done)
    assert paid.terms == {"success": success, "levels": 3.0}


def test_who_is_asked_hears_its_own_turns():
    asked = {"main": "write", "helper": "help"}
    past = Exchange(asked, {"main": "def f", "helper": "def aux"})
    assert made().observe({"main": "again"}, (past,)) == {
        "main": (Message("user", "write"), Message("assistant", "def f"), Message("user", "again"))
    }


def test_what_may_be_shown_is_run_and_told():
    judge = Judge()
    feedback = asyncio.run(
        made(judge, feedback={"sandbox_slice": 1}).feedback(ATTEMPT, [CODE], GRADING, None)
    )
    assert judge.judged == [([CODE], ["assert f(1) == 1"])]
    assert "- Passed: assert f(1) == 1" in feedback["main"]


def test_what_cannot_be_run_is_not():
    judge = Judge()
    feedback = asyncio.run(made(judge).feedback(ATTEMPT, [], GRADING, Examples(EXAMPLES)))
    assert judge.judged == []
    assert says(feedback["main"], "Revise … `f` … all of it … same form")
    assert "assert f" not in feedback["main"], "no test is shown"


@pytest.mark.parametrize("mode", sorted(WITHOUT_TESTS))
def test_feedback_that_says_nothing_of_tests_runs_none(mode):
    judge = Judge()
    turns = made(judge, feedback={"mode": mode, "sandbox_slice": 1})
    asyncio.run(turns.feedback(ATTEMPT, [CODE], GRADING, Examples(EXAMPLES, [CODE])))
    assert judge.judged == []
