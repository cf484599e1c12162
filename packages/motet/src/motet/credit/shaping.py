"""Scaling of advantages after the baseline: dividing by the group's standard deviation, or
whitening over a step."""

import torch
from torch import Tensor

from motet.credit.segments import segment_mean

SMALLEST_SPREAD = 1e-6
"""Smallest standard deviation to divide by. Below it, all returns count as equal."""


def divide_by_spread(advantages_S: Tensor, returns_S: Tensor, group_S: Tensor) -> Tensor:
    """Return A / population std of the group's returns (GRPO, arXiv 2402.03300); A if the std is
    below 1e-6.

    It does not subtract the mean again: z-scoring after the baseline would undo the baseline and
    make all algorithms equal.
    """
    groups = int(group_S.max()) + 1 if len(group_S) else 0
    means_S = segment_mean(returns_S, group_S, groups)[group_S]
    spread_S = segment_mean((returns_S - means_S) ** 2, group_S, groups).sqrt()[group_S]
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
