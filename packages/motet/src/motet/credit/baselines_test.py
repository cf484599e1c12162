"""Tests baselines, scaling and segments with numbers that can be checked by hand."""

import pytest
import torch

from motet.credit.baselines import (
    BASELINES,
    Comparison,
    JointActions,
    divide_by_agent_spread,
    divide_by_spread,
    whiten,
)
from motet.credit.returns import segment_max, segment_mean, segment_size, segment_sum
from motet.errors import ConfigError

RETURNS = torch.tensor([1.0, 3.0, 8.0, 2.0, 6.0], dtype=torch.float64)
GROUPS = torch.tensor([0, 0, 0, 1, 1])


def baseline(name, **more):
    return BASELINES[name].of(Comparison(RETURNS, GROUPS, **more)).tolist()


def test_none_is_zero():
    assert baseline("none") == [0, 0, 0, 0, 0]


def test_group_mean_includes_the_sample_itself():
    assert baseline("group_mean") == [4, 4, 4, 4, 4]


def test_leave_one_out_is_the_mean_of_the_others():
    assert baseline("leave_one_out") == [5.5, 4.5, 2, 6, 2]


def test_leave_one_out_advantage_is_g_over_g_minus_one_times_the_mean_one():
    mean = RETURNS - torch.tensor(baseline("group_mean"))
    one_out = RETURNS - torch.tensor(baseline("leave_one_out"))
    factor = torch.tensor([3 / 2, 3 / 2, 3 / 2, 2, 2], dtype=torch.float64)
    assert torch.allclose(one_out, mean * factor)


def crossed(rewards, missing=()):
    """Two agents with two samples each in one Round: samples 0, 1 of a and 2, 3 of b."""
    pairs = [(a, b) for a in (0, 1) for b in (2, 3) if (a, b) not in missing]
    returns_J = torch.tensor([rewards[pair] for pair in pairs], dtype=torch.float64)
    sample_NJ = torch.tensor(pairs).T
    returns_S = torch.tensor(
        [
            sum(rewards[pair] for pair in pairs if sample in pair)
            / max(1, sum(sample in pair for pair in pairs))
            for sample in range(4)
        ],
        dtype=torch.float64,
    )
    actions = JointActions(sample_NJ, returns_J.expand(2, -1), torch.zeros(len(pairs), dtype=int))
    return Comparison(returns_S, torch.tensor([0, 0, 1, 1]), actions=actions)


REWARDS = {(0, 2): 10.0, (0, 3): 2.0, (1, 2): 7.0, (1, 3): 1.0}


def test_where_all_joint_actions_are_valid_leave_one_agent_out_is_leave_one_out():
    comparison = crossed(REWARDS)
    one_agent = BASELINES["leave_one_agent_out"].of(comparison)
    assert torch.allclose(one_agent, BASELINES["leave_one_out"].of(comparison))
    assert one_agent.tolist() == [4.0, 6.0, 1.5, 8.5]


def test_leave_one_agent_out_compares_only_with_the_same_samples_of_the_others():
    """Without (1, 3): a's sample 0 gains 10 - 7 with b's 2; with b's 3 there is no counterpart."""
    comparison = crossed(REWARDS, missing={(1, 3)})
    assert comparison.returns_S.tolist() == [6.0, 7.0, 8.5, 2.0]
    one_agent = BASELINES["leave_one_agent_out"].of(comparison)
    assert (comparison.returns_S - one_agent).tolist() == [3.0, -3.0, 8.0, -8.0]
    one_out = BASELINES["leave_one_out"].of(comparison)
    assert (comparison.returns_S - one_out).tolist() == [-1.0, 1.0, 6.5, -6.5]


def test_without_a_counterpart_the_baseline_is_zero():
    comparison = crossed(REWARDS, missing={(1, 2), (1, 3), (0, 3)})
    assert BASELINES["leave_one_agent_out"].of(comparison).tolist()[::2] == [0.0, 0.0]
    with pytest.raises(ConfigError, match="no joint actions"):
        baseline("leave_one_agent_out")


def test_group_max_is_the_largest():
    assert baseline("group_max") == [8, 8, 8, 6, 6]


def test_greedy_path_and_moving_average_are_handed_in_and_missed_when_absent():
    given = torch.tensor([1.0, 1, 1, 2, 2])
    assert baseline("greedy_path", greedy_S=given) == given.tolist()
    assert baseline("moving_average", average_S=given) == given.tolist()
    with pytest.raises(ConfigError, match="greedy"):
        baseline("greedy_path")
    with pytest.raises(ConfigError, match="CreditState"):
        baseline("moving_average")


def test_scaling_divides_by_the_population_std_and_never_recentres():
    advantages = torch.tensor([10.0, 10, 10, 10, 10], dtype=torch.float64)
    scaled = divide_by_spread(advantages, RETURNS, GROUPS)
    spread = (((1 - 4) ** 2 + (3 - 4) ** 2 + (8 - 4) ** 2) / 3) ** 0.5
    assert scaled.tolist() == pytest.approx([10 / spread] * 3 + [10 / 2] * 2)


def test_scaling_leaves_a_group_without_spread_alone():
    same = torch.full((2,), 3.0, dtype=torch.float64)
    assert divide_by_spread(torch.tensor([1.0, 2.0]), same, torch.tensor([0, 0])).tolist() == [1, 2]
    tiny = torch.tensor([0.0, 1e-7], dtype=torch.float64)
    assert divide_by_spread(torch.tensor([1.0, 2.0]), tiny, torch.tensor([0, 0])).tolist() == [1, 2]


def test_whitening_centres_and_scales():
    assert whiten(torch.tensor([1.0, 3.0])).tolist() == [-1, 1]
    assert whiten(torch.tensor([2.0, 2.0])).tolist() == [0, 0]


def test_segments_of_any_size():
    assert segment_sum(RETURNS, GROUPS, 3).tolist() == [12, 8, 0]
    assert segment_mean(RETURNS, GROUPS, 3).tolist() == [4, 4, 0]
    assert segment_size(GROUPS, 3).tolist() == [3, 2, 0]
    assert segment_max(RETURNS, GROUPS, 3).tolist() == [8, 6, -torch.inf]


def test_the_advantages_of_each_agent_have_one_size_over_the_step():
    """Agent 0 has a flat group and one with ±1/2, so σ² = (0 + 0 + 1/4 + 1/4)/4 = 1/8; agent 1 has
    ±20 and σ = 20."""
    returns_S = torch.tensor([7.0, 7.0, 0.0, 1.0, -20.0, 20.0], dtype=torch.float64)
    group_S = torch.tensor([0, 0, 1, 1, 2, 2])
    agent_S = torch.tensor([0, 0, 0, 0, 1, 1])
    advantages_S = torch.tensor([0.0, 0.0, -0.5, 0.5, -20.0, 20.0], dtype=torch.float64)
    all_S = torch.ones(6, dtype=torch.bool)
    found_S = divide_by_agent_spread(advantages_S, returns_S, group_S, agent_S, all_S)
    root = 2**0.5
    assert found_S.tolist() == pytest.approx([0.0, 0.0, -root, root, -1.0, 1.0])


def test_an_agent_whose_groups_are_all_flat_keeps_its_advantages():
    flat_S, one_S = torch.full((2,), 3.0, dtype=torch.float64), torch.tensor([0, 0])
    counts_S = torch.ones(2, dtype=torch.bool)
    found_S = divide_by_agent_spread(torch.zeros_like(flat_S), flat_S, one_S, one_S, counts_S)
    assert found_S.tolist() == [0.0, 0.0]


def test_samples_with_nothing_to_compare_with_do_not_make_a_deviation_smaller():
    """The first group has ±1 and σ = 1; two samples alone in their groups would make it √½."""
    returns_S = torch.tensor([0.0, 2.0, 5.0, 9.0], dtype=torch.float64)
    group_S, agent_S = torch.tensor([0, 0, 1, 2]), torch.zeros(4, dtype=torch.int64)
    advantages_S = torch.tensor([-1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    counts_S = torch.tensor([True, True, False, False])
    found_S = divide_by_agent_spread(advantages_S, returns_S, group_S, agent_S, counts_S)
    assert found_S.tolist() == [-1.0, 1.0, 0.0, 0.0]
