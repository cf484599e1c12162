"""Difference rewards and Shapley values by hand."""

import math

import pytest
import torch

from motet.core import Completion, CreditState, Episode, Fault, Outcome, Round, Scores, Task, Team
from motet.core.coalitions import ORDERS, coalitions, joining_orders
from motet.credit.absent import Coalitions, coalitions_of
from motet.credit.assign import assign_credit
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.settings import Algorithm
from tests.fixtures.messages import facts

PAIR = ("a", "b")
PLAIN = {"repeat_last_reward": False}


def outcome(worth, next_=None, **picks):
    end = None if next_ is not None else "done"
    return Outcome(picks, {"a": worth, "b": 10 * worth}, next=next_, end=end)


def round_of(count, outcomes, without, turn=0):
    drawn = tuple(
        Completion("p", str(g), "stop", tokens=(g,), logprobs=(-1.0,)) for g in range(count)
    )
    return Round(
        turn,
        dict.fromkeys(PAIR, "?"),
        dict.fromkeys(PAIR, (0,)),
        dict.fromkeys(PAIR, drawn),
        tuple(outcomes),
        tuple(without),
    )


def read(root, turns=1, **algorithm):
    episodes = [Episode("e", Task("t", {}), root)]
    table = Table.of([("e", root)], PAIR, turns)
    rule = Algorithm(**PLAIN, **algorithm)
    returns_NJ = table.returns_NJ(rule, torch.zeros(len(table.samples), dtype=torch.float64))
    return coalitions_of(episodes, table, returns_NJ, rule, turns)


def advantages(root, turns=1, **algorithm):
    team = Team(dict.fromkeys(PAIR, ("p",)), decode={})
    rule = Algorithm(**PLAIN, **algorithm)
    credit = assign_credit(
        [Episode("e", Task("t", {}), root)], Scores(), rule, CreditState(), team, turns
    )
    return {(s.id.path, s.id.agent, s.id.index): s.mean_advantage for s in credit.samples}


ALIGNED = round_of(
    2,
    [outcome(5.0, a=0, b=0), outcome(3.0, a=1, b=1)],
    [
        outcome(1.0, b=0), outcome(2.0, b=1), outcome(4.0, a=0), outcome(0.5, a=1),
        outcome(0.25),
    ],
)  # fmt: skip


def test_without_an_agent_is_read_in_its_own_returns():
    assert read(ALIGNED).without().tolist() == [[1.0, 2.0], [40.0, 5.0]]


def test_shapley_values_of_two():
    # φ_a = ½(v(ab) − v(b)) + ½(v(a) − v()), in the returns of a; φ_b in those of b, ten times as
    # large. Of joint action 0: ½(5 − 1) + ½(4 − 0.25) = 3.875; 10·(½(5 − 4) + ½(1 − 0.25)) = 8.75.
    assert read(ALIGNED).shapley().tolist() == [[3.875, 0.625], [8.75, 21.25]]


def test_an_advantage_compares_difference_rewards_with_those_of_the_others():
    # D of a: 5 − 1 = 4 and 3 − 2 = 1. D of b: 50 − 40 = 10 and 30 − 5 = 25.
    assert advantages(ALIGNED, baseline="difference") == {
        ((), "a", 0): 3.0, ((), "a", 1): -3.0, ((), "b", 0): -15.0, ((), "b", 1): 15.0
    }  # fmt: skip


def test_ccpo_divides_difference_rewards_by_their_own_spread():
    # D of a: 4 and 1; D of b: 10 and 25. Each is one deviation from its mean.
    found = advantages(ALIGNED, credit={"baseline": "difference", "scale": "std"})
    assert found == pytest.approx(
        {((), "a", 0): 1.0, ((), "a", 1): -1.0, ((), "b", 0): -1.0, ((), "b", 1): 1.0}
    )


def test_an_advantage_compares_shapley_values_with_those_of_the_others():
    assert advantages(ALIGNED, baseline="shapley") == {
        ((), "a", 0): 3.25, ((), "a", 1): -3.25, ((), "b", 0): -12.5, ((), "b", 1): 12.5
    }  # fmt: skip


def test_a_game_that_goes_on_counts_with_its_later_turns():
    def later(worth):
        return round_of(1, [outcome(worth, a=0, b=0)], [], turn=1)

    root = round_of(
        1,
        [outcome(1.0, later(8.0), a=0, b=0)],
        [outcome(0.5, later(2.0), b=0), outcome(0.25, a=0)],
    )
    known = read(root, 2, gamma=0.5).without()
    assert known[:, 0].tolist() == [0.5 + 0.5 * 2.0, 10 * 0.25]
    assert known[:, 1].isnan().all()


def test_without_repeats_the_last_reward_as_the_game_does():
    root = round_of(1, [outcome(2.0, a=0, b=0)], [outcome(1.0, b=0), outcome(0.0, a=0)])
    rule = Algorithm(baseline="difference", repeat_last_reward=True)
    table = Table.of([("e", root)], PAIR, 3)
    returns_NJ = table.returns_NJ(rule, torch.zeros(2, dtype=torch.float64))
    found = coalitions_of([Episode("e", Task("t", {}), root)], table, returns_NJ, rule, 3)
    assert returns_NJ.tolist() == [[6.0], [60.0]]
    assert found.without().tolist() == [[3.0], [0.0]]


def test_a_counterpart_that_failed_is_not_known_and_its_sample_counts_as_it_is():
    broken = Outcome({"b": 0}, {}, fault=Fault("environment", "x", "y"))
    root = round_of(2, ALIGNED.outcomes, [broken, *ALIGNED.without[1:]])
    found = read(root).without()
    assert math.isnan(found[0, 0])
    assert found[0, 1] == 2.0
    # D of a: 5 in place of 4, and 1.
    assert advantages(root, baseline="difference")[(), "a", 0] == 4.0


def test_episodes_without_them_are_refused():
    root = round_of(2, ALIGNED.outcomes, [])
    with pytest.raises(
        ConfigError, match=facts("difference … 1 episodes … collect … absent='one'")
    ):
        advantages(root, baseline="difference")


def test_completions_that_only_play_a_game_to_its_end_are_not_trained():
    def later(*worths):
        outcomes = [outcome(worth, a=g, b=g) for g, worth in enumerate(worths)]
        return round_of(len(worths), outcomes, [], turn=1)

    once = Outcome({"a": 1, "b": 1}, {"a": 0.0, "b": 0.0}, next=later(6.0), once=True)
    root = round_of(2, [outcome(0.0, later(1.0, 3.0), a=0, b=0), once], [])
    found = advantages(root, 2, baseline="leave_one_out")
    assert {key: value for key, value in found.items() if key[1] == "a"} == {
        ((), "a", 0): -4.0, ((), "a", 1): 4.0, ((0,), "a", 0): -2.0, ((0,), "a", 1): 2.0
    }  # fmt: skip


def test_the_tree_that_goes_on_carries_the_share_of_those_played_once():
    def later(count):
        return round_of(count, [outcome(1.0, a=g, b=g) for g in range(count)], [], turn=1)

    once = [
        Outcome({"a": g, "b": g}, {"a": 0.0, "b": 0.0}, next=later(1), once=True) for g in (1, 2)
    ]
    root = round_of(3, [outcome(0.0, later(2), a=0, b=0), *once], [])
    table = Table.of([("e", root)], PAIR, 2)
    shares = {(s.id.path, s.id.index): s.share for s in table.samples if s.id.agent == "a"}
    third = pytest.approx(1 / 3)
    assert shares == {
        ((), 0): third, ((), 1): third, ((), 2): third, ((0,), 0): 0.5, ((0,), 1): 0.5,
        ((1,), 0): 0.0, ((2,), 0): 0.0,
    }  # fmt: skip
    assert table.once_S.tolist() == [sample.share == 0.0 for sample in table.samples]


def test_all_sets_of_up_to_four_agents_and_random_orders_of_more():
    assert len(joining_orders("abcd")) == 24
    assert sorted(map(sorted, coalitions("abc"))) == sorted(
        [[], ["a"], ["b"], ["c"], ["a", "b"], ["a", "c"], ["b", "c"]]
    )
    five = joining_orders("abcde", "e", (0,))
    assert len(five) == ORDERS
    assert five == joining_orders("abcde", "e", (0,))
    assert five != joining_orders("abcde", "e", (1,))
    assert all(sorted(order) == list("abcde") for order in five)


def test_five_agents_add_up_to_the_team_in_the_orders_drawn():
    names = tuple("abcde")
    orders = joining_orders(names, "e", ())
    worth = {
        frozenset(order[:size]): float(sum(map(ord, order[:size])) % 7)
        for order in orders
        for size in range(6)
    }
    returns = {
        those: torch.full((5, 1), value, dtype=torch.float64) for those, value in worth.items()
    }
    found = Coalitions(names, torch.ones(5, 1, dtype=torch.bool), [("e", ())], returns)
    whole = worth[frozenset(names)] - worth[frozenset()]
    assert float(found.shapley().sum()) == pytest.approx(whole)
