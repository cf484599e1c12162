"""Bonuses for agents that correct their answer or make others correct theirs (MAPoRL, arXiv
2502.18439).

A bonus belongs to one turn of one agent. It is added to the return of that turn and does not
propagate to earlier turns.
"""

import torch
from torch import Tensor

from motet.credit.returns import Forest
from motet.credit.segments import segment_mean
from motet.settings import Incentives


def bonuses(right_NJ: Tensor, forest: Forest, incentives: Incentives) -> Tensor:
    """Compute the bonus of every agent for every joint action. bool [N, J] -> float64 [N, J]

    c is the agent's own correctness. o is the correctness of the others: true if strictly more than
    half of them are right (a tie is wrong).

        own answer wrong -> right since the turn before:   + α1 if o before, else + α0
        own answer right -> wrong:                         - α0 if o before, else - α1
        the others wrong -> right at the next turn:        + β1 if c now, else + β0
        the others right -> wrong:                         - β0 if c now, else - β1

    So α1 is for changing with the others, and α0 for changing against them. A single agent only has
    α0. With `alphas: code` the two are swapped. If the previous or next turn was not played, its
    term is 0. With several next joint actions, the term is their mean.
    """
    others_NJ = _others(right_NJ)
    later = forest.parent_J >= 0
    parent_K = forest.parent_J[later]
    before_NK, after_NK = right_NJ[:, parent_K], right_NJ[:, later]
    led_NK, follow_NK = others_NJ[:, parent_K], others_NJ[:, later]
    sizes = (incentives.alpha0, incentives.alpha1, incentives.beta0, incentives.beta1)
    alpha0, alpha1, beta0, beta1 = torch.tensor(sizes, dtype=torch.float64)
    if incentives.alphas == "code":
        alpha0, alpha1 = alpha1, alpha0
    alone = right_NJ.shape[0] == 1
    follows, resists = (alpha0 if alone else alpha1), alpha0
    own_NK = torch.where(led_NK, follows, resists) * (~before_NK & after_NK)
    own_NK = own_NK - torch.where(led_NK, resists, follows) * (before_NK & ~after_NK)
    on_others_NK = torch.where(before_NK, beta1, beta0) * (~led_NK & follow_NK)
    on_others_NK = on_others_NK - torch.where(before_NK, beta0, beta1) * (led_NK & ~follow_NK)
    total_NJ = segment_mean(on_others_NK, parent_K, right_NJ.shape[1])
    total_NJ[:, later] += own_NK
    return total_NJ


def _others(right_NJ: Tensor) -> Tensor:
    """Return whether strictly more than half of the other agents are right. False if there is only
    one agent."""
    others = right_NJ.shape[0] - 1
    return 2 * (right_NJ.sum(0, keepdim=True) - right_NJ.long()) > max(others, 0)
