"""Importance ratios π/μ of joint actions: samples of older weights μ, learned from by π.

The return of a joint action depends on what every agent wrote. So the expectation under π is that
under μ weighted by the product of π/μ over all tokens of all agents, of this Round and of those
above it; and what a later Round pays is weighted by the ratio of its own joint action too.

Source: per-decision importance sampling (Precup, Sutton and Singh 2000), here on trees; truncated
per turn as in V-trace (Espeholt et al. 2018, arXiv 1802.01561).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

import torch
from torch import Tensor

from motet.core import SampleId, TrainSample
from motet.credit.table import Table
from motet.settings import Algorithm


@dataclass(frozen=True)
class Ratios:
    """The weights of a step's joint actions, [N, J], and of its samples, [S]. All are bounded by
    `importance_cap`, for each turn."""

    action_NJ: Tensor
    """The ratio of a joint action, without the Rounds above it."""
    weight_NJ: Tensor
    """The same times the ratios of the joint actions above: the weight of what an agent learns from
    a joint action."""
    weight_S: Tensor
    """The mean of `weight_NJ` over the joint actions of a sample."""
    above_S: Tensor
    """The product of the ratios of the joint actions above a sample's Round."""
    later_J: Tensor
    """The weight of a joint action in the return of the joint action that led to it."""
    clipped: float
    """Share of the joint actions (`sequence`: of the samples) whose ratio is above the cap."""


def ratios_of(
    table: Table, algorithm: Algorithm, present: Mapping[SampleId, Sequence[float]]
) -> Ratios:
    """Return the ratios of a step.

    With `importance_ratio: sequence`, a sample has only the ratio of its own tokens.

    Args:
        present: the log-probabilities of each completion's tokens under the policies that learn, in
            nats. A completion without an entry was written by a policy that never changes: ratio 1.
    """
    own_S = torch.tensor(
        [
            sum(present[sample.id]) - sum(sample.completion.logprobs or ())
            if sample.id in present
            else 0.0
            for sample in table.samples
        ],
        dtype=torch.float64,
    )
    actions = len(table.outcomes)
    if algorithm.importance_ratio == "sequence":
        ratio_NJ = table.of_actions(own_S).exp()
        ones_J = torch.ones(actions, dtype=torch.float64)
        action_NJ, above_J, later_J = bounded(ratio_NJ, algorithm), ones_J, ones_J
        clipped = float((own_S.exp() > algorithm.importance_cap).double().mean())
    else:
        ratio_J = table.of_actions(own_S).sum(0).exp()
        later_J = bounded(ratio_J, algorithm)
        action_NJ = later_J.expand(len(table.agents), -1)
        above_J = _above(later_J, table)
        clipped = float((ratio_J > algorithm.importance_cap).double().mean())
    above_NJ = above_J.expand_as(action_NJ)
    return Ratios(
        action_NJ,
        action_NJ * above_NJ,
        table.of_samples(action_NJ * above_NJ),
        table.of_samples(above_NJ),
        later_J,
        clipped,
    )


def bounded(ratio: Tensor, algorithm: Algorithm) -> Tensor:
    """Return min(ratio, cap), or with `importance_sampling: mask` 0 above the cap."""
    cap = algorithm.importance_cap
    if algorithm.importance_sampling == "mask":
        return torch.where(ratio > cap, 0.0, ratio)
    return ratio.clamp(max=cap)


def _above(ratio_J: Tensor, table: Table) -> Tensor:
    """Return the product of the ratios of the joint actions above each one, [J]; 1 in a root
    Round."""
    above_J, parent_J = torch.ones_like(ratio_J), table.forest.parent_J
    for turn in range(1, int(table.forest.turn_J.max()) + 1):
        here = (table.forest.turn_J == turn) & (parent_J >= 0)
        above_J[here] = above_J[parent_J[here]] * ratio_J[parent_J[here]]
    return above_J


def prefix_weights(
    sample: TrainSample, logprobs: Sequence[float], above: float
) -> tuple[float, ...]:
    """Return the weight of the text before each token: π/μ of the tokens before it, times that of
    the Rounds above. Its expectation is that over the prefixes that π writes.

    A KL divergence or entropy of the next token belongs to one prefix, whatever the partners say in
    the same Round.
    """
    weights, total = [], 0.0
    for now, then in zip(logprobs, sample.completion.logprobs or (), strict=True):
        weights.append(above * exp(min(total, LARGEST)))
        total += now - then
    return tuple(weights)


LARGEST = 60.0
"""Largest logarithm of a prefix ratio, so that float32 holds it. The objective bounds it by the
cap."""
