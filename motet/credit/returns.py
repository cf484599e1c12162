"""Returns and advantages on trees. A path is a tree whose every outcome has one child; all of a step's trees fold at once.

Nodes are joint actions J. Node j was taken in Round round_J[j]; parent_J[j] is the node that led to that Round.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from motet.credit.segments import segment_mean


@dataclass(frozen=True)
class Forest:
    """The shape of a step's trees: one entry per joint action, parents before children, faulty ones left out."""

    parent_J: Tensor
    """int64 [J]; -1 in a root Round."""
    round_J: Tensor
    """int64 [J], numbered from 0."""
    turn_J: Tensor
    """int64 [J]; 0 in a root Round."""
    pruned_J: Tensor
    """bool [J]; could have gone on but was not chosen to."""

    def __post_init__(self) -> None:
        shapes = {name: tuple(getattr(self, name).shape) for name in ("parent_J", "round_J", "turn_J", "pruned_J")}
        if len(set(shapes.values())) != 1 or self.parent_J.dim() != 1:
            raise ValueError(f"a Forest needs four vectors of one length, got {shapes}")


def absorb(rewards_NJ: Tensor, missing_J: Tensor, discount: float) -> Tensor:
    """Rewards of an absorbing stop: a branch's last reward comes again on each of its `missing` turns.

    r_j · (1 + γ + ... + γ^missing). Without it a branch that solves the task early earns less than one that solves it late.
    """
    powers = torch.tensor([sum(discount**k for k in range(int(m) + 1)) for m in missing_J], dtype=rewards_NJ.dtype)
    return rewards_NJ * powers


def tree_fold(
    rewards_NJ: Tensor, values_NJ: Tensor, acts_NJ: Tensor, forest: Forest, discount: float, trace: float
) -> Tensor:
    """Generalised advantage estimation on trees, per agent over its own decisions.

    A_j = r_j + γ·mean_{c in children(j)} C_c − V(here),   C_c = V_c + λ·A_c where the agent acts at c, else r_c + γ·mean C.

    With V = 0 and λ = 1 this is the Monte-Carlo tree return R_j = r_j + γ·mean_c R_c; with one child per node it is textbook
    GAE (Schulman et al. 2016, arXiv 1506.02438, eq. 16); rounds in which an agent is silent add their rewards and a factor γ,
    and no λ. A node without children has nothing after it: V(next) = 0. A pruned node gets the mean continuation of its
    siblings that went on, so what came later is credited to the Round, not to having been chosen.

    Args: rewards, values (of the Round the node was taken in) and acts (bool), each [N, J]; discount γ, trace λ.
    Returns: advantages [N, J]; entries where an agent does not act mean nothing.
    """
    onward_NJ = torch.zeros_like(rewards_NJ)
    advantages_NJ = torch.zeros_like(rewards_NJ)
    grown_J = torch.zeros_like(forest.pruned_J)
    grown_J[forest.parent_J[forest.parent_J >= 0]] = True
    for turn in range(int(forest.turn_J.max()) if len(forest.turn_J) else -1, -1, -1):
        here = forest.turn_J == turn
        onward_NJ = _lend_to_pruned(onward_NJ, forest, here, grown_J)
        folded_NJ = rewards_NJ + discount * onward_NJ
        advantages_NJ = torch.where(here, folded_NJ - values_NJ, advantages_NJ)
        carried_NJ = torch.where(acts_NJ, values_NJ + trace * advantages_NJ, folded_NJ)
        linked = here & (forest.parent_J >= 0)
        means_NJ = segment_mean(carried_NJ[:, linked], forest.parent_J[linked], len(forest.turn_J))
        onward_NJ = torch.where((forest.turn_J == turn - 1) & grown_J, means_NJ, onward_NJ)
    return advantages_NJ


def _lend_to_pruned(onward_NJ: Tensor, forest: Forest, here: Tensor, grown_J: Tensor) -> Tensor:
    pruned = here & forest.pruned_J
    if not bool(pruned.any()):
        return onward_NJ
    went_on = here & grown_J
    means_NR = segment_mean(onward_NJ[:, went_on], forest.round_J[went_on], int(forest.round_J.max()) + 1)
    return torch.where(pruned, means_NR[:, forest.round_J], onward_NJ)


def discounted_sum(scores_TN: Tensor, discount: float, share: str) -> Tensor:
    """The influence-aware return of one path, normalised (MAPoRL, arXiv 2502.18439):

    R(t, a) = [s(t, a) + Σ_{t'>t} d^{t'−t}·mean_j s(t', j)] / Σ_{t'≥t} d^{t'−t}, t' up to the last turn played.

    share "own" reads s(t', a) in place of the mean. Args: scores [T, N]. Returns: [T, N].
    """
    later_TN = _shared(scores_TN, share)
    turns = len(scores_TN)
    weights_T = torch.tensor([discount**k for k in range(turns)], dtype=scores_TN.dtype)
    rows = [
        (scores_TN[t] + (weights_T[1 : turns - t, None] * later_TN[t + 1 :]).sum(0)) / weights_T[: turns - t].sum()
        for t in range(turns)
    ]
    return torch.stack(rows)


def last(scores_TN: Tensor, share: str) -> Tensor:
    """Every turn's return is the score of the last turn played. [T, N] -> [T, N]."""
    return _shared(scores_TN, share)[-1].expand_as(scores_TN)


def current(scores_TN: Tensor, share: str) -> Tensor:
    """Every turn's return is that turn's own score. [T, N] -> [T, N]."""
    return _shared(scores_TN, share)


def _shared(scores_TN: Tensor, share: str) -> Tensor:
    return scores_TN.mean(1, keepdim=True).expand_as(scores_TN) if share == "all" else scores_TN
