"""Advantages and value targets for algorithms with critics.

turn scope: one value per observation, read at the end of the prompt. Advantages are computed over
the tree. token scope: one value before every token of a completion. The return is on the last
token, and nothing propagates across turns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motet.core import SampleId, Scores, Team, TrainSample, ValueEstimate, ValueId, ValueSample
from motet.credit.baselines import SMALLEST_SPREAD, whiten
from motet.credit.ratios import Ratios
from motet.credit.returns import token_advantages, tree_fold
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.settings import Algorithm, CriticCredit


@dataclass(frozen=True)
class AdvantageResult:
    """Advantages of all samples (one number, or one per token), returns that do not use values, and
    the critics' training samples."""

    advantages: Sequence[float | tuple[float, ...]]
    returns_S: Tensor
    values: list[ValueSample]


def reading_of(id: SampleId, rule: CriticCredit) -> ValueId:
    """Return the id of the critic input that gives the value of a sample."""
    if rule.scope == "token":
        return ValueId(id.episode, id.path, id.agent, id.index)
    return ValueId(id.episode, id.path, None if rule.view == "joint" else id.agent)


def _is_valued(sample: TrainSample, rule: CriticCredit) -> bool:
    """Whether a critic reads what gives the value of a sample."""
    return rule.scope == "turn" or bool(sample.completion.tokens)


def refuse_missing_values(table: Table, rule: CriticCredit, scores: Scores, team: Team) -> None:
    """Refuse what would train with V = 0.

    Raises: ConfigError if an agent that learns has no critic, or if a value of one that has a
    critic is missing.
    """
    for sample in (one for one in table.samples if _is_valued(one, rule)):
        agent = sample.id.agent
        learns = sample.completion.tokens is not None and sample.policy not in team.frozen
        if agent not in team.critics and learns:
            raise ConfigError(
                f"credit.kind critic needs the critic of {agent}, got team.critics "
                f"{dict(team.critics)}: name one for every agent that learns, as in "
                f"Team(..., critics={{{agent!r}: 'critic'}}), and give it to the sampler and a "
                "learner"
            )
        if agent in team.critics and reading_of(sample.id, rule) not in scores.values:
            raise ConfigError(
                f"credit.kind critic needs the value of each observation, but the scores have none "
                f"of {agent} in episode {sample.id.episode}: pass what score(scorer, episodes, "
                "algorithm, team) returns for the same episodes, algorithm and team"
            )


def first_values(table: Table, rule: CriticCredit, scores: Scores, team: Team) -> Tensor:
    """Return the first value of each sample's critic input, float64 [S]; 0 for agents without a
    critic, and with `scope: token` for completions without tokens, such as an endpoint's."""
    values = [
        scores.values[reading_of(sample.id, rule)].values[0]
        if sample.id.agent in team.critics and _is_valued(sample, rule)
        else 0.0
        for sample in table.samples
    ]
    return torch.tensor(values, dtype=torch.float64)


# ------------------------------------------------------------ turn scope


def turn_advantages(
    table: Table,
    algorithm: Algorithm,
    rule: CriticCredit,
    scores: Scores,
    team: Team,
    penalty_S: Tensor,
    ratios: Ratios | None = None,
) -> AdvantageResult:
    """Compute turn-level advantages and critic targets.

    With `returns: tree` they are TD(λ) and GAE on trees, per agent over its own decisions. With the
    other rules the advantage is return minus value.
    """
    forest = table.forest
    later_J = None if ratios is None else ratios.later_J
    value_S = first_values(table, rule, scores, team)
    values_NJ = table.of_actions(value_S)
    returns_NJ = table.returns_NJ(algorithm, penalty_S, later_J)
    if algorithm.returns == "tree":
        rewards_NJ = table.rewards_NJ(algorithm) - table.of_actions(penalty_S)
        folded_NJ = tree_fold(
            rewards_NJ,
            values_NJ,
            table.acts_NJ,
            forest,
            algorithm.gamma,
            rule.gae_lambda,
            algorithm.pruned,
            later_J,
        )
        target_NJ, advantages_NJ = values_NJ + folded_NJ, folded_NJ + table.extras_NJ(algorithm)
        if rule.view == "joint":
            target_NJ = _joint_targets(table, algorithm, rule, rewards_NJ, values_NJ, later_J)
    else:
        target_NJ, advantages_NJ = returns_NJ, returns_NJ - values_NJ
        if rule.view == "joint":
            target_NJ = _mean_of_acting(returns_NJ, table.acts_NJ).expand_as(returns_NJ)
    if ratios is not None:
        target_NJ = values_NJ + ratios.action_NJ * (target_NJ - values_NJ)
        advantages_NJ = ratios.weight_NJ * advantages_NJ
    advantages_S = table.of_samples(advantages_NJ)
    if rule.whiten:
        advantages_S = _whitened(advantages_S, _agent_turns(table))
    return AdvantageResult(
        advantages_S.tolist(),
        table.of_samples(returns_NJ),
        _turn_value_samples(table, algorithm, rule, scores, team, target_NJ),
    )


def _joint_targets(
    table: Table,
    algorithm: Algorithm,
    rule: CriticCredit,
    rewards_NJ: Tensor,
    values_NJ: Tensor,
    later_J: Tensor | None,
) -> Tensor:
    """Return the targets V + A of a joint critic, [N, J].

    The joint critic has a value in every Round. Its reward is the mean reward of the agents that
    act.
    """
    acts_NJ = table.acts_NJ
    shared_1J = _mean_of_acting(rewards_NJ, acts_NJ)
    values_1J = _mean_of_acting(values_NJ, acts_NJ)
    folded_1J = tree_fold(
        shared_1J,
        values_1J,
        torch.ones_like(shared_1J, dtype=torch.bool),
        table.forest,
        algorithm.gamma,
        rule.gae_lambda,
        algorithm.pruned,
        later_J,
    )
    return (values_1J + folded_1J).expand_as(rewards_NJ)


def _mean_of_acting(figures_NJ: Tensor, acts_NJ: Tensor) -> Tensor:
    return torch.where(acts_NJ, figures_NJ, 0.0).sum(0, keepdim=True) / acts_NJ.sum(0, keepdim=True)


def _turn_value_samples(
    table: Table,
    algorithm: Algorithm,
    rule: CriticCredit,
    scores: Scores,
    team: Team,
    target_NJ: Tensor,
) -> list[ValueSample]:
    """Return one training sample per observation. Its target is the mean over the joint actions
    taken there."""
    target_S = table.of_samples(target_NJ).tolist()
    gathered: dict[ValueId, list[int]] = {}
    for row, sample in enumerate(table.samples):
        if sample.id.agent in team.critics:
            gathered.setdefault(reading_of(sample.id, rule), []).append(row)
    value_samples = []
    for id, rows in gathered.items():
        own = [table.samples[row] for row in rows]
        agents = {sample.id.agent for sample in own}
        # The samples of each agent sum to the Round's share. Divide, so that several agents
        # together still sum to it.
        shares = [sample.share / len(agents) for sample in own]
        target = sum(share * target_S[row] for share, row in zip(shares, rows, strict=True)) / sum(
            shares
        )
        value_samples.append(
            _value_sample(
                id,
                team.critics[own[0].id.agent],
                _policy_turns_of(team, algorithm, team.critics[own[0].id.agent], own[0].turn),
                own[0].turn,
                scores.values[id],
                (target,),
                sum(shares),
            )
        )
    return [value_sample for value_sample in value_samples if value_sample.policy_turns]


# ------------------------------------------------------------ token scope


def completion_advantages(
    table: Table,
    algorithm: Algorithm,
    rule: CriticCredit,
    scores: Scores,
    team: Team,
    divergence: Sequence[tuple[float, ...] | None],
    coefficient_S: Tensor,
    ratios: Ratios | None = None,
) -> AdvantageResult:
    """Compute GAE over the tokens of each completion.

    The KL penalty is applied at each token, and the return is added at the last token. Samples of
    agents without a critic have the advantage 0.
    """
    samples = table.samples
    nothing_S = torch.zeros(len(samples), dtype=torch.float64)
    later_J = None if ratios is None else ratios.later_J
    returns_S = table.of_samples(table.returns_NJ(algorithm, nothing_S, later_J))
    rows = [
        row
        for row, sample in enumerate(samples)
        if sample.id.agent in team.critics and sample.completion.tokens
    ]
    if not rows:
        return AdvantageResult([0.0] * len(samples), returns_S, [])
    said = [scores.values[reading_of(samples[row].id, rule)] for row in rows]
    length_S = torch.tensor([len(one.values) for one in said])
    mask_SL = torch.arange(int(length_S.max())) < length_S[:, None]
    values_SL = _spread(mask_SL, [one.values for one in said])
    rewards_SL = torch.zeros_like(values_SL)
    if algorithm.kl_in_reward is not None:
        paid = [
            divergence[row] or (0.0,) * int(length)
            for row, length in zip(rows, length_S, strict=True)
        ]
        rewards_SL = -coefficient_S[rows, None] * _spread(mask_SL, paid)
    rewards_SL[torch.arange(len(rows)), length_S - 1] += returns_S[rows]
    advantages_SL = token_advantages(rewards_SL, values_SL, mask_SL, rule.gae_lambda)
    if ratios is not None:
        here_S = table.of_samples(ratios.action_NJ)[rows, None]
        targets_SL = values_SL + here_S * advantages_SL
        advantages_SL = advantages_SL * ratios.weight_S[rows, None]
    else:
        targets_SL = values_SL + advantages_SL
    if rule.whiten:
        agent_turn_SL = torch.tensor(_agent_turns(table))[rows, None].expand_as(mask_SL)
        advantages_SL = advantages_SL.masked_scatter(
            mask_SL, _whitened(advantages_SL[mask_SL], agent_turn_SL[mask_SL].tolist())
        )
    advantages: list[float | tuple[float, ...]] = [0.0] * len(samples)
    value_samples = []
    for place, (row, one) in enumerate(zip(rows, said, strict=True)):
        sample, length = samples[row], int(length_S[place])
        advantages[row] = tuple(advantages_SL[place, :length].tolist())
        if sample.policy not in team.frozen:
            critic, id = team.critics[sample.id.agent], reading_of(sample.id, rule)
            target = tuple(targets_SL[place, :length].tolist())
            policy_turns = ((sample.policy, sample.turn),)
            value_samples.append(
                _value_sample(id, critic, policy_turns, sample.turn, one, target, sample.share)
            )
    return AdvantageResult(advantages, returns_S, value_samples)


def _spread(mask_SL: Tensor, rows: Sequence[Sequence[float]]) -> Tensor:
    """Write rows of numbers to the masked positions, 0 elsewhere. float64 [S, L]"""
    flat = torch.tensor([value for row in rows for value in row], dtype=torch.float64)
    return torch.zeros(mask_SL.shape, dtype=torch.float64).masked_scatter(mask_SL, flat)


# ------------------------------------------------------------ both scopes


def _value_sample(
    id: ValueId,
    critic: str,
    policy_turns: tuple[tuple[str, int], ...],
    turn: int,
    said: ValueEstimate,
    target: tuple[float, ...],
    share: float,
) -> ValueSample:
    return ValueSample(
        id, critic, policy_turns, turn, said.tokens, said.positions, target, said.values, share
    )


def _policy_turns_of(
    team: Team, algorithm: Algorithm, critic: str, turn: int
) -> tuple[tuple[str, int], ...]:
    """Return the (policy, turn) pairs whose advantages use a value of `turn`.

    With `returns: tree` these include all earlier turns.
    """
    turns = range(turn + 1) if algorithm.returns == "tree" else (turn,)
    agents = [agent for agent, name in team.critics.items() if name == critic]
    found = dict.fromkeys((team.policy_of(agent, t), t) for t in turns for agent in agents)
    return tuple(policy_turn for policy_turn in found if policy_turn[0] not in team.frozen)


def _agent_turns(table: Table) -> list[int]:
    """Return a number for each sample that identifies its agent and turn."""
    turns = 1 + max(sample.turn for sample in table.samples)
    return [
        int(agent) * turns + sample.turn
        for agent, sample in zip(table.agent_S, table.samples, strict=True)
    ]


def _whitened(advantages_S: Tensor, agent_turns: Sequence[int]) -> Tensor:
    """Whiten the advantages of each agent and turn separately, so that the rewards of one turn do
    not affect the advantages of others."""
    agent_turn_S, result_S = torch.tensor(agent_turns), advantages_S.clone()
    for agent_turn in sorted(set(agent_turns)):
        own_S = agent_turn_S == agent_turn
        result_S[own_S] = whiten(advantages_S[own_S])
    return result_S


def explained_variance(values: Sequence[ValueSample]) -> Mapping[str, float]:
    """Return `credit/explained_variance/CRITIC/turnT` = 1 − Var(target − value)/Var(target) for
    each critic and turn.

    1 means perfect prediction, 0 means no better than a constant. There is no entry if the targets
    do not vary.
    """
    pairs: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for sample in values:
        pairs.setdefault((sample.critic, sample.turn), []).extend(
            zip(sample.target, sample.old_value, strict=True)
        )
    found = {}
    for (critic, turn), rows in pairs.items():
        target_S, value_S = torch.tensor(rows, dtype=torch.float64).T
        spread = target_S.var(correction=0)
        if float(spread) > SMALLEST_SPREAD**2:
            unexplained = float((target_S - value_S).var(correction=0) / spread)
            found[f"credit/explained_variance/{critic}/turn{turn + 1}"] = 1.0 - unexplained
    return found
