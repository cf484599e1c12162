"""Baselines, which are subtracted from returns, and the scaling after them.

A baseline function returns b. `assign_credit` computes return − b, and no other code subtracts a
baseline.

A baseline that does not depend on the sample's own action changes only the variance of the
gradient, not its expectation. The group mean includes the sample itself, which scales the gradient
by (G − 1)/G. The group maximum changes the gradient's direction (docs/algorithms.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.credit.absent import Coalitions
from motet.credit.returns import segment_max, segment_mean, segment_size, segment_sum
from motet.errors import ConfigError
from motet.settings.rollout import Defaulting


@dataclass(frozen=True)
class Comparison:
    """The input of a baseline: S samples in groups that are numbered from 0."""

    returns_S: Tensor
    group_S: Tensor
    greedy_S: Tensor | None = None
    """Return of the greedy path at the sample's turn, for its agent and task."""
    average_S: Tensor | None = None
    """Moving average of earlier steps for the sample's agent and turn."""
    actions: "JointActions | None" = None
    coalitions: Coalitions | None = None
    """What the joint actions would have returned without some of their agents."""

    @property
    def groups(self) -> int:
        return int(self.group_S.max()) + 1 if len(self.group_S) else 0


@dataclass(frozen=True)
class JointActions:
    """The joint actions of a step, for N agents and J joint actions."""

    sample_NJ: Tensor
    """int64: the sample of each agent, or -1 if the agent did not act."""
    returns_NJ: Tensor
    round_J: Tensor
    """int64: the Round that each joint action belongs to."""


@dataclass(frozen=True)
class Baseline:
    """A baseline function `of(comparison) -> b [S]`, and its properties."""

    of: Callable[[Comparison], Tensor]
    siblings: bool
    """Whether it compares a sample with others of its group, so that the plan must
    produce groups."""
    alone: bool = False
    """Whether its result for a group of one is a valid baseline. If not, such a sample is left out
    of the step and counted."""
    linear: bool = False
    """Whether it is a linear combination of returns. Unbiased estimates of the returns then give
    an unbiased gradient, which `pruned: reweight` needs."""
    crossed: bool = False
    """Whether it needs joint actions that differ in one agent only (`rollout.pairing: crossed`)."""
    absent: Defaulting = "none"
    """Whose defaults are played, too: nobody's, those of each agent alone, or of all sets."""


def none(comparison: Comparison) -> Tensor:
    """b = 0: plain REINFORCE (Williams 1992)."""
    return torch.zeros_like(comparison.returns_S)


def group_mean(comparison: Comparison) -> Tensor:
    """b = mean of the group, including the sample itself (GRPO, arXiv 2402.03300; Dr. GRPO,
    2503.20783)."""
    return segment_mean(comparison.returns_S, comparison.group_S, comparison.groups)[
        comparison.group_S
    ]


def leave_one_out(comparison: Comparison) -> Tensor:
    """b_g = Σ_{k≠g} R_k / (G − 1) (RLOO, arXiv 2402.14740); 0 in a group of one.

    A sample may be the only one of its group because other paths ended or failed. Leaving it out
    would scale the gradient by the probability that the group has other samples, 1 − q^(G−1), which
    differs between turns and between tasks. With b = 0 the gradient stays exact.
    """
    sums_S = segment_sum(comparison.returns_S, comparison.group_S, comparison.groups)[
        comparison.group_S
    ]
    others_S = segment_size(comparison.group_S, comparison.groups)[comparison.group_S] - 1
    return (sums_S - comparison.returns_S) / others_S.clamp(min=1)


def group_max(comparison: Comparison) -> Tensor:
    """b = maximum of the group (MAReMax of CoMLRL). Every advantage is at most 0."""
    return segment_max(comparison.returns_S, comparison.group_S, comparison.groups)[
        comparison.group_S
    ]


def greedy_path(comparison: Comparison) -> Tensor:
    """b = the return of one greedy path from the same task (ReMax, arXiv 2310.10505)."""
    if comparison.greedy_S is None:
        raise ConfigError(
            "baseline greedy_path got no greedy path; expected one per task, played by the rollout"
        )
    return comparison.greedy_S


def moving_average(comparison: Comparison) -> Tensor:
    """b = decayed mean of earlier steps' returns of this agent and turn; 0 at the first step."""
    if comparison.average_S is None:
        raise ConfigError(
            "baseline moving_average got no state; expected the CreditState of the previous step"
        )
    return comparison.average_S


def leave_one_agent_out(comparison: Comparison) -> Tensor:
    """b of agent i: what the joint actions of a sample would have returned on average if agent i
    had given one of its other samples while all other agents gave the same ones.

    It is the counterfactual baseline of COMA (Foerster et al. 2018, arXiv 1705.08926, equation 4),
    estimated from samples and without the sample itself. The noise of the other agents cancels.
    If all joint actions of a Round are valid, it equals `leave_one_out`. It differs where joint
    actions failed. Joint actions without such a counterpart are not used; b = 0 if none is left.
    """
    actions = comparison.actions
    if actions is None:
        raise ConfigError(
            "baseline leave_one_agent_out got no joint actions; expected them in `actions`"
        )
    baseline_S = torch.zeros_like(comparison.returns_S)
    for agent, (sample_J, returns_J) in enumerate(
        zip(actions.sample_NJ, actions.returns_NJ, strict=True)
    ):
        others_NJ = actions.sample_NJ.clone()
        others_NJ[agent] = actions.round_J  # the same Round and the same samples of the others
        key_J = torch.unique(others_NJ, dim=1, return_inverse=True)[1]
        acts_J = sample_J >= 0
        count = int(key_J.max()) + 1
        size_J = segment_size(key_J, count)[key_J] - 1
        sum_J = segment_sum(returns_J, key_J, count)[key_J]
        gain_J = returns_J - (sum_J - returns_J) / size_J.clamp(min=1)
        used_J = acts_J & (size_J > 0)
        size = len(baseline_S)
        gain_S = segment_mean(gain_J[used_J], sample_J[used_J], size)
        has_S = segment_size(sample_J[used_J], size) > 0
        baseline_S = torch.where(has_S, comparison.returns_S - gain_S, baseline_S)
    return baseline_S


def difference(comparison: Comparison) -> Tensor:
    """b of an advantage that compares difference rewards D = R(z) − R(z without agent i), where i
    gives the environment's default in place of its sample (Wolpert and Tumer 2001, Advances in
    Complex Systems 4): A = D − mean of D of the other samples of the group.

    What is taken away does not depend on the sample, so the gradient stays exact. The luck of the
    other agents' samples cancels as far as they earn as much without i. If every sample meets the
    same samples of the others (`rollout.pairing: crossed`), it equals `leave_one_out`. A sample
    whose counterparts all failed has D = R.
    """
    actions, known = _played_without(comparison, "difference")
    return _b_of(comparison, actions, actions.returns_NJ - known.without())


def shapley(comparison: Comparison) -> Tensor:
    """b of an advantage that compares Shapley values φ of the joint actions, over all sets of
    agents whose others give the environment's defaults (Shapley 1953; for learners Wang et al.
    2020, arXiv 1907.05707): A = φ − mean of φ of the other samples of the group.

    Biased for the reward of the team: it also pays for what a sample adds to absent partners, so
    an agent may prefer what helps without the others. A sample of which a set failed has φ = R.
    """
    actions, known = _played_without(comparison, "shapley")
    return _b_of(comparison, actions, known.shapley())


def _played_without(comparison: Comparison, name: str) -> tuple["JointActions", Coalitions]:
    if comparison.actions is None or comparison.coalitions is None:
        raise ConfigError(
            f"baseline {name} got no joint actions without agents; expected them in `coalitions`"
        )
    return comparison.actions, comparison.coalitions


def _b_of(comparison: Comparison, actions: "JointActions", worth_NJ: Tensor) -> Tensor:
    """Return b so that R − b = w − mean of w of the other samples of the group, for the mean worth
    w of a sample's joint actions. One whose worth is never known has w = R."""
    size = len(comparison.returns_S)
    has_NJ = (actions.sample_NJ >= 0) & ~worth_NJ.isnan()
    of_NJ = actions.sample_NJ[has_NJ]
    known_S = segment_size(of_NJ, size) > 0
    worth_S = torch.where(
        known_S, segment_mean(worth_NJ[has_NJ], of_NJ, size), comparison.returns_S
    )
    others_S = leave_one_out(Comparison(worth_S, comparison.group_S))
    return comparison.returns_S - (worth_S - others_S)


BASELINES: dict[str, Baseline] = {
    "none": Baseline(none, siblings=False, linear=True),
    "group_mean": Baseline(group_mean, siblings=True, linear=True),
    "leave_one_out": Baseline(leave_one_out, siblings=True, alone=True, linear=True),
    "leave_one_agent_out": Baseline(
        leave_one_agent_out, siblings=True, alone=True, linear=True, crossed=True
    ),
    "difference": Baseline(difference, siblings=True, alone=True, linear=True, absent="one"),
    "shapley": Baseline(shapley, siblings=True, alone=True, absent="all"),
    "group_max": Baseline(group_max, siblings=True),
    "greedy_path": Baseline(greedy_path, siblings=False, linear=True),
    "moving_average": Baseline(moving_average, siblings=False, linear=True),
}
"""A config may also name your own function or Baseline: `credit.baseline: ./mine.py:NAME`."""


def baseline_of(name: str) -> Baseline:
    """Return the baseline of this name. Raises: ConfigError if the table has none."""
    if name not in BASELINES:
        raise ConfigError(
            f"credit.baseline {name} is not in this process's table of baselines, which has "
            f"{', '.join(BASELINES)}: make the algorithm with resolve(NAME, {{'credit': "
            f"{{'baseline': {name!r}}}}}), which loads it"
        )
    return BASELINES[name]


# ------------------------------------------------------------------------------------------ scaling


SMALLEST_SPREAD = 1e-6
"""Smallest standard deviation to divide by. Below it, all returns count as equal."""


def divide_by_spread(advantages_S: Tensor, returns_S: Tensor, group_S: Tensor) -> Tensor:
    """Return A / population std of the group's returns (GRPO, arXiv 2402.03300); A if the std is
    below 1e-6.

    It does not subtract the mean again: z-scoring after the baseline would undo the baseline and
    make all algorithms equal.

    Biased: the std is that of the same samples. As a group grows, its gradient tends to the exact
    one divided by the std of its state, so states with small differences weigh more; of two samples
    only the sign of their difference is left.
    """
    groups = int(group_S.max()) + 1 if len(group_S) else 0
    means_S = segment_mean(returns_S, group_S, groups)[group_S]
    spread_S = segment_mean((returns_S - means_S) ** 2, group_S, groups).sqrt()[group_S]
    return advantages_S / torch.where(
        spread_S < SMALLEST_SPREAD, torch.ones_like(spread_S), spread_S
    )


def divide_by_agent_spread(
    advantages_S: Tensor, returns_S: Tensor, group_S: Tensor, agent_S: Tensor, counts_S: Tensor
) -> Tensor:
    """Return A / σ of the agent; A if σ is below 1e-6. σ² is the mean of the squared distances of
    its returns in the step from the means of their groups, over the samples that count.

    Args:
        counts_S: bool [S]: those that are compared with others and trained on. The distance of a
            sample alone in its group is 0 and says nothing.

    So the advantages of every agent have the same size over a step, whatever the scale of its
    rewards, and a group with hardly any difference is not blown up. After Dr. MAS
    (arXiv 2602.08847), which normalises per agent and not over the team.

    Biased: σ is of the same samples. As a step has more tasks, the gradient of each agent tends to
    the direction that it has without the division.
    """
    groups, agents = int(group_S.max()) + 1, int(agent_S.max()) + 1
    means_S = segment_mean(returns_S, group_S, groups)[group_S]
    squares_S = (returns_S - means_S) ** 2
    of_agents = segment_mean(squares_S[counts_S], agent_S[counts_S], agents)
    spread_S = of_agents.sqrt()[agent_S]
    return advantages_S / torch.where(
        spread_S < SMALLEST_SPREAD, torch.ones_like(spread_S), spread_S
    )


def whiten(advantages_S: Tensor) -> Tensor:
    """Return (A − mean) / population std over a whole step. For algorithms whose critic has already
    subtracted the state's value."""
    spread = advantages_S.std(correction=0)
    return (advantages_S - advantages_S.mean()) / (
        spread if float(spread) >= SMALLEST_SPREAD else 1.0
    )
