"""Preferences between joint actions: the credit of MADPO.

Two joint actions of one Round, of which the first earned more, are a pair. Let D_i be
log π_i(chosen) − log π_i(rejected) of agent i, and Δ the sum of D_i over the agents. The loss of
agent i for a pair is −log σ(β(D_i + sg Σ_{j≠i} D_j)), where sg stops the gradient. Its gradient is
that of a policy-gradient loss in which the chosen completion of the agent has the advantage
β·σ(−βΔ) and the rejected one its negative. So a pair is learned from with `policy_gradient`, and
the advantages are computed anew before every update.

With a reference policy, D_i is reduced by the same difference under the reference. With `reduce:
sequence_mean`, log π_i of a completion is the mean over its tokens, so a long completion does not
outweigh a short one.

Sources: DPO (Rafailov et al. 2023, arXiv 2305.18290, equation 7); comlrl 1.4.3, MADPOTrainer, for
the sum over agents. comlrl has no reference. The mean is that of SimPO (Meng et al. 2024, arXiv
2405.14734, equation 4).
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from motet.core import SampleId
from motet.core.seeding import derive
from motet.credit.table import Table
from motet.settings import PairReplay, Pairs


@dataclass(frozen=True)
class PreferencePair:
    """Two joint actions of one Round. `chosen` earned more than `rejected`."""

    chosen: tuple[SampleId, ...]
    rejected: tuple[SampleId, ...]

    @property
    def completions(self) -> tuple[SampleId, ...]:
        return (*self.chosen, *self.rejected)


@dataclass(frozen=True)
class PreferencePairs:
    """The pairs of a step, and the log-probabilities of their completions in nats."""

    pairs: tuple[PreferencePair, ...] = ()
    sampled_logp: Mapping[SampleId, float] = field(default_factory=dict)
    """Log-probability of each completion under the policy that sampled it (`completion_logp`); 0
    for a partner behind an API, whose log-probabilities are unknown."""
    reference_logp: Mapping[SampleId, float] = field(default_factory=dict)
    """The same under the reference policy. Empty without a reference."""
    stale: frozenset[SampleId] = frozenset()
    """Completions of earlier steps. Their `sampled_logp` is that of earlier policies."""

    def margins(self, part: Sequence[PreferencePair], logp: Mapping[SampleId, float]) -> Tensor:
        """Return Δ of each pair, float64 [P].

        Args:
            logp: log-probabilities under the present policies. Completions that it lacks are those
                of policies that have not changed since they sampled.
        """
        now = {**self.sampled_logp, **logp}

        def above_reference(ids: Iterable[SampleId]) -> float:
            return sum(now[id] - self.reference_logp.get(id, 0.0) for id in ids)

        return torch.tensor(
            [above_reference(pair.chosen) - above_reference(pair.rejected) for pair in part],
            dtype=torch.float64,
        )


def completion_logp(logprobs: Sequence[float], mean: bool) -> float:
    """Return the log-probability of a completion from those of its tokens: their sum, or their
    mean."""
    return sum(logprobs) / (len(logprobs) if mean and logprobs else 1)


def preference_loss(margin_Q: Tensor, beta: float) -> Tensor:
    """−log σ(βΔ) of each pair, [P]."""
    return -logsigmoid(beta * margin_Q)


def preference_advantages(
    part: Sequence[PreferencePair], margin_Q: Tensor, beta: float
) -> dict[SampleId, float]:
    """Return the advantage of each completion in `part`: the sum over its pairs of ±β·σ(−βΔ)."""
    found: dict[SampleId, float] = {}
    weights = (beta * torch.sigmoid(-beta * margin_Q)).tolist()
    for pair, weight in zip(part, weights, strict=True):
        for id in pair.chosen:
            found[id] = found.get(id, 0.0) + weight
        for id in pair.rejected:
            found[id] = found.get(id, 0.0) - weight
    return found


def pairs_of(table: Table, return_J: Tensor, settings: Pairs) -> tuple[PreferencePair, ...]:
    """Return the pairs of every Round, in the order of the Rounds.

    Joint actions with equal returns are no pair. From each Round at most `settings.pairs` are
    taken. Random ones depend on the Round only.

    Args:
        return_J: the return of each joint action, [J].
    """
    pairs: list[PreferencePair] = []
    returns, rounds = return_J.tolist(), table.forest.round_J.tolist()
    actions_of: dict[int, list[int]] = {}
    for action, round_ in enumerate(rounds):
        actions_of.setdefault(round_, []).append(action)
    for actions in actions_of.values():
        compared = list(permutations(actions, 2))
        if settings.compare == "halves":
            compared = [
                pair
                for first, other in _halves(table, actions)
                for pair in ((first, other), (other, first))
            ]
        better = [(i, j) for i, j in compared if returns[i] > returns[j]]
        if settings.select == "random":
            first = _completions(table, actions[0])[0]
            random.Random(derive("pairs", first.episode, first.path)).shuffle(better)
        elif settings.select != "all":
            better.sort(key=lambda pair: _rank(pair, returns, settings))
        kept = better if settings.select == "all" else better[: settings.pairs]
        pairs += [PreferencePair(_completions(table, i), _completions(table, j)) for i, j in kept]
    return tuple(pairs)


def _halves(table: Table, actions: Sequence[int]) -> list[tuple[int, int]]:
    """Return the g-th joint actions of both halves of a Round, for each g for which none failed."""
    action_at = {int(table.place_J[action]): action for action in actions}
    half = int(table.size_J[actions[0]]) // 2
    return [
        (action_at[place], action_at[place + half])
        for place in range(half)
        if place in action_at and place + half in action_at
    ]


def _rank(pair: tuple[int, int], returns: Sequence[float], settings: Pairs) -> tuple[float, ...]:
    """Sort key of a (chosen, rejected) pair: those with the lowest keys are used."""
    gap = returns[pair[0]] - returns[pair[1]]
    # The comparator is in the second half of the Round's joint actions.
    return (-gap,) if settings.select == "reward_gap" else (-returns[max(pair)], -gap)


def _completions(table: Table, action: int) -> tuple[SampleId, ...]:
    return tuple(
        table.samples[sample].id for sample in table.sample_NJ[:, action].tolist() if sample >= 0
    )


# ---------------------------------------------------------------------- pairs of several iterations
#
# Source: comlrl 1.4.3, MADPOIterTrainer: preference_replay_mode, _lambda, _k and _sample_size.


AnyPair = TypeVar("AnyPair")
LEAST = 1e-4
"""The smallest share of an iteration under lambda_decay."""


def weights_of(iterations: int, replay: PairReplay) -> list[float]:
    """Return how likely a pair is drawn from each iteration, oldest first. They add up to 1.

    With lambda_decay an iteration of age a has the weight (1 - λ)·λ^a, divided by the sum of all. A
    weight below `LEAST` is 0, so that old iterations need not be read.
    """
    match replay.mode:
        case "current":
            weights = [0.0] * (iterations - 1) + [1.0]
        case "nearest_k":
            assert replay.k is not None
            weights = [float(age < replay.k) for age in reversed(range(iterations))]
        case "all_history":
            weights = [1.0] * iterations
        case "lambda_decay":
            assert replay.decay is not None
            decayed = [replay.decay**age for age in reversed(range(iterations))]
            weights = [weight * (weight >= LEAST * sum(decayed)) for weight in decayed]
    return [weight / sum(weights) for weight in weights]


def replayed(history: Sequence[Sequence[AnyPair]], replay: PairReplay, seed: int) -> list[AnyPair]:
    """Draw the pairs of one iteration.

    Each draw first chooses an iteration by `weights_of`, among those with pairs. Within an
    iteration no pair is drawn again before all were drawn.

    Args:
        history: the pairs of all iterations, oldest first. The last are the present ones.
    """
    present = history[-1]
    if replay.mode == "current":
        return list(present)
    weighted = [
        (pairs, weight)
        for pairs, weight in zip(history, weights_of(len(history), replay), strict=True)
        if pairs and weight > 0.0
    ]
    if not weighted:
        return []
    draw = random.Random(seed)
    size = replay.size or len(present) or len(weighted[-1][0])
    places = draw.choices(range(len(weighted)), [weight for _, weight in weighted], k=size)
    found: list[AnyPair] = []
    for place, (pairs, _) in enumerate(weighted):
        whole, rest = divmod(places.count(place), len(pairs))
        found += [*pairs] * whole + draw.sample(list(pairs), rest)
    draw.shuffle(found)
    return found
