"""Tests `tree_fold` and `turn_returns` against textbook formulas and values computed by hand."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motet.credit.returns import Forest, repeat_last_reward, tree_fold, turn_returns


def forest(parents, rounds, turns, pruned=None):
    pruned = [False] * len(parents) if pruned is None else pruned
    return Forest(
        torch.tensor(parents), torch.tensor(rounds), torch.tensor(turns), torch.tensor(pruned)
    )


def fold(rewards, shape, *, values=None, acts=None, gamma=1.0, gae_lambda=1.0, pruned="reweight"):
    rewards_NJ = torch.tensor([rewards], dtype=torch.float64)
    values_NJ = None if values is None else torch.tensor([values], dtype=torch.float64)
    acts_NJ = (
        torch.ones_like(rewards_NJ, dtype=torch.bool) if acts is None else torch.tensor([acts])
    )
    return tree_fold(rewards_NJ, values_NJ, acts_NJ, shape, gamma, gae_lambda, pruned)[0].tolist()


TREE = forest([-1, -1, 0, 0, 1, 1], [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1])


def test_a_node_returns_its_reward_and_the_discounted_mean_of_its_children():
    assert fold([1, 2, 3, 5, 7, 9], TREE, gamma=0.5) == [1 + 0.5 * 4, 2 + 0.5 * 8, 3, 5, 7, 9]


def test_discount_zero_reads_the_own_turn_only():
    assert fold([1, 2, 3, 5, 7, 9], TREE, gamma=0.0) == [1, 2, 3, 5, 7, 9]


def textbook_gae(rewards, values, gamma, gae_lambda):
    advantages, following = [], 0.0
    for t in reversed(range(len(rewards))):
        after = values[t + 1] if t + 1 < len(values) else 0.0
        following = rewards[t] + gamma * after - values[t] + gamma * gae_lambda * following
        advantages.insert(0, following)
    return advantages


unit = st.floats(0, 1)
numbers = st.floats(-5, 5)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), unit, unit)
@settings(max_examples=60, deadline=None)
def test_one_child_is_textbook_gae(steps, gamma, gae_lambda):
    rewards, values = [r for r, _ in steps], [v for _, v in steps]
    turns = list(range(len(steps)))
    path = forest([t - 1 for t in turns], turns, turns)
    expected = textbook_gae(rewards, values, gamma, gae_lambda)
    assert fold(rewards, path, values=values, gamma=gamma, gae_lambda=gae_lambda) == pytest.approx(
        expected, abs=1e-9
    )


def test_with_critics_the_mean_runs_over_values_and_advantages_of_the_children():
    # leaves: A = 3-1, 5-1 = 2, 4 (V = 1 in their Round). root: A = 1 + .5·(1 + .5·mean(2, 4)) − 2
    tree = forest([-1, 0, 0], [0, 1, 1], [0, 1, 1])
    assert fold([1, 3, 5], tree, values=[2, 1, 1], gamma=0.5, gae_lambda=0.5) == [
        1 + 0.5 * (1 + 0.5 * 3) - 2,
        2,
        4,
    ]


def test_a_silent_round_adds_its_reward_and_a_factor_of_the_discount_but_no_trace():
    # The agent acts at t0 and t2 only: A_0 = r0 + γ·r1 + γ²·(V2 + λ·A_2) − V0 with A_2 = r2 − V2.
    path = forest([-1, 0, 1], [0, 1, 2], [0, 1, 2])
    got = fold(
        [1, 2, 3], path, values=[4, 99, 5], acts=[True, False, True], gamma=0.5, gae_lambda=0.25
    )
    assert got[0] == 1 + 0.5 * 2 + 0.25 * (5 + 0.25 * (3 - 5)) - 4
    assert got[2] == 3 - 5


def test_an_agent_that_never_acts_again_still_sees_later_rewards():
    path = forest([-1, 0], [0, 1], [0, 1])
    assert (
        fold([1, 2], path, values=[0.5, 99], acts=[True, False], gamma=0.5, gae_lambda=0.0)[0]
        == 1 + 0.5 * 2 - 0.5
    )


def test_agents_fold_apart():
    rewards_NJ = torch.tensor([[1.0, 2.0], [10.0, 20.0]])
    path = forest([-1, 0], [0, 1], [0, 1])
    acts_NJ = torch.ones(2, 2, dtype=torch.bool)
    assert tree_fold(rewards_NJ, torch.zeros(2, 2), acts_NJ, path, 1.0, 1.0).tolist() == [
        [3, 2],
        [30, 20],
    ]


PRUNED = forest([-1, -1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1], pruned=[False, True, False, False])
"""Node 1 could have been expanded but was not selected."""


def test_the_one_of_two_that_went_on_counts_twice_and_the_pruned_one_nothing():
    assert fold([1, 2, 4, 8], PRUNED) == [1 + 2 * 6, 2, 4, 8]
    assert fold([1, 2, 4, 8], PRUNED, gamma=0.5) == [1 + 2 * 3, 2, 4, 8]


def test_who_could_not_have_gone_on_is_not_counted():
    tree = forest([-1, -1, -1, 0], [0, 0, 0, 1], [0, 0, 0, 1], pruned=[False, True, False, False])
    assert fold([1, 2, 3, 5], tree) == [1 + 2 * 5, 2, 3, 5]


def test_a_critic_is_asked_what_would_have_come_of_the_pruned_ones():
    # V = 5 and the mean reward is 1.5, so the critic expects 3.5 later. In the child Round V = 4
    # and A = 0 and 4. With γ = λ = 1/2: after = (4 + 0.5 * 2) / 2 = 2.5. This is 1 less than
    # expected, and counts twice.
    found = fold([1, 2, 4, 8], PRUNED, values=[5, 5, 4, 4], gamma=0.5, gae_lambda=0.5)
    assert found == [1 + 3.5 - 2 * 1 - 5, 2 + 3.5 - 5, 0, 4]


def test_where_all_is_as_the_critic_expects_nobody_is_moved_by_who_went_on():
    assert fold([0, 0, 6, 6], PRUNED, values=[6, 6, 6, 6]) == [0, 0, 0, 0]


def test_what_a_critic_expects_later_is_that_of_those_that_can_go_on():
    # V = 5 and the mean reward is 1, so 4 is expected later for each of three nodes. One of them
    # ended, so 6 for each of the other two.
    tree = forest([-1, -1, -1, 0], [0, 0, 0, 1], [0, 0, 0, 1], pruned=[False, True, False, False])
    assert fold([0, 0, 3, 6], tree, values=[5, 5, 5, 6]) == [1, 1, -2, 0]


def test_a_pruned_node_may_be_lent_the_continuation_of_its_siblings():
    assert fold([1, 2, 4, 8], PRUNED, pruned="sibling_mean") == [1 + 6, 2 + 6, 4, 8]


def test_a_node_that_ended_is_lent_nothing():
    tree = forest([-1, -1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1])
    assert fold([1, 2, 4, 8], tree) == [7, 2, 4, 8]


def test_absorbing_repeats_the_last_reward_on_turns_not_played():
    rewards_NJ = torch.tensor([[2.0, 2.0, 2.0]])
    assert repeat_last_reward(rewards_NJ, torch.tensor([0, 1, 2]), 0.5).tolist() == [
        [2, 2 * 1.5, 2 * 1.75]
    ]


@given(st.integers(0, 3), st.integers(0, 3), st.floats(0, 4), unit)
@settings(max_examples=40, deadline=None)
def test_solving_early_never_returns_less_than_solving_late(first, second, level, gamma):
    """The reward is 0 before the solving turn and `level` at it. The horizon is 4 turns."""
    early, late = sorted((first, second))

    def returned(solved_at):
        turns = list(range(solved_at + 1))
        rewards_NJ = torch.tensor([[0.0] * solved_at + [level]], dtype=torch.float64)
        missing = torch.tensor([0] * solved_at + [3 - solved_at])
        path = forest([t - 1 for t in turns], turns, turns)
        return fold(repeat_last_reward(rewards_NJ, missing, gamma)[0].tolist(), path, gamma=gamma)[
            0
        ]

    assert returned(early) >= returned(late) - 1e-12


def path(turns):
    return forest([t - 1 for t in range(turns)], list(range(turns)), list(range(turns)))


def test_the_influence_aware_return_by_hand():
    scores_NJ = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    # d = 0.5; agent 0, turn 0: (1 + .5·mean(0, 1) + .25·mean(1, 1)) / (1 + .5 + .25)
    got = turn_returns(scores_NJ, path(3), "discounted_sum", 0.5, "all")
    assert got[0, 0] == pytest.approx((1 + 0.25 + 0.25) / 1.75)
    assert got[0, 1] == pytest.approx((0 + 0.5) / 1.5)
    assert got[:, 2].tolist() == [1, 1]
    own = turn_returns(scores_NJ, path(3), "discounted_sum", 0.5, "own")
    assert own[0, 0] == pytest.approx((1 + 0 + 0.25) / 1.75)


def test_last_and_current_read_one_turn():
    scores_NJ = torch.tensor([[1.0, 0.5], [0.0, 1.0]])
    assert turn_returns(scores_NJ, path(2), "last", 1.0, "own").tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert turn_returns(scores_NJ, path(2), "last", 1.0, "all").tolist() == [
        [0.75, 0.75],
        [0.75, 0.75],
    ]
    assert turn_returns(scores_NJ, path(2), "current", 1.0, "own").tolist() == scores_NJ.tolist()
    assert turn_returns(scores_NJ, path(2), "current", 1.0, "all").tolist() == [
        [0.5, 0.75],
        [0.5, 0.75],
    ]


def paths_below(tree, j):
    """Return every path from j to a leaf with its probability, if all children have equal
    probability. Brute force."""
    children = [k for k in range(len(tree.parent_J)) if int(tree.parent_J[k]) == j]
    if not children:
        return [([j], 1.0)]
    return [
        ([j, *rest], p / len(children))
        for child in children
        for rest, p in paths_below(tree, child)
    ]


@st.composite
def random_trees(draw):
    """Generate trees with one to three joint actions per Round. Any joint action may end early."""
    parents, rounds, turns = [], [], []

    def grow(parent, turn):
        identity = max(rounds, default=-1) + 1
        rows = []
        for _ in range(draw(st.integers(1, 3))):
            parents.append(parent)
            rounds.append(identity)
            turns.append(turn)
            rows.append(len(parents) - 1)
        for row in rows:
            if turn < 3 and draw(st.booleans()):
                grow(row, turn + 1)

    grow(-1, 0)
    return forest(parents, rounds, turns)


@given(
    random_trees(),
    st.randoms(use_true_random=False),
    st.floats(0.0, 1.0),
    st.sampled_from(["all", "own"]),
)
@settings(max_examples=60, deadline=None)
def test_returns_of_turns_equal_a_brute_force_reading_on_random_trees(tree, random, gamma, share):
    scores = torch.tensor(
        [[random.random() for _ in tree.parent_J] for _ in range(3)], dtype=torch.float64
    )
    for rule in ("discounted_sum", "last", "current"):
        got = turn_returns(scores, tree, rule, gamma, share)
        for j in range(len(tree.parent_J)):
            for agent in range(3):
                expected = 0.0
                for nodes, p in paths_below(tree, j):
                    later = [
                        float(scores[:, n].mean() if share == "all" else scores[agent, n])
                        for n in nodes
                    ]
                    if rule == "discounted_sum":
                        weights = [gamma**k for k in range(len(nodes))]
                        first = float(scores[agent, j])
                        value = (
                            first + sum(w * s for w, s in zip(weights[1:], later[1:], strict=True))
                        ) / sum(weights)
                    else:
                        value = later[-1] if rule == "last" else later[0]
                    expected += p * value
                assert float(got[agent, j]) == pytest.approx(expected, abs=1e-9)


def test_a_forest_of_unequal_vectors_is_refused():
    with pytest.raises(ValueError, match="parent_J"):
        forest([-1, 0], [0], [0, 1])
