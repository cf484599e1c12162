"""From the episodes of a step to their credit: score, then assign.

With `algorithm.credit.replay`, pairs of earlier steps are learned from again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from motet.batch import weighs_completions
from motet.core import CreditState, Episode, SampleId, Scores
from motet.core.seeding import derive
from motet.credit.assign import Credit, assign_credit
from motet.credit.preferences import PreferencePairs, replayed, weights_of
from motet.trainer.components import TrainComponents
from motet.trainer.present import influences, learned_from, present_logprobs
from motet.trainer.reward_model import judged
from motet.trainer.score import completions_of, score
from motet.trainer.timing import Stopwatch

Earlier: TypeAlias = Callable[[str, int], Sequence[Episode]]
"""Gives the recorded episodes of a kind ("train", "pairs") and an earlier step."""


@dataclass(frozen=True)
class ScoredEpisodes:
    """The episodes of a step with all that credit reads. With a reward model, its scores are their
    rewards."""

    episodes: Sequence[Episode]
    scores: Scores
    judgement: Mapping[str, float]
    """Metrics of the reward model."""


async def scored(
    components: TrainComponents, episodes: Sequence[Episode], clock: Stopwatch
) -> ScoredEpisodes:
    """Score the completions of a step."""
    algorithm, team = components.algorithm, components.team
    judgement: dict[str, float] = {}
    comparator = components.comparator_for(algorithm.pairs)
    if comparator is not None:
        episodes = await comparator.as_own(components, episodes)
    if components.reward_model is not None:
        episodes, judgement = await judged(components, episodes)
    scores = await components.stop.unless_wished(
        score(components.models.scorer, episodes, algorithm, team)
    )
    if weighs_completions(algorithm, components.train.max_lag):
        own = learned_from(components, episodes)
        scores = replace(scores, present=await present_logprobs(components, own))
    if algorithm.group is not None and algorithm.group.influence > 0.0:
        measured = await influences(components, episodes, scores.present)
        scores = replace(scores, influence=measured)
    clock.lap("score")
    return ScoredEpisodes(episodes, scores, judgement)


def credit_of(components: TrainComponents, found: ScoredEpisodes, state: CreditState) -> Credit:
    """Assign credit to the completions of a step."""
    credit = assign_credit(
        found.episodes,
        found.scores,
        components.algorithm,
        state,
        components.team,
        components.turns,
        components.credit,
    )
    return replace(credit, metrics={**found.judgement, **credit.metrics})


def credit_beside(
    components: TrainComponents,
    found: ScoredEpisodes,
    state: CreditState,
    present: Mapping[SampleId, tuple[float, ...]],
) -> Credit:
    """Assign credit again, weighted by how probable the joint actions have become.

    `present`: the log-probabilities (nats) of the completions of policies that have moved since the
    step was scored.
    """
    recorded = {
        id: found.scores.present.get(id, completion.logprobs or ())
        for id, _, completion in completions_of(found.episodes)
        if completion.tokens
    }
    algorithm = components.algorithm.model_copy(update={"importance_ratio": "joint"})
    return assign_credit(
        found.episodes,
        replace(found.scores, present={**recorded, **present}),
        algorithm,
        state,
        components.team,
        components.turns,
        components.credit,
    )


async def with_earlier_pairs(
    components: TrainComponents, credit: Credit, number: int, earlier: Earlier
) -> Credit:
    """Return the credit of step `number` with pairs drawn from this and earlier steps.

    The pairs of an earlier step are made again from its recorded episodes. The state and the
    metrics are those of `credit`.
    """
    rule = components.algorithm.pairs
    assert rule is not None
    assert credit.preferences is not None
    weights = weights_of(number, rule.replay)
    history = [
        credit_of(
            components,
            await scored(components, earlier("train", step), Stopwatch()),
            CreditState(),
        )
        if weight > 0.0
        else Credit([], credit.state)
        for step, weight in enumerate(weights[:-1], start=1)
    ]
    history.append(credit)
    known = [one.preferences or PreferencePairs() for one in history]
    pairs = tuple(
        replayed(
            [one.pairs for one in known],
            rule.replay,
            derive(components.seed, number, "replayed pairs"),
        )
    )
    used = {id for pair in pairs for id in pair.completions}
    preferences = PreferencePairs(
        pairs,
        {id: logp for one in known for id, logp in one.sampled_logp.items() if id in used},
        {id: logp for one in known for id, logp in one.reference_logp.items() if id in used},
        stale=frozenset(used - credit.preferences.sampled_logp.keys()),
    )
    samples = [
        replace(sample, share=1.0 / len(pairs))
        for one in history
        for sample in one.samples
        if sample.id in used
    ]
    stale = sum(not preferences.stale.isdisjoint(pair.completions) for pair in pairs)
    metrics = {**credit.metrics, "credit/replayed_pairs": float(stale)}
    return replace(credit, samples=samples, metrics=metrics, preferences=preferences)
