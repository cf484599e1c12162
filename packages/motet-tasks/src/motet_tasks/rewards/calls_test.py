import pytest
from pydantic import ValidationError

from motet_tasks.calls.reading import FunctionCall
from motet_tasks.rewards.calls import SequenceScore, SetScore, accepts, score_calls, similarity


def call(name: str, **arguments: object) -> FunctionCall:
    return FunctionCall(name, arguments)


NEEDED = [call("f", a=[1], b=[2, 3]), call("g")]
F, G = call("f", a=1, b=2), call("g")


@pytest.mark.parametrize(
    ("said", "levels"),
    [
        # .05 + .25 + .35 + .10 + .15 + .20
        (([F], [G]), 1.10),
        # parsed .05; names 2/3; arguments 1/2 of one call; count 1/2; balance 1/2; one is silent
        (([call("f", a=1)], []), 0.05 + 0.25 * 2 / 3 + 0.35 / 4 + 0.05 + 0.075 - 0.075),
        # both make both calls: balance 1 - 2/2, overlap 2/2
        (([F, G], [F, G]), 0.05 + 0.25 + 0.35 + 0.10 + 0.0 + 0.20 - 0.20),
        # names 4/5; arguments (2/3 + 1)/2; count, balance, extra and repeated 1/2
        (
            ([G, G, call("h")], [call("f", a=1, b=2, c=3)]),
            0.05 + 0.25 * 0.8 + 0.35 * 5 / 6 + 0.05 + 0.075 - 0.025 - 0.05,
        ),
        (([], []), -0.15),
    ],
)
def test_a_set_of_calls_by_hand(said, levels: float) -> None:
    found = score_calls(said, NEEDED, SetScore())
    assert found.levels == pytest.approx(levels)
    assert found.terms["exact"] == float(levels in (1.10, pytest.approx(0.75)))


def test_a_sequence_of_calls_by_hand() -> None:
    needed = [*NEEDED, call("f", a=[3], b=[4])]
    last = call("f", a=3, b=4)
    right = score_calls([[F, G], [last]], needed, SequenceScore())
    assert right.levels == pytest.approx(1.2)
    assert right.terms["exact"] == 1.0
    # Two of three in order, and none before the first that is wrong.
    swapped = score_calls([[G, F], [last]], needed, SequenceScore())
    assert (swapped.terms["order"], swapped.terms["prefix"]) == (pytest.approx(2 / 3), 0.0)
    assert swapped.levels == pytest.approx(0.05 + 0.15 + 0.20 + 0.25 * 2 / 3 + 0.10 + 0.15)
    assert swapped.terms["exact"] == 0.0
    partly = score_calls([[call("f", a=1), G], [call("h")]], needed, SequenceScore())
    assert partly.terms["prefix"] == partly.terms["order"] == pytest.approx(1.5 / 3)


def test_the_order_does_not_matter_for_a_set() -> None:
    assert score_calls([[G], [F]], NEEDED, SetScore()).terms["exact"] == 1.0
    assert score_calls([[G], [F]], NEEDED, SequenceScore()).terms["exact"] == 0.0


def test_a_sequence_counts_calls_of_two_agents_twice() -> None:
    found = score_calls([[F, G], [G]], NEEDED, SequenceScore())
    assert (found.terms["extra"], found.terms["overlap"], found.terms["exact"]) == (0.5, 0.5, 0.0)


def test_the_sum_stays_in_its_bounds() -> None:
    assert score_calls([[], []], NEEDED, SetScore(lowest=-0.1)).levels == -0.1
    assert score_calls([[F], [G]], NEEDED, SetScore(highest=1.0)).levels == 1.0
    with pytest.raises(ValidationError, match=r"got lowest 2\.0 and highest 1\.2"):
        SetScore(lowest=2.0)


def test_nothing_that_is_needed_is_no_success() -> None:
    found = score_calls([[], []], [], SetScore())
    assert (found.terms["exact"], found.terms["count"], found.terms["balance"]) == (0.0, 1.0, 0.0)


def test_the_most_similar_calls_are_paired_first() -> None:
    needed = [call("f", a=[1], b=[1]), call("f", a=[1], b=[2])]
    # The second call fits the first needed one by half, but it is right for the other.
    found = score_calls([[call("f", a=1, b=3)], [call("f", a=1, b=1)]], needed, SetScore())
    assert found.terms["arguments"] == pytest.approx((1.0 + 0.5) / 2)


@pytest.mark.parametrize(
    ("made", "value"),
    [
        (call("f", a=1, b=2), 1.0),
        (call("f", a=1, b=9), 0.5),
        (call("f", a=1, b=2, c=0, d=0), 0.5),
        (call("f"), 0.0),
        (call("g", a=1, b=2), 0.0),
    ],
)
def test_similarity_is_the_share_of_right_arguments(made, value: float) -> None:
    assert similarity(made, NEEDED[0]) == value


def test_a_call_without_arguments() -> None:
    assert similarity(G, G) == 1.0
    assert similarity(call("g", a=1), G) == 0.7


def test_an_optional_argument_may_be_left_out_if_asked() -> None:
    needed = call("f", a=[1], unit=["C", ""])
    assert similarity(call("f", a=1), needed) == 0.5
    assert similarity(call("f", a=1), needed, optional=True) == 1.0
    assert similarity(call("f", a=1, unit="F"), needed, optional=True) == 0.5
    assert similarity(call("f"), call("f", unit=[""]), optional=True) == 1.0


@pytest.mark.parametrize(
    ("accepted", "value", "found"),
    [
        (["Oslo", "Bergen"], " 'oslo' ", True),
        (["Oslo"], "Bergen", False),
        ([2], 2.0000001, True),
        ([2], "2", False),
        ([True], True, True),
        ([[1, 2]], [1, 2], True),
        ([[1, 2]], [2, 1], False),
        ([[1, 2]], 2, False),
        ([[1, 2], [3]], [3], True),
        ([[{"x": [1, 5], "y": ["a"]}]], [{"x": 5, "y": "A"}], True),
        ([[{"x": [1, 5], "y": ["a"]}]], [{"x": 2, "y": "A"}], False),
        ([[{"x": [1]}, {"x": [2]}]], [{"x": 1}], False),
        ([{"x": [1, 5]}], {"x": 5}, True),
        ([{"x": [1, 5]}], {"x": 5, "y": 0}, False),
        ([], "", False),
        ([10**400], 1.5, False),
        ("Oslo", "OSLO", True),
    ],
)
def test_accepted_values(accepted, value, found: bool) -> None:
    assert accepts(accepted, value) == found
