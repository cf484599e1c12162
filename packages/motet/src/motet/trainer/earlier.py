"""Learn again from the pairs of earlier steps (`algorithm.preference.replay`)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from motet.core import CreditState, Episode
from motet.core.seeding import derive
from motet.credit.assign import Credit, assign_credit
from motet.credit.preferences import PreferencePairs, replayed, weights_of
from motet.trainer.comparator import as_own
from motet.trainer.components import StepConfig, TrainComponents
from motet.trainer.reward_model import judged
from motet.trainer.score import score

Earlier: TypeAlias = Callable[[str, int], Sequence[Episode]]
"""Gives the recorded episodes of a kind ("train", "pairs") and an earlier step."""


async def with_earlier_pairs(
    components: TrainComponents,
    credit: Credit,
    number: int,
    earlier: Earlier,
    step_config: StepConfig,
) -> Credit:
    """Return the credit of step `number` with pairs drawn from this and earlier steps.

    The pairs of an earlier step are made again from its recorded episodes. The state and the
    metrics are those of `credit`.
    """
    preference = components.algorithm.preference
    assert preference is not None
    assert credit.preferences is not None
    weights = weights_of(number, preference.replay)
    history = [
        await _credit_of(components, earlier("train", step), step_config)
        if weight > 0.0
        else Credit([], credit.state)
        for step, weight in enumerate(weights[:-1], start=1)
    ]
    history.append(credit)
    known = [one.preferences or PreferencePairs() for one in history]
    pairs = tuple(
        replayed(
            [one.pairs for one in known],
            preference.replay,
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
    metrics = {**credit.metrics, "credit/replayed_pairs": float(_stale(preferences))}
    return replace(credit, samples=samples, metrics=metrics, preferences=preferences)


async def _credit_of(
    components: TrainComponents, episodes: Sequence[Episode], step_config: StepConfig
) -> Credit:
    algorithm, team = components.algorithm, components.team
    episodes = await as_own(components, episodes, step_config)
    if components.reward_model is not None:
        episodes, _ = await judged(components, episodes)
    scores = await components.stop.unless_wished(
        score(components.scorer, episodes, algorithm, team)
    )
    turns = len(components.plan.samples)
    return assign_credit(episodes, scores, algorithm, CreditState(), team, turns)


def _stale(preferences: PreferencePairs) -> int:
    """Return the number of pairs of earlier steps."""
    return sum(not preferences.stale.isdisjoint(pair.completions) for pair in preferences.pairs)
