"""Episodes -> TrainSamples: the only bridge from trees to tensors, and the only place where a baseline is subtracted.

rewards -> (absorb, share, KL) -> fold -> return of each sample -> baseline -> scale -> TrainSample with its weight
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from motet.core import CreditState, Episode, SampleId, Scores, Team, TrainSample
from motet.credit.baselines import BASELINES, Comparison
from motet.credit.flatten import Rows, flatten, sound
from motet.credit.returns import Forest, absorb, current, discounted_sum, last, tree_fold
from motet.credit.segments import segment_mean, segment_size
from motet.credit.shaping import divide_by_spread
from motet.errors import ConfigError
from motet.settings import Algorithm

PATH_RETURNS: dict[str, Callable[[Tensor, float, str], Tensor]] = {
    "discounted_sum": discounted_sum,
    "last": lambda scores_TN, discount, share: last(scores_TN, share),
    "current": lambda scores_TN, discount, share: current(scores_TN, share),
}


@dataclass(frozen=True)
class Credit:
    """What a step's episodes are worth: samples to learn from, what to remember, and counts for the report."""

    samples: list[TrainSample]
    state: CreditState
    metrics: Mapping[str, float] = field(default_factory=dict)


def assign_credit(
    episodes: Sequence[Episode],
    scores: Scores,
    algorithm: Algorithm,
    state: CreditState,
    team: Team,
    turns: int,
) -> Credit:
    """Credit of every completion of a step. Pure: same input, same output, nothing written into.

    Args:
        episodes: all of one step; failed ones are left out here and weigh nothing.
        scores: reference log-probabilities, where `algorithm.kl_in` is "reward" or "loss".
        team: its agents, and which policies are frozen: those earn credit for nobody and need no reference.
        turns: the turn limit of the plan (for absorbing stops).
    Raises: ConfigError where the trees are not what the algorithm's returns can read.
    """
    played = sound(episodes)
    rows = flatten(
        [(k, episode.id, episode.root) for k, episode in enumerate(played) if episode.root is not None], turns
    )
    if not rows.samples:
        return Credit([], state, {"credit/samples": 0.0})
    agents = list(team.agents)
    agent_S = torch.tensor([agents.index(sample.id.agent) for sample in rows.samples])
    k1_S = _divergences(rows, scores, team) if algorithm.kl_in == "reward" else torch.zeros(len(rows.samples)).double()
    returns_S = _returns_of_samples(rows, algorithm, agents, agent_S, algorithm.kl_coefficient * k1_S)
    group_S = _groups(rows, algorithm, agent_S)
    greedy_S, without_greedy_S = _greedy_returns(played, rows, algorithm, agents, turns)
    comparison = Comparison(returns_S, group_S, greedy_S, _averages(rows, state))
    baseline = BASELINES[algorithm.baseline]
    advantages_S = returns_S - baseline.of(comparison)
    if algorithm.scale == "std":
        advantages_S = divide_by_spread(advantages_S, returns_S, group_S)
    alone_S = segment_size(group_S, comparison.groups)[group_S] == 1
    left_out_S = (alone_S if baseline.siblings else torch.zeros_like(alone_S)) | without_greedy_S
    samples = _train_samples(rows, advantages_S, group_S, left_out_S, scores, algorithm, team)
    return Credit(samples, _remember(rows, returns_S, state, algorithm), _metrics(comparison, advantages_S, left_out_S))


def _rewards(rows: Rows, algorithm: Algorithm, agents: Sequence[str]) -> Tensor:
    """[N, J]: what each joint action earned each agent; for the fold after sharing and absorbing."""
    rewards_NJ = torch.tensor([[action.rewards[a] for action in rows.actions] for a in agents], dtype=torch.float64)
    if algorithm.returns == "tree" and algorithm.share == "all":
        rewards_NJ = rewards_NJ.mean(0, keepdim=True).expand_as(rewards_NJ)
    if algorithm.returns == "tree" and algorithm.absorb:
        rewards_NJ = absorb(rewards_NJ, torch.tensor([action.missing for action in rows.actions]), algorithm.discount)
    return rewards_NJ


def _divergences(rows: Rows, scores: Scores, team: Team) -> Tensor:
    """k1 = Σ over tokens of (log π − log π_ref), nats; 0 for who is never trained. [S]"""
    k1 = [
        sum(a - b for a, b in zip(sample.completion.logprobs, scores.reference[sample.id], strict=True))
        if sample.completion.logprobs is not None and sample.completion.policy not in team.frozen
        else 0.0
        for sample in rows.samples
    ]
    return torch.tensor(k1, dtype=torch.float64)


def _returns_of_samples(
    rows: Rows, algorithm: Algorithm, agents: Sequence[str], agent_S: Tensor, penalty_S: Tensor
) -> Tensor:
    """A sample's return is the mean over the joint actions it took part in. [S]

    In the fold a penalty is part of the reward, so earlier turns answer for later divergence; a rule that replaces the fold
    lets nothing cross a turn, so each sample answers for its own.
    """
    rewards_NJ = _rewards(rows, algorithm, agents)
    if algorithm.returns == "tree":
        picked = [[action.picks[a] if a in action.picks else -1 for action in rows.actions] for a in agents]
        rewards_NJ = rewards_NJ - torch.cat([penalty_S, penalty_S.new_zeros(1)])[torch.tensor(picked)]
        acts_NJ = torch.ones_like(rewards_NJ, dtype=torch.bool)  # with V = 0 and λ = 1 silence changes nothing
        returns_NJ = tree_fold(
            rewards_NJ, torch.zeros_like(rewards_NJ), acts_NJ, _forest(rows), algorithm.discount, algorithm.trace
        )
    else:
        returns_NJ = _path_returns(rows, rewards_NJ, algorithm)
    pairs = [(j, row) for j, action in enumerate(rows.actions) for row in action.picks.values()]
    action_K, sample_K = torch.tensor(pairs).T
    returns_S = segment_mean(returns_NJ[agent_S[sample_K], action_K], sample_K, len(rows.samples))
    return returns_S if algorithm.returns == "tree" else returns_S - penalty_S


def _forest(rows: Rows) -> Forest:
    return Forest(
        parent_J=torch.tensor([action.parent for action in rows.actions]),
        round_J=torch.tensor([action.round for action in rows.actions]),
        turn_J=torch.tensor([action.turn for action in rows.actions]),
        pruned_J=torch.tensor([action.pruned for action in rows.actions]),
    )


def _path_returns(rows: Rows, scores_NJ: Tensor, algorithm: Algorithm) -> Tensor:
    """Returns read along each straight path, for the rules that replace the fold. [N, J]"""
    rule = PATH_RETURNS[algorithm.returns]
    child_of: dict[int, int] = {}
    for j, action in enumerate(rows.actions):
        if action.parent >= 0 and child_of.setdefault(action.parent, j) != j:
            raise ConfigError(
                f"returns {algorithm.returns} reads straight paths, got a Round with several joint actions at turn "
                f"{action.turn + 1}: use rollout.samples [G, 1, ...], or returns: tree"
            )
    returns_NJ = torch.zeros_like(scores_NJ)
    for start in (j for j, action in enumerate(rows.actions) if action.parent < 0):
        path = [start]
        while path[-1] in child_of:
            path.append(child_of[path[-1]])
        returns_NJ[:, path] = rule(scores_NJ[:, path].T, algorithm.discount, algorithm.share).T
    return returns_NJ


def _groups(rows: Rows, algorithm: Algorithm, agent_S: Tensor) -> Tensor:
    """Numbers the groups of samples that are compared with each other. int64 [S]"""
    keys = [
        (sample.round, int(agent)) if algorithm.compare == "round" else (sample.episode, int(agent), sample.turn)
        for sample, agent in zip(rows.samples, agent_S, strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([numbers[key] for key in keys])


def _greedy_returns(
    played: Sequence[Episode], rows: Rows, algorithm: Algorithm, agents: Sequence[str], turns: int
) -> tuple[Tensor | None, Tensor]:
    """Each sample's greedy return (0 where the greedy path ended before its turn), and which samples have none. [S] [S]"""
    nowhere_S = torch.zeros(len(rows.samples), dtype=torch.bool)
    if algorithm.baseline != "greedy_path":
        return None, nowhere_S
    roots = [(k, episode.id, episode.greedy) for k, episode in enumerate(played) if episode.greedy is not None]
    greedy = flatten(roots, turns)
    if not greedy.samples:
        return torch.zeros(len(rows.samples), dtype=torch.float64), ~nowhere_S
    agent_G = torch.tensor([agents.index(sample.id.agent) for sample in greedy.samples])
    returns_G = _returns_of_samples(greedy, algorithm, agents, agent_G, torch.zeros(len(greedy.samples)).double())
    found = {
        (sample.episode, sample.id.agent, sample.turn): float(value)
        for sample, value in zip(greedy.samples, returns_G, strict=True)
    }
    have = {sample.episode for sample in greedy.samples}
    values = [found.get((s.episode, s.id.agent, s.turn), 0.0) for s in rows.samples]
    missing = [s.episode not in have for s in rows.samples]
    return torch.tensor(values, dtype=torch.float64), torch.tensor(missing)


def _seat(agent: str, turn: int) -> str:
    return f"{agent}/{turn}"


def _averages(rows: Rows, state: CreditState) -> Tensor:
    """Decayed mean of earlier steps for each sample's agent and turn; 0 before the first. [S]"""
    means = [
        total / count if count else 0.0
        for total, count in (state.averages.get(_seat(s.id.agent, s.turn), (0.0, 0.0)) for s in rows.samples)
    ]
    return torch.tensor(means, dtype=torch.float64)


def _remember(rows: Rows, returns_S: Tensor, state: CreditState, algorithm: Algorithm) -> CreditState:
    if algorithm.baseline != "moving_average":
        return state
    seen: dict[str, list[float]] = {}
    for sample, value in zip(rows.samples, returns_S, strict=True):
        seen.setdefault(_seat(sample.id.agent, sample.turn), []).append(float(value))
    averages = dict(state.averages)
    for seat, values in seen.items():
        total, count = averages.get(seat, (0.0, 0.0))
        kept = algorithm.average_decay
        averages[seat] = (kept * total + sum(values) / len(values), kept * count + 1.0)
    return CreditState(averages)


def _train_samples(
    rows: Rows,
    advantages_S: Tensor,
    group_S: Tensor,
    left_out_S: Tensor,
    scores: Scores,
    algorithm: Algorithm,
    team: Team,
) -> list[TrainSample]:
    """What is learnt from: not frozen partners, not partners behind an API, not turns of weight 0, not what was left out."""
    table = zip(rows.samples, advantages_S.tolist(), group_S.tolist(), left_out_S.tolist(), strict=True)
    return [
        TrainSample(
            id=sample.id,
            policy=sample.completion.policy,
            turn=sample.turn,
            group=group,
            prompt_tokens=sample.prompt_tokens,
            completion=sample.completion,
            advantage=advantage,
            weight=sample.weight * algorithm.turn_weight(sample.turn),
            reference_logprobs=_reference_of(sample.id, scores),
        )
        for sample, advantage, group, left_out in table
        if not left_out
        and sample.completion.tokens is not None
        and sample.completion.policy not in team.frozen
        and algorithm.turn_weight(sample.turn) > 0.0
    ]


def _reference_of(id: SampleId, scores: Scores) -> tuple[float, ...] | None:
    return scores.reference[id] if id in scores.reference else None


def _metrics(comparison: Comparison, advantages_S: Tensor, left_out_S: Tensor) -> dict[str, float]:
    groups = comparison.groups
    means_S = segment_mean(comparison.returns_S, comparison.group_S, groups)[comparison.group_S]
    spread_R = segment_mean((comparison.returns_S - means_S) ** 2, comparison.group_S, groups).sqrt()
    return {
        "credit/samples": float(len(advantages_S)),
        "credit/left_out": float(left_out_S.sum()),
        "credit/return": float(comparison.returns_S.mean()),
        "credit/spread": float(spread_R.mean()),
        "credit/flat_groups": float((spread_R < 1e-6).double().mean()),
        "credit/advantage_abs": float(advantages_S.abs().mean()),
    }
