"""Credit assignment: turns episodes into TrainSamples with advantages.

This is the only place where trees become tensors and where a baseline is subtracted.

    rewards -> (repeat_last_reward, reward_sharing, KL) -> tree_fold -> return of each sample
            -> baseline, or a critic's values -> scale -> (influence) -> (own credit function)
            -> TrainSamples
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from motet.core import CreditState, Episode, SampleId, Scores, Team, TrainSample, ValueSample
from motet.credit import critics
from motet.credit.absent import coalitions_of, placed_rounds
from motet.credit.baselines import (
    Comparison,
    JointActions,
    baseline_of,
    divide_by_agent_spread,
    divide_by_spread,
)
from motet.credit.influence import (
    caused,
    influence_metrics,
    pooled,
    refuse_missing_influence,
    standardised,
)
from motet.credit.own import CheckedCredit, CreditFunction, step_of
from motet.credit.preferences import PreferencePairs, completion_logp, pairs_of
from motet.credit.ratios import Ratios, prefix_weights, ratios_of
from motet.credit.returns import segment_mean, segment_size
from motet.credit.table import Table
from motet.errors import ConfigError
from motet.settings import Algorithm, CriticCredit, GroupCredit, NoCredit, PairCredit


@dataclass(frozen=True)
class Credit:
    """The credit of a step's episodes: training samples, the new state, and metrics."""

    samples: list[TrainSample]
    state: CreditState
    metrics: Mapping[str, float] = field(default_factory=dict)
    values: list[ValueSample] = field(default_factory=list)
    """Training samples of the critics."""
    preferences: PreferencePairs | None = None
    """The pairs to learn from, if the algorithm's credit is of kind pairs. The advantages of
    `samples` are then 0, until `preference_advantages` gives those of an update."""


def assign_credit(
    episodes: Sequence[Episode],
    scores: Scores,
    algorithm: Algorithm,
    state: CreditState,
    team: Team,
    turns: int,
    own: CreditFunction | None = None,
) -> Credit:
    """Compute the advantages of all completions of a step. It does not modify its arguments.

    Args:
        episodes: all episodes of one step. Failed ones are ignored.
        scores: reference log-probabilities if the algorithm needs them; values if it has a critic;
            the influence of completions with `credit.influence`.
        team: the agents, their critics, and the frozen policies. Frozen policies get no training
            samples and need no reference.
        turns: the turn limit of the plan, for `repeat_last_reward`.
        own: a credit function, whose advantages replace those of the algorithm. Its result is
            checked.

    Raises: ConfigError if incentives are set and an outcome lacks who was right; if what the
        algorithm reads is missing: a greedy path, a critic or its values, reference
        log-probabilities, influences, its own credit function. MotetError if `own` raises an
        exception or returns anything but finite advantages.
    """
    roots = [(episode.id, episode.root) for episode in episodes if episode.root is not None]
    table = Table.of(roots, list(team.agents), turns)
    samples = table.samples
    if not samples:
        pairs = None if algorithm.pairs is None else PreferencePairs()
        return Credit([], state, {"credit/samples": 0.0}, preferences=pairs)
    if algorithm.needs_reference:
        _refuse_missing_reference(samples, scores, team)
    if algorithm.pairs is not None:
        return _preferences(table, scores, algorithm, algorithm.pairs, state, team)
    if own is None and algorithm.own_credit is not None:
        raise ConfigError(
            f"algorithm.credit.function is {algorithm.own_credit}, which is loaded for a run only: "
            "pass the function, assign_credit(..., own=FUNCTION)"
        )
    if algorithm.critic is not None:
        critics.refuse_missing_values(table, algorithm.critic, scores, team)
    ratios = ratios_of(table, algorithm, scores.present) if scores.present else None
    k1 = divergences(samples, algorithm, scores, team)
    coefficient_S = coefficients(samples, algorithm, state)
    penalty_S = _penalties(k1, coefficient_S, algorithm)
    group_S = _groups(table, algorithm)
    left_out_S = torch.zeros(len(samples), dtype=torch.bool)
    match algorithm.credit:
        case CriticCredit(scope="token") as rule:
            result = critics.completion_advantages(
                table, algorithm, rule, scores, team, k1, coefficient_S, ratios
            )
        case CriticCredit() as rule:
            result = critics.turn_advantages(
                table, algorithm, rule, scores, team, penalty_S, ratios
            )
        case NoCredit():
            returns_S = table.of_samples(table.returns_NJ(algorithm, penalty_S))
            result = critics.AdvantageResult([0.0] * len(samples), returns_S, [])
        case GroupCredit(terms=terms) as rule if terms:
            result, left_out_S, known = _by_terms(table, algorithm, rule, group_S, ratios, state)
            state = replace(state, terms=known)
        case GroupCredit() as rule:
            comparison, left_out_S = _comparison(
                episodes, table, algorithm, rule, state, group_S, turns, penalty_S, ratios
            )
            result = _compared_advantages(comparison, rule, group_S, table, ratios)
    influenced: dict[str, float] = {}
    if algorithm.group is not None and algorithm.group.influence > 0.0:
        refuse_missing_influence(episodes, scores, team)
        caused_S = caused(table, scores.influence)
        result = _with_influence(result, algorithm.group.influence, caused_S, table, ratios)
        influenced = influence_metrics(table, caused_S)
    if own is not None:
        step = step_of(episodes, table, algorithm, scores, team, group_S, penalty_S, result)
        result = replace(result, advantages=_weighted(CheckedCredit.of(own)(step), ratios))
        left_out_S = torch.zeros_like(left_out_S)
    unused_S = left_out_S | table.once_S
    return Credit(
        _train_samples(table, result.advantages, unused_S, scores, algorithm, team, ratios),
        CreditState(
            _averages_after(samples, result.returns_S, state, algorithm),
            adapted(samples, k1, algorithm, state),
            terms=state.terms,
        ),
        _metrics(result, group_S, left_out_S, ~table.once_S)
        | _extra_metrics(samples, scores, algorithm, state, team)
        | _metrics_of_ratios(ratios)
        | influenced,
        result.values,
    )


def _weighted(
    given: Tensor | Sequence[Tensor], ratios: Ratios | None
) -> Sequence[float | tuple[float, ...]]:
    """Return the advantages of an own credit function, weighted by importance ratios if there are
    some."""
    if isinstance(given, Tensor):
        return (given if ratios is None else given * ratios.weight_S.to(given)).tolist()
    weights = [1.0] * len(given) if ratios is None else ratios.weight_S.tolist()
    return [
        tuple((one * weight).tolist()) if len(one) else 0.0
        for one, weight in zip(given, weights, strict=True)
    ]


def _penalties(
    k1: Sequence[Sequence[float] | None], coefficient_S: Tensor, algorithm: Algorithm
) -> Tensor:
    """Return what the divergence from the reference costs each sample, [S]."""
    if algorithm.kl_in_reward is None:
        return torch.zeros_like(coefficient_S)
    divergence_S = torch.tensor([sum(tokens or ()) for tokens in k1], dtype=torch.float64)
    return coefficient_S * divergence_S


def _compared_advantages(
    comparison: Comparison,
    rule: GroupCredit,
    group_S: Tensor,
    table: Table,
    ratios: Ratios | None,
) -> critics.AdvantageResult:
    """Return the returns minus the baseline, weighted by importance ratios if there are some, and
    scaled if the rule says so."""
    baseline_S = baseline_of(rule.baseline).of(comparison)
    if ratios is None:
        advantages_S = comparison.returns_S - baseline_S
    else:
        assert comparison.actions is not None
        weighted_S = table.of_samples(ratios.weight_NJ * comparison.actions.returns_NJ)
        advantages_S = weighted_S - ratios.weight_S * baseline_S
    # Without some agents it is not returns that are compared, but what the advantages are made of.
    compared_S = comparison.returns_S if comparison.coalitions is None else advantages_S
    if rule.scale == "std":
        advantages_S = divide_by_spread(advantages_S, compared_S, group_S)
    if rule.scale == "agent_std":
        compares_S = segment_size(group_S, comparison.groups)[group_S] > 1
        counts_S = compares_S & ~table.once_S
        advantages_S = divide_by_agent_spread(
            advantages_S, compared_S, group_S, table.agent_S, counts_S
        )
    return critics.AdvantageResult(advantages_S.tolist(), comparison.returns_S, [])


def _with_influence(
    result: critics.AdvantageResult,
    weight: float,
    caused_S: Tensor,
    table: Table,
    ratios: Ratios | None,
) -> critics.AdvantageResult:
    """Return the advantages plus the weighted influence of each sample (`credit.influence`)."""
    bonus_S = weight * standardised(table, pooled(table, caused_S))
    if ratios is not None:
        bonus_S = bonus_S * ratios.weight_S
    advantages = [one + more for one, more in zip(result.advantages, bonus_S.tolist(), strict=True)]
    return replace(result, advantages=advantages)


def _by_terms(
    table: Table,
    algorithm: Algorithm,
    rule: GroupCredit,
    group_S: Tensor,
    ratios: Ratios | None,
    state: CreditState,
) -> tuple[critics.AdvantageResult, Tensor, tuple[str, ...]]:
    """Return the advantages of the terms of a rule: each is compared and divided by its deviation
    in the group, and the weighted sum by its deviation over the agent's samples of the step.

    Also returns which samples must be left out because they are alone in their group (bool [S]),
    and the terms that are known now (`CreditState.terms`).

    Source: GDPO (arXiv 2601.05242), with one agent's samples as the batch.

    Raises: ConfigError if no joint action of this step or of an earlier one had a term.
    """
    nothing_S = torch.zeros(len(table.samples), dtype=torch.float64)
    total_S, returns_S = nothing_S, nothing_S
    known = state.terms
    for term, weight in rule.terms.items():
        paid, known = table.paid_by(term, known)
        term_S = paid.of_samples(paid.returns_NJ(algorithm, nothing_S))
        gain_S = term_S - baseline_of(rule.baseline).of(Comparison(term_S, group_S))
        total_S = total_S + weight * divide_by_spread(gain_S, term_S, group_S)
        returns_S = returns_S + weight * term_S
    groups = int(group_S.max()) + 1 if len(group_S) else 0
    alone_S = segment_size(group_S, groups)[group_S] == 1
    counts_S = ~alone_S & ~table.once_S
    advantages_S = divide_by_agent_spread(total_S, total_S, group_S, table.agent_S, counts_S)
    advantages_S = torch.where(alone_S, 0.0, advantages_S)
    if ratios is not None:
        advantages_S = advantages_S * ratios.weight_S
    return critics.AdvantageResult(advantages_S.tolist(), returns_S, []), alone_S, known


def _preferences(
    table: Table,
    scores: Scores,
    algorithm: Algorithm,
    rule: PairCredit,
    state: CreditState,
    team: Team,
) -> Credit:
    """Return the pairs of joint actions, and the completions in them as samples."""
    samples = table.samples
    nothing_S = torch.zeros(len(samples), dtype=torch.float64)
    returns_NJ = table.returns_NJ(algorithm, nothing_S)
    pairs = pairs_of(table, returns_NJ.mean(0), rule)
    paired = {id for pair in pairs for id in pair.completions}
    metrics = {
        "credit/samples": float(len(samples)),
        "credit/return": float(table.of_samples(returns_NJ).mean()),
        "credit/pairs": float(len(pairs)),
    }
    if not pairs:
        return Credit([], state, metrics, preferences=PreferencePairs())
    left_out_S = torch.tensor([sample.id not in paired for sample in samples])
    shared = replace(table, samples=[replace(sample, share=1.0 / len(pairs)) for sample in samples])
    learned = _train_samples(shared, [0.0] * len(samples), left_out_S, scores, algorithm, team)
    mean = algorithm.reduce == "sequence_mean"
    preferences = PreferencePairs(
        pairs,
        {
            sample.id: completion_logp(sample.completion.logprobs or (), mean)
            for sample in samples
            if sample.id in paired
        },
        {
            id: completion_logp(logprobs, mean)
            for id, logprobs in scores.reference.items()
            if id in paired
        },
    )
    return Credit(learned, state, metrics, preferences=preferences)


def _comparison(
    episodes: Sequence[Episode],
    table: Table,
    algorithm: Algorithm,
    rule: GroupCredit,
    state: CreditState,
    group_S: Tensor,
    turns: int,
    penalty_S: Tensor,
    ratios: Ratios | None,
) -> tuple[Comparison, Tensor]:
    """Return the input of the baseline, and which samples must be left out because they have
    nothing to compare with (bool [S])."""
    later_J = None if ratios is None else ratios.later_J
    returns_NJ = table.returns_NJ(algorithm, penalty_S, later_J)
    returns_S = table.of_samples(returns_NJ)
    actions = JointActions(table.sample_NJ, returns_NJ, table.forest.round_J)
    greedy_S, without_greedy_S = _greedy_returns(episodes, table, algorithm, rule, turns)
    absent = baseline_of(rule.baseline).absent
    if absent != "none" and not any(round_.without for _, round_ in placed_rounds(episodes)):
        raise ConfigError(
            f"baseline {rule.baseline} needs joint actions without some agents, got "
            f"{len(episodes)} episodes that have none: call collect(..., absent={absent!r})"
        )
    comparison = Comparison(
        returns_S,
        group_S,
        greedy_S,
        _averages(table.samples, state),
        actions,
        None if absent == "none" else coalitions_of(episodes, table, returns_NJ, algorithm, turns),
    )
    alone_S = segment_size(group_S, comparison.groups)[group_S] == 1
    baseline = baseline_of(rule.baseline)
    # A group of one has no standard deviation to divide by.
    stays = not baseline.siblings or (baseline.alone and rule.scale != "std")
    return comparison, (torch.zeros_like(alone_S) if stays else alone_S) | without_greedy_S


def _groups(table: Table, algorithm: Algorithm) -> Tensor:
    """Return the group number of each sample, int64 [S]. Samples of one group are compared with
    each other."""
    by_task = algorithm.group is not None and algorithm.group.group_by == "task"
    keys = [
        (s.id.episode, s.id.agent, s.turn if by_task else s.id.path, once)
        for s, once in zip(table.samples, table.once_S.tolist(), strict=True)
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return torch.tensor([numbers[key] for key in keys])


def _greedy_returns(
    episodes: Sequence[Episode], table: Table, algorithm: Algorithm, rule: GroupCredit, turns: int
) -> tuple[Tensor | None, Tensor]:
    """Return each sample's greedy return, [S], and which samples have none, [S].

    The return is 0 if the greedy path ended before the sample's turn.

    Raises: ConfigError if no episode has a greedy path.
    """
    nowhere_S = torch.zeros(len(table.samples), dtype=torch.bool)
    if rule.baseline != "greedy_path":
        return None, nowhere_S
    roots = [(episode.id, episode.greedy) for episode in episodes if episode.greedy is not None]
    if not roots:
        raise ConfigError(
            f"baseline greedy_path needs the greedy path of each task, got {len(episodes)} "
            "episodes without one: call collect(..., greedy_path=True)"
        )
    greedy = Table.of(roots, table.agents, turns)
    if not greedy.samples:
        return torch.zeros(len(table.samples), dtype=torch.float64), ~nowhere_S
    returns = greedy.of_samples(
        greedy.returns_NJ(algorithm, torch.zeros(len(greedy.samples), dtype=torch.float64))
    )
    found = {
        (sample.id.episode, sample.id.agent, sample.turn): float(value)
        for sample, value in zip(greedy.samples, returns, strict=True)
    }
    have = {sample.id.episode for sample in greedy.samples}
    values = [found.get((s.id.episode, s.id.agent, s.turn), 0.0) for s in table.samples]
    missing = [s.id.episode not in have for s in table.samples]
    return torch.tensor(values, dtype=torch.float64), torch.tensor(missing)


def _agent_turn(agent: str, turn: int) -> str:
    return f"{agent}/{turn}"


def _averages(samples: Sequence[TrainSample], state: CreditState) -> Tensor:
    """Return the decayed mean return of earlier steps for each sample's agent and turn, [S]; 0 at
    the first step."""
    means = [
        total / count if count else 0.0
        for total, count in (
            state.averages.get(_agent_turn(s.id.agent, s.turn), (0.0, 0.0)) for s in samples
        )
    ]
    return torch.tensor(means, dtype=torch.float64)


def _averages_after(
    samples: Sequence[TrainSample], returns_S: Tensor, state: CreditState, algorithm: Algorithm
) -> Mapping[str, tuple[float, float]]:
    if algorithm.group is None or algorithm.group.baseline != "moving_average":
        return state.averages
    seen: dict[str, list[float]] = {}
    for sample, value in zip(samples, returns_S, strict=True):
        seen.setdefault(_agent_turn(sample.id.agent, sample.turn), []).append(float(value))
    averages = dict(state.averages)
    for agent_turn, values in seen.items():
        total, count = averages.get(agent_turn, (0.0, 0.0))
        kept = algorithm.group.average_decay
        averages[agent_turn] = (kept * total + sum(values) / len(values), kept * count + 1.0)
    return averages


def _train_samples(
    table: Table,
    advantages: Sequence[float | tuple[float, ...]],
    left_out_S: Tensor,
    scores: Scores,
    algorithm: Algorithm,
    team: Team,
    ratios: Ratios | None = None,
) -> list[TrainSample]:
    """Return the samples to train on.

    Samples of frozen policies, of partners behind an API and of turns with weight 0 are not trained
    on, nor are samples that were left out.
    """
    return [
        replace(
            sample,
            advantage=advantage,
            share=sample.share
            * algorithm.turn_weight(sample.turn)
            * (algorithm.stopped_weight if stopped else 1.0),
            reference_logprobs=_reference_of(sample.id, scores),
            present_logprobs=scores.present[sample.id] if ratios is not None else None,
            prefix_weights=prefix_weights(sample, scores.present[sample.id], above)
            if ratios is not None
            else None,
        )
        for sample, advantage, left_out, stopped, above in zip(
            table.samples,
            advantages,
            left_out_S.tolist(),
            table.stopped_S.tolist(),
            [1.0] * len(table.samples) if ratios is None else ratios.above_S.tolist(),
            strict=True,
        )
        if not left_out
        and sample.completion.tokens is not None
        and sample.policy not in team.frozen
        and algorithm.turn_weight(sample.turn) > 0.0
    ]


def _reference_of(id: SampleId, scores: Scores) -> tuple[float, ...] | None:
    return scores.reference[id] if id in scores.reference else None


def _extra_metrics(
    samples: Sequence[TrainSample],
    scores: Scores,
    algorithm: Algorithm,
    state: CreditState,
    team: Team,
) -> dict[str, float]:
    """Return more metrics: the KL coefficients of this step if they adapt, and the share of critic
    inputs that were truncated."""
    found: dict[str, float] = {}
    if algorithm.kl is not None and algorithm.kl.target is not None:
        policies = sorted({sample.policy for sample in samples} - team.frozen)
        found |= {
            f"credit/kl_coefficient/{policy}": coefficient_of(policy, algorithm, state)
            for policy in policies
        }
    if scores.values:
        found["credit/truncated_critic_inputs"] = sum(
            said.cut > 0 for said in scores.values.values()
        ) / len(scores.values)
    return found


def _metrics_of_ratios(ratios: Ratios | None) -> dict[str, float]:
    if ratios is None:
        return {}
    return {
        "credit/importance_weight": float(ratios.weight_S.mean()),
        "credit/importance_clipped": ratios.clipped,
    }


def _metrics(
    result: critics.AdvantageResult, group_S: Tensor, left_out_S: Tensor, kept_S: Tensor
) -> dict[str, float]:
    returns_S, left_out_S = result.returns_S[kept_S], left_out_S[kept_S]
    group_S = torch.unique(group_S[kept_S], return_inverse=True)[1]
    groups = int(group_S.max()) + 1
    means_S = segment_mean(returns_S, group_S, groups)[group_S]
    spreads = segment_mean((returns_S - means_S) ** 2, group_S, groups).sqrt()
    sizes = [
        abs(value)
        for one, kept in zip(result.advantages, kept_S.tolist(), strict=True)
        if kept
        for value in (one if isinstance(one, tuple) else (one,))
    ]
    return {
        "credit/samples": float(len(returns_S)),
        "credit/left_out": float(left_out_S.sum()),
        "credit/return": float(returns_S.mean()),
        "credit/return_std": float(spreads.mean()),
        "credit/frac_return_zero_std": float((spreads < 1e-6).double().mean()),
        "credit/advantage_abs": sum(sizes) / len(sizes),
        **critics.explained_variance(result.values),
    }


# ----------------------------------------------------------------- KL divergence from the reference


LARGEST_ERROR = 0.2
"""The relative error KL/target − 1 is clipped to ± this value."""


def _refuse_missing_reference(samples: Sequence[TrainSample], scores: Scores, team: Team) -> None:
    for sample in samples:
        learns = sample.completion.tokens is not None and sample.policy not in team.frozen
        if learns and sample.id not in scores.reference:
            raise ConfigError(
                "the algorithm needs reference log-probabilities, but the scores have none of "
                f"{sample.id.agent} in episode {sample.id.episode}: pass what score(scorer, "
                "episodes, algorithm, team) returns for the same episodes, algorithm and team"
            )


def divergences(
    samples: Sequence[TrainSample], algorithm: Algorithm, scores: Scores, team: Team
) -> list[tuple[float, ...] | None]:
    """Return k1 = log π − log π_ref in nats for every token of each completion.

    π is the policy that learns if the scores have its log-probabilities, else the one that sampled.

    An entry is None if the policy is not trained, or if the algorithm needs no reference.
    """
    if not algorithm.needs_reference:
        return [None] * len(samples)
    return [
        tuple(
            a - b
            for a, b in zip(
                scores.present.get(sample.id, sample.completion.logprobs),
                scores.reference[sample.id],
                strict=True,
            )
        )
        if sample.completion.logprobs is not None and sample.policy not in team.frozen
        else None
        for sample in samples
    ]


def coefficients(
    samples: Sequence[TrainSample], algorithm: Algorithm, state: CreditState
) -> Tensor:
    """Return the KL coefficient of each sample's policy in this step, [S]."""
    return torch.tensor(
        [coefficient_of(sample.policy, algorithm, state) for sample in samples],
        dtype=torch.float64,
    )


def coefficient_of(policy: str, algorithm: Algorithm, state: CreditState) -> float:
    """Return the adapted coefficient of `policy` if there is one, else the algorithm's coefficient;
    0 without a KL penalty."""
    if policy in state.kl_coefficients:
        return state.kl_coefficients[policy]
    return 0.0 if algorithm.kl is None else algorithm.kl.coefficient


def adapted(
    samples: Sequence[TrainSample],
    k1: list[tuple[float, ...] | None],
    algorithm: Algorithm,
    state: CreditState,
) -> Mapping[str, float]:
    """Return the coefficients of the next step: β·(1 + clip(KL/target − 1, ±0.2)·n/horizon) for n
    completions of a policy.

    n/horizon is at most 1.

    Source: Ziegler et al. 2019, arXiv 1909.08593, section 2.2.
    """
    kl = algorithm.kl
    if kl is None or kl.target is None:
        return state.kl_coefficients
    seen: dict[str, list[float]] = {}
    for sample, tokens in zip(samples, k1, strict=True):
        if tokens is not None:
            seen.setdefault(sample.policy, []).append(sum(tokens))
    found = dict(state.kl_coefficients)
    for policy, sums in seen.items():
        error = sum(sums) / len(sums) / kl.target - 1.0
        held = max(-LARGEST_ERROR, min(LARGEST_ERROR, error))
        grown = 1.0 + held * min(1.0, len(sums) / kl.horizon)
        found[policy] = coefficient_of(policy, algorithm, state) * grown
    return found
