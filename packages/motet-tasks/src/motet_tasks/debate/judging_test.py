import asyncio

import pytest

from motet.environments.debating import majority
from motet_tasks.debate.judging import (
    Labels,
    Numbers,
    ParsedAnswer,
    Terms,
    agreement,
)
from motet_tasks.rewards.maths import Maths, MathsFault


def judged(judge, text, gold):
    return asyncio.run(judge.judge(text, gold))


def test_a_number_is_right_by_value_and_in_form_in_a_box():
    assert judged(Numbers(), r"\boxed{\$1{,}200.00}", "1200") == ParsedAnswer(
        "1200", right=True, in_form=True
    )
    assert judged(Numbers(), "The answer is 1,200.", "1200") == ParsedAnswer(
        "1200", right=True, in_form=False
    )
    assert judged(Numbers(), r"\boxed{12}", "1200") == ParsedAnswer("12", right=False, in_form=True)
    assert judged(Numbers(), r"\boxed{twelve}", "12") == ParsedAnswer(
        None, right=False, in_form=False
    )
    assert judged(Numbers(), r"<think>\boxed{12}</think>The answer is 12.", "12") == ParsedAnswer(
        "12", right=True, in_form=False
    )


def test_a_label_is_right_by_its_name_and_in_form_in_a_box():
    assert judged(Labels(), r"\boxed{Neutral}", "neutral") == ParsedAnswer(
        "neutral", right=True, in_form=True
    )
    assert judged(Labels(), "It is neutral.", "neutral") == ParsedAnswer(
        "neutral", right=True, in_form=False
    )
    assert judged(Labels(), "Neutral or entailment.", "neutral") == ParsedAnswer(
        None, right=False, in_form=False
    )


def test_terms_are_right_by_what_they_mean():
    pytest.importorskip("math_verify", reason='needs pip install "motet[maths]"')
    judge = Terms(Maths(seconds=3.0))
    half = ParsedAnswer("1/2", right=True, in_form=True)
    assert judged(judge, r"First \boxed{3}, no: \boxed{\frac{1}{2}}", "0.5") == half
    assert judged(judge, "The answer is $0.5$.", r"\frac12") == ParsedAnswer(
        "1/2", right=True, in_form=False
    )
    assert judged(judge, "I give up.", "1") == ParsedAnswer(None, right=False, in_form=False)
    late = ParsedAnswer(None, right=False, in_form=True, timed_out=True)
    assert judged(judge, r"\boxed{9^{9^{9^{9}}}}", "5") == late
    assert judge.read(r"\boxed{\frac{1}{2}}") == "1/2"


def test_a_judge_that_is_broken_judges_nothing():
    with pytest.raises(MathsFault):
        judged(Terms(Maths(command=("false",))), r"\boxed{1}", "1")


@pytest.mark.parametrize(
    ("given", "winner", "share"),
    [
        (["a", "a", "b"], "a", 2 / 3),
        (["a", "b"], None, 1 / 2),
        (["a", None], "a", 1 / 2),
        (["a", "a", "b", "b", "c"], None, 2 / 5),
        (["a", "b", "b", "c", "d"], "b", 2 / 5),
        ([None, None], None, 0.0),
        (["a"], "a", 1.0),
    ],
)
def test_most_votes_win_and_a_tie_is_no_answer(given, winner, share):
    assert majority(given) == winner
    assert agreement(given) == share
