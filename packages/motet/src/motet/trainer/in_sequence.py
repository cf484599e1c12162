"""One policy after the other within a step: each learns beside the others as they have become.

If all policies learn at once, each learns from games with partners that move meanwhile. Here they
move in a random order. What is learned from a joint action is weighted by how much more probable
the policies before have made it, so the gradient of each policy is that beside its new partners:

    for each policy:   credit, weighted by the product of π_now / π_then of the policies before it
                       -> its optimizer steps -> its share of the bound on a step
                       -> its completions are read again

Source: HAPPO (Kuba et al. 2022, arXiv 2109.11251), with the ratios of `credit.ratios`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import fsum

from motet.core import CreditState, SampleId, TrainSample, ValueSample
from motet.core.seeding import derive
from motet.credit.assign import Credit
from motet.trainer import step_bound
from motet.trainer.components import TrainComponents
from motet.trainer.credited import ScoredEpisodes, credit_beside
from motet.trainer.learn import learn_samples
from motet.trainer.present import learned_from, present_logprobs
from motet.trainer.timing import Stopwatch

_TOGETHER: Mapping[str, Callable[[Sequence[float]], float]] = {
    "learn/step_kl": fsum,
    "learn/step_kl_asked": fsum,
    "learn/step_scaled": min,
}
"""Metrics of the step that are not means over its policies."""


async def learn_in_sequence(
    components: TrainComponents,
    found: ScoredEpisodes,
    credit: Credit,
    trained: Callable[[Credit], list[TrainSample]],
    earned: Sequence[TrainSample],
    values: Sequence[ValueSample],
    state: CreditState,
    number: int,
    clock: Stopwatch,
) -> dict[str, float]:
    """All optimizer steps of step `number`. Returns metrics as `learn_samples`.

    Args:
        found, credit: the games of the step, and their credit.
        trained: chooses what is learned from.
        earned: what is imitated, too.
    """
    order = sequence({sample.policy for sample in trained(credit)}, components.seed, number)
    bound = components.train.max_step_kl
    present: dict[SampleId, tuple[float, ...]] = {}
    metrics: list[dict[str, float]] = []
    for place, policy in enumerate(order):
        if place:
            credit = credit_beside(components, found, state, present)
            clock.lap("credit")
        own = [sample for sample in trained(credit) if sample.policy == policy]
        imitated = [sample for sample in earned if sample.policy == policy]
        probe = None if bound is None else await step_bound.begin(components, own, number)
        learned = await learn_samples(
            components, [*own, *imitated], () if place else values, state, number, clock
        )
        if bound is not None and probe is not None:
            share = bound / len(order)
            learned |= await step_bound.hold(components, probe, share, learned)
        metrics.append(learned)
        if place + 1 < len(order):
            played = learned_from(components, found.episodes)
            moved = [sample for sample in played if sample.policy == policy]
            present |= await present_logprobs(components, moved)
        clock.lap("learn")
    return together(metrics)


def sequence(policies: set[str], seed: int, number: int) -> list[str]:
    """Return the policies in the random order of a step."""
    return sorted(policies, key=lambda policy: derive(seed, number, "sequence", policy))


def together(metrics: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the metrics of a step, of those of its policies: means, where nothing else is said."""
    names = dict.fromkeys(name for one in metrics for name in one)
    known = {name: [one[name] for one in metrics if name in one] for name in names}
    return {
        name: _TOGETHER[name](each) if name in _TOGETHER else fsum(each) / len(each)
        for name, each in known.items()
    }
