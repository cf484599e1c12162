"""Baselines: what a return is compared with. A baseline gives b; `advantage` subtracts it, in one place.

A baseline that does not depend on the action it judges changes the variance of the gradient, not where it points. The group
mean includes its own sample, which shrinks the gradient by (G − 1)/G; the group maximum turns it (docs/algorithms.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.credit.segments import segment_max, segment_mean, segment_size, segment_sum
from motet.errors import ConfigError


@dataclass(frozen=True)
class Comparison:
    """What a baseline may read: samples S, in groups numbered from 0."""

    returns_S: Tensor
    group_S: Tensor
    greedy_S: Tensor | None = None
    """Return of the greedy path at the sample's turn, for its agent and task."""
    average_S: Tensor | None = None
    """Moving average of earlier steps for the sample's agent and turn."""

    @property
    def groups(self) -> int:
        return int(self.group_S.max()) + 1 if len(self.group_S) else 0


@dataclass(frozen=True)
class Baseline:
    """`of(comparison) -> b [S]`."""

    of: Callable[[Comparison], Tensor]
    siblings: bool
    """It compares with others of the group, so a plan must give it groups."""
    alone: bool = False
    """What it gives a group of one is a baseline too. Otherwise such a sample is left out of the
    step and counted."""
    linear: bool = False
    """It is a sum of returns, each times a number, so that unbiased estimates of the returns give
    an unbiased gradient: `pruned: reweight` needs that."""


def none(comparison: Comparison) -> Tensor:
    """b = 0: plain REINFORCE (Williams 1992)."""
    return torch.zeros_like(comparison.returns_S)


def group_mean(comparison: Comparison) -> Tensor:
    """b = mean of the group, the sample itself included (GRPO, arXiv 2402.03300; Dr. GRPO, 2503.20783)."""
    return segment_mean(comparison.returns_S, comparison.group_S, comparison.groups)[comparison.group_S]


def leave_one_out(comparison: Comparison) -> Tensor:
    """b_g = Σ_{k≠g} R_k / (G − 1) (RLOO, arXiv 2402.14740); 0 where there is no other.

    A sample may be left alone where paths ended or broke. To leave it out would scale the gradient
    by how often there is company, 1 − q^(G−1), which differs from turn to turn and from task to
    task. With b = 0 the gradient stays exact.
    """
    sums_S = segment_sum(comparison.returns_S, comparison.group_S, comparison.groups)[comparison.group_S]
    others_S = segment_size(comparison.group_S, comparison.groups)[comparison.group_S] - 1
    return (sums_S - comparison.returns_S) / others_S.clamp(min=1)


def group_max(comparison: Comparison) -> Tensor:
    """b = largest of the group (MAReMax of CoMLRL): every advantage is at most 0."""
    return segment_max(comparison.returns_S, comparison.group_S, comparison.groups)[comparison.group_S]


def greedy_path(comparison: Comparison) -> Tensor:
    """b = the return of one greedy path from the same task (ReMax, arXiv 2310.10505)."""
    if comparison.greedy_S is None:
        raise ConfigError("baseline greedy_path got no greedy path: the rollout must play one per task")
    return comparison.greedy_S


def moving_average(comparison: Comparison) -> Tensor:
    """b = decayed mean of earlier steps' returns of this agent and turn; 0 before the first."""
    if comparison.average_S is None:
        raise ConfigError("baseline moving_average got no state: pass the CreditState of the step before")
    return comparison.average_S


BASELINES: dict[str, Baseline] = {
    "none": Baseline(none, siblings=False, linear=True),
    "group_mean": Baseline(group_mean, siblings=True, linear=True),
    "leave_one_out": Baseline(leave_one_out, siblings=True, alone=True, linear=True),
    "group_max": Baseline(group_max, siblings=True),
    "greedy_path": Baseline(greedy_path, siblings=False, linear=True),
    "moving_average": Baseline(moving_average, siblings=False, linear=True),
}
"""Names that `Algorithm.baseline` may have. An own one is added before the config is read: BASELINES["median"] = ..."""
