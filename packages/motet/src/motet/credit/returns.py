"""Returns and advantages: on trees, over the tokens of completions, and per group.

A path is a tree in which each outcome has one child. All trees of a step are processed together.

Nodes are joint actions J. Node j was taken in Round round_J[j]. parent_J[j] is the node that led to
that Round. Functions `segment_...` compute sums, means and maxima per group, for groups of any
size: `values [..., S]` with group numbers `segment [S]` -> `[..., count]`.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motet.settings import Incentives


@dataclass(frozen=True)
class Forest:
    """The structure of a step's trees: one entry per joint action, parents before children. Failed
    ones have no entry."""

    parent_J: Tensor
    """int64 [J]; -1 in a root Round."""
    round_J: Tensor
    """int64 [J], numbered from 0."""
    turn_J: Tensor
    """int64 [J]; 0 in a root Round."""
    pruned_J: Tensor
    """bool [J]; true if the episode had not ended but the node was not selected for expansion."""

    def __post_init__(self) -> None:
        shapes = {
            name: tuple(getattr(self, name).shape)
            for name in ("parent_J", "round_J", "turn_J", "pruned_J")
        }
        if len(set(shapes.values())) != 1 or self.parent_J.dim() != 1:
            raise ValueError(f"got shapes {shapes}; expected four vectors of the same length")


def repeat_last_reward(rewards_NJ: Tensor, missing_J: Tensor, gamma: float) -> Tensor:
    """Repeat the last reward of a branch on each of its `missing` turns, which were not played.

    The result is r_j · (1 + γ + ... + γ^missing). Without it, a branch that solves the task early
    would earn less than one that solves it late.
    """
    powers = torch.tensor(
        [sum(gamma**k for k in range(int(m) + 1)) for m in missing_J], dtype=rewards_NJ.dtype
    )
    return rewards_NJ * powers


def tree_fold(
    rewards_NJ: Tensor,
    values_NJ: Tensor | None,
    acts_NJ: Tensor,
    forest: Forest,
    gamma: float,
    gae_lambda: float,
    pruned: Literal["reweight", "sibling_mean"] = "reweight",
    later_J: Tensor | None = None,
) -> Tensor:
    """Generalised advantage estimation on trees, per agent over its own decisions.

        A_j = r_j + γ·mean_{c in children(j)} C_c − V(here)
        C_c = V_c + λ·A_c        if the agent acts at c
        C_c = r_c + γ·mean C     otherwise

    With V = 0 and λ = 1 this is the Monte Carlo tree return R_j = r_j + γ·mean_c R_c. With one
    child per node it is standard GAE (Schulman et al. 2016, arXiv 1506.02438, eq. 16). A Round in
    which an agent does not act adds its reward and a factor γ, but no λ. A node without children
    has V(next) = 0. If some siblings were pruned, `_reweighted` or `_sibling_mean` replaces
    γ·mean C.

    Args:
        rewards_NJ: rewards [N, J].
        values_NJ: values [N, J] of the Round in which each node was taken. None: no critic, V = 0.
        acts_NJ: bool [N, J], whether the agent acts at the node.
        gamma: discount γ.
        gae_lambda: λ.
        later_J: importance ratios ρ [J]. A_c then counts as ρ_c·A_c in the node above, and C_c of
            an agent that does not act at c as ρ_c·C_c.

    Returns: advantages [N, J]. Entries of agents that do not act have no meaning.
    """
    known_NJ = torch.zeros_like(rewards_NJ) if values_NJ is None else values_NJ
    onward_NJ = torch.zeros_like(rewards_NJ)
    advantages_NJ = torch.zeros_like(rewards_NJ)
    grown_J = torch.zeros_like(forest.pruned_J)
    grown_J[forest.parent_J[forest.parent_J >= 0]] = True
    expected_NJ = (
        None
        if values_NJ is None
        else _expected_after(rewards_NJ, values_NJ, acts_NJ, forest, grown_J)
    )
    for turn in range(int(forest.turn_J.max()) if len(forest.turn_J) else -1, -1, -1):
        here = forest.turn_J == turn
        after_NJ = gamma * onward_NJ
        if bool((here & forest.pruned_J).any()):
            if pruned == "sibling_mean":
                after_NJ = _sibling_mean(after_NJ, forest, here, grown_J)
            else:
                after_NJ = _reweighted(after_NJ, expected_NJ, forest, here, grown_J)
        folded_NJ = rewards_NJ + after_NJ
        advantages_NJ = torch.where(here, folded_NJ - known_NJ, advantages_NJ)
        if later_J is None:
            carried_NJ = torch.where(acts_NJ, known_NJ + gae_lambda * advantages_NJ, folded_NJ)
        else:
            ahead_NJ = known_NJ + gae_lambda * later_J * advantages_NJ
            carried_NJ = torch.where(acts_NJ, ahead_NJ, later_J * folded_NJ)
        linked = here & (forest.parent_J >= 0)
        means_NJ = segment_mean(carried_NJ[:, linked], forest.parent_J[linked], len(forest.turn_J))
        onward_NJ = torch.where((forest.turn_J == turn - 1) & grown_J, means_NJ, onward_NJ)
    return advantages_NJ


def _reweighted(
    after_NJ: Tensor, expected_NJ: Tensor | None, forest: Forest, here: Tensor, grown_J: Tensor
) -> Tensor:
    """Estimate the future return of each node from the nodes that were expanded.

        c + 1[expanded] · (open/grown) · (after − c)

    `open` is the number of nodes in a Round that could be expanded, `grown` the number that were.
    This is the inverse-probability estimate of Horvitz and Thompson (1952) around an expectation c
    (0 without a critic), in the doubly robust form of Dudík, Langford and Li (2011, arXiv
    1103.4601). If the expanded nodes are selected at random, it is unbiased for any c: its
    expectation is each node's own `after`.
    """
    open_J = here & (grown_J | forest.pruned_J)
    rounds = int(forest.round_J.max()) + 1
    open_R, grown_R = (
        segment_size(forest.round_J[rows], rounds) for rows in (open_J, here & grown_J)
    )
    inverse_J = (open_R / grown_R.clamp(min=1))[forest.round_J]
    around_NJ = torch.zeros_like(after_NJ) if expected_NJ is None else expected_NJ
    estimate_NJ = around_NJ + grown_J * inverse_J * (after_NJ - around_NJ)
    return torch.where(open_J & (open_R > grown_R)[forest.round_J], estimate_NJ, after_NJ)


def _expected_after(
    rewards_NJ: Tensor, values_NJ: Tensor, acts_NJ: Tensor, forest: Forest, grown_J: Tensor
) -> Tensor:
    """Return the future return that the critic expects after a node that can be expanded.

    It is (V − mean reward of the Round) · J / open, and 0 for agents that do not act.
    """
    rounds = int(forest.round_J.max()) + 1
    gap_NR = segment_mean(values_NJ - rewards_NJ, forest.round_J, rounds)
    open_R = segment_size(forest.round_J[grown_J | forest.pruned_J], rounds).clamp(min=1)
    each_NR = gap_NR * segment_size(forest.round_J, rounds) / open_R
    return torch.where(acts_NJ, each_NR[:, forest.round_J], 0.0)


def _sibling_mean(after_NJ: Tensor, forest: Forest, here: Tensor, grown_J: Tensor) -> Tensor:
    """Give each pruned node the mean future return of its expanded siblings."""
    went_on = here & grown_J
    means_NR = segment_mean(
        after_NJ[:, went_on], forest.round_J[went_on], int(forest.round_J.max()) + 1
    )
    return torch.where(here & forest.pruned_J, means_NR[:, forest.round_J], after_NJ)


def turn_returns(
    scores_NJ: Tensor,
    forest: Forest,
    rule: Literal["discounted_sum", "last", "current"],
    gamma: float,
    reward_sharing: str,
    later_J: Tensor | None = None,
) -> Tensor:
    """Compute returns directly from the turns' scores, per agent a and joint action j. [N, J] ->
    [N, J]

    discounted_sum: the normalised influence-aware return of MAPoRL (arXiv 2502.18439). Along a path
    j = j_0, j_1, ..., j_K to the last turn played, with m(j) the mean of the agents' scores and d =
    `gamma`:

        R(j, a) = [s(j, a) + Σ_{k>0} d^k·m(j_k)] / Σ_k d^k

    last: the score of the last turn played. current: the score of the turn itself.

    With reward_sharing "own", s(j, a) replaces m(j) everywhere. With "all", last and current use m.
    In a tree the return is the mean over the paths below j, with equal weight for all children of a
    node. With importance ratios `later_J`, [J], a path is weighted by the product of those of its
    joint actions below j.
    """
    shared_NJ = (
        scores_NJ.mean(0, keepdim=True).expand_as(scores_NJ)
        if reward_sharing == "all"
        else scores_NJ
    )
    if rule == "current":
        return shared_NJ
    d = 1.0 if rule == "last" else gamma
    length_TJ, below_TNJ = _paths_below(
        shared_NJ, forest, d, last_only=rule == "last", later_J=later_J
    )
    if rule == "last":
        return below_TNJ.sum(0)
    mass_T = torch.tensor(
        [sum(d**k for k in range(n + 1)) for n in range(len(length_TJ))], dtype=scores_NJ.dtype
    )
    # The turn itself uses the agent's own score.
    first_TNJ = length_TJ[:, None] * (scores_NJ - shared_NJ)
    return ((first_TNJ + below_TNJ) / mass_T[:, None, None]).sum(0)


def _paths_below(
    shared_NJ: Tensor,
    forest: Forest,
    gamma: float,
    last_only: bool,
    later_J: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Summarise the paths that begin at j, grouped by their length of n + 1 turns.

    Returns the share of paths of each length, [T, J], and share times mean Σ_k d^k·m(j_k), [T, N,
    J]. With `last_only` the sum is only the last turn's term d^K·m. T is the number of turns.
    """
    turns, count = int(forest.turn_J.max()) + 1, len(forest.turn_J)
    leaf_J = torch.ones(count, dtype=torch.bool)
    leaf_J[forest.parent_J[forest.parent_J >= 0]] = False
    share_TJ = shared_NJ.new_zeros((turns, count))
    sum_TNJ = shared_NJ.new_zeros((turns, *shared_NJ.shape))
    share_TJ[0] = leaf_J
    sum_TNJ[0] = shared_NJ * leaf_J
    for turn in range(turns - 1, 0, -1):
        here = (forest.turn_J == turn) & (forest.parent_J >= 0)
        parents = forest.parent_J[here]
        shares_TJ, sums_TNJ = share_TJ[:-1, here], sum_TNJ[:-1, :, here]
        if later_J is not None:
            shares_TJ, sums_TNJ = shares_TJ * later_J[here], sums_TNJ * later_J[here]
        longer_TJ = segment_mean(shares_TJ, parents, count)
        longer_TNJ = gamma * segment_mean(sums_TNJ, parents, count)
        share_TJ[1:] += longer_TJ
        sum_TNJ[1:] += longer_TNJ if last_only else longer_TNJ + longer_TJ[:, None] * shared_NJ
    return share_TJ, sum_TNJ


# ------------------------------------------------------------------------------------------- tokens


def token_advantages(
    rewards_SL: Tensor, values_SL: Tensor, mask_SL: Tensor, gae_lambda: float
) -> Tensor:
    """Compute generalised advantages over the tokens of each completion, with γ = 1. [S, L] ->
    [S, L]

        A_t = Σ_{k≥0} λ^k·δ_{t+k},  δ_t = r_t + V_{t+1} − V_t,  V = 0 after the last token

    `values_SL` holds the value before each token. Completions are independent of each other.
    Padding gets 0.

    Source: Schulman et al. 2016, arXiv 1506.02438, equation 16.
    """
    values_SL = torch.where(mask_SL, values_SL, 0.0)
    following_SL = torch.cat([values_SL[:, 1:], torch.zeros_like(values_SL[:, :1])], dim=1)
    delta_SL = torch.where(mask_SL, rewards_SL + following_SL - values_SL, 0.0)
    step = 1
    while step < delta_SL.shape[1]:  # each pass doubles the number of terms in every sum
        delta_SL[:, :-step] += gae_lambda**step * delta_SL[:, step:].clone()
        step *= 2
    return torch.where(mask_SL, delta_SL, 0.0)


# --------------------------------------------------------------------------------------- incentives


def bonuses(right_NJ: Tensor, forest: Forest, incentives: Incentives) -> Tensor:
    """Compute the bonus of every agent for every joint action. bool [N, J] -> float64 [N, J]

    It is for agents that correct their answer or make others correct theirs (MAPoRL, arXiv
    2502.18439). A bonus belongs to one turn of one agent. It is added to the return of that turn
    and does not propagate to earlier turns.

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
    parent_C = forest.parent_J[later]
    before_NC, after_NC = right_NJ[:, parent_C], right_NJ[:, later]
    led_NC, follow_NC = others_NJ[:, parent_C], others_NJ[:, later]
    sizes = (incentives.alpha0, incentives.alpha1, incentives.beta0, incentives.beta1)
    alpha0, alpha1, beta0, beta1 = torch.tensor(sizes, dtype=torch.float64)
    if incentives.alphas == "code":
        alpha0, alpha1 = alpha1, alpha0
    alone = right_NJ.shape[0] == 1
    follows, resists = (alpha0 if alone else alpha1), alpha0
    own_NC = torch.where(led_NC, follows, resists) * (~before_NC & after_NC)
    own_NC = own_NC - torch.where(led_NC, resists, follows) * (before_NC & ~after_NC)
    on_others_NC = torch.where(before_NC, beta1, beta0) * (~led_NC & follow_NC)
    on_others_NC = on_others_NC - torch.where(before_NC, beta0, beta1) * (led_NC & ~follow_NC)
    total_NJ = segment_mean(on_others_NC, parent_C, right_NJ.shape[1])
    total_NJ[:, later] += own_NC
    return total_NJ


def _others(right_NJ: Tensor) -> Tensor:
    """Return whether strictly more than half of the other agents are right. False if there is only
    one agent."""
    others = right_NJ.shape[0] - 1
    return 2 * (right_NJ.sum(0, keepdim=True) - right_NJ.long()) > max(others, 0)


# ------------------------------------------------------------------------------------------- groups


def segment_sum(values_S: Tensor, segment_S: Tensor, count: int) -> Tensor:
    """Return the sum of each segment; 0 if it is empty."""
    sums = values_S.new_zeros((*values_S.shape[:-1], count))
    return sums.index_add(-1, segment_S, values_S)


def segment_size(segment_S: Tensor, count: int) -> Tensor:
    """Return the size of each segment, int64 [count]."""
    return torch.bincount(segment_S, minlength=count)


def segment_mean(values_S: Tensor, segment_S: Tensor, count: int) -> Tensor:
    """Return the mean of each segment; 0 if it is empty."""
    return segment_sum(values_S, segment_S, count) / segment_size(segment_S, count).clamp(min=1)


def segment_max(values_S: Tensor, segment_S: Tensor, count: int) -> Tensor:
    """Return the maximum of each segment; -inf if it is empty. `values_S` must have the
    shape [S]."""
    lowest = values_S.new_full((count,), -torch.inf)
    return lowest.scatter_reduce(0, segment_S, values_S, reduce="amax")
