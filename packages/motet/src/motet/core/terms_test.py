"""The fields of a Transition, and their names in the records of a run."""

import copy
import pickle
from dataclasses import replace

import pytest

from motet.core import Outcome, Score, Transition
from motet.errors import ConfigError, EnvironmentFault
from tests.fixtures.messages import says

PAID = {"a": 1.0, "b": 0.0}
DEBATED = Transition(
    "state",
    PAID,
    True,
    {"agreement": 0.5},
    success=0.5,
    right={"a": True, "b": False},
    majority_right=False,
    bonus={"b": -0.25},
)


def test_the_records_name_every_field_in_one_order():
    assert list(DEBATED.terms.items()) == [
        ("right/a", 1.0),
        ("right/b", 0.0),
        ("majority", 0.0),
        ("success", 0.5),
        ("agreement", 0.5),
        ("personal/b", -0.25),
    ]


def test_an_outcome_says_again_what_the_transition_said():
    outcome = Outcome({"a": 0, "b": 0}, PAID, DEBATED.terms, end="done")
    assert (outcome.success, outcome.majority_right) == (0.5, 0.0)
    assert (outcome.right, outcome.bonus) == ({"a": 1.0, "b": 0.0}, {"b": -0.25})
    other = outcome.rewarded({"a": 3.0, "b": 3.0})
    assert other.bonus == {}
    assert (other.rewards, other.right, other.success) == ({"a": 3.0, "b": 3.0}, outcome.right, 0.5)


def test_what_is_not_said_has_no_term_and_is_none_or_empty():
    assert Transition(None, PAID, False).terms == {}
    silent = Outcome({}, PAID)
    assert (silent.success, silent.majority_right) == (None, None)
    assert silent.right == silent.bonus == {}


def test_success_leads_the_metrics_unless_they_give_it_a_place():
    plain = Transition(None, PAID, True, {"parses": 1.0, "kept": 0.0}, success=True)
    assert list(plain.terms) == ["success", "parses", "kept"]
    metrics = {"parses": 1.0, "success": 0.0, "kept": 0.0}
    placed = Transition(None, PAID, True, metrics, success=1.0)
    assert list(placed.terms.items()) == [("parses", 1.0), ("success", 1.0), ("kept", 0.0)]


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("success", "success=1.0"),
        ("right/a", "right={'a': 1.0"),
        ("majority", "majority_right=1.0"),
        ("personal/a", "bonus={'a': 1.0"),
    ],
)
@pytest.mark.parametrize(
    "made",
    [lambda **given: Transition(None, PAID, True, **given), lambda **given: Score(1, **given)],
)
def test_a_name_of_the_records_is_refused_with_the_field_to_use(made, name, field):
    with pytest.raises(ConfigError, match=r"(Transition|Score) got") as caught:
        made(metrics={name: 1.0})
    assert f"give {field}" in str(caught.value)


def test_the_fourth_argument_is_the_metrics_and_no_number():
    with pytest.raises(ConfigError, match=r"got 'success' among its metrics; give success=1\.0"):
        Transition(None, PAID, True, {"success": 1.0})
    with pytest.raises(ConfigError, match=r"got metrics 1\.0; expected a mapping"):
        Transition(None, PAID, True, 1.0)


def test_checked_makes_every_number_a_float():
    found = DEBATED.checked(("a", "b"))
    numbers = [*found.terms.values(), *found.rewards.values()]
    assert {type(number) for number in numbers} == {float}
    assert found == DEBATED  # True == 1.0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rewards": {"a": 1.0}}, "rewards … a … every agent … a, b"),
        (
            {"rewards": {"a": 1.0, "b": float("nan")}},
            "nan … reward of b … expected",
        ),
        ({"metrics": {"x": float("inf")}}, "inf for x"),
        ({"success": 1.5}, "1.5 … success … 0 to 1"),
        ({"success": -0.1}, "-0.1 for success"),
        ({"majority_right": 2}, "2.0 for majority_right"),
        ({"right": {"a": 3.0}}, "3.0 … right of a"),
        ({"right": {"c": 1.0}}, "right for c … a, b"),
        ({"bonus": {"c": 1.0}}, "bonus for c … a, b"),
        ({"bonus": {"a": float("nan")}}, "nan … bonus of a"),
    ],
)
def test_a_number_that_cannot_be_is_a_fault_that_names_its_field(change, said):
    with pytest.raises(EnvironmentFault) as caught:
        replace(DEBATED, **change).checked(("a", "b"))
    assert says(caught.value, said)


def test_a_transition_can_be_copied_and_pickled():
    assert copy.deepcopy(DEBATED) == pickle.loads(pickle.dumps(DEBATED)) == DEBATED
