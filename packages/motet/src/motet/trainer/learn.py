"""The optimizer steps of one training step: on samples with advantages, or on pairs."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TypeAlias, TypeVar

from torch import Tensor

from motet.batch import (
    Batch,
    BatchMetrics,
    Learner,
    Mean,
    Objective,
    ValueBatch,
    ValueObjective,
    merge,
    minibatches,
    pack,
    pack_values,
    policy_objective,
    value_objective,
)
from motet.core import CreditState, SampleId, TrainSample, ValueSample
from motet.core.seeding import derive
from motet.credit.preferences import PreferencePairs, preference_advantages, preference_loss
from motet.settings import Algorithm, OwnLoss
from motet.trainer.alarms import refuse_mismatch
from motet.trainer.components import TrainComponents
from motet.trainer.present import present_logp, side_by_side
from motet.trainer.timing import Stopwatch

T = TypeVar("T")
_Work: TypeAlias = tuple[Learner, Callable[[Learner], Awaitable[BatchMetrics]]]


async def learn_samples(
    components: TrainComponents,
    samples: Sequence[TrainSample],
    values: Sequence[ValueSample],
    state: CreditState,
    number: int,
    clock: Stopwatch,
) -> dict[str, float]:
    """All optimizer steps on the samples of one step. Returns metrics: overall, and per policy."""
    algorithm, learners = _algorithm(components, number), components.models.learners
    objective = policy_objective(algorithm, state.kl_coefficients, components.train.max_lag)
    value_loss = value_objective(algorithm, components.value_coefficient)
    seen: dict[str, list[BatchMetrics]] = {}
    valued: dict[str, list[BatchMetrics]] = {}
    stepped: dict[str, float] = {}
    arrived: set[str] = set()
    count, seed = algorithm.minibatches, components.seed
    parts = minibatches(samples, algorithm.epochs, count, derive(seed, number, "learn"))
    value_parts = minibatches(
        values, components.critic_epochs, count, derive(seed, number, "values")
    )
    skips = components.train.skip_zero_advantage and gradient_is_advantage(algorithm)
    skipped_parts: list[float] = []
    for part, value_part in zip_longest(parts, value_parts, fillvalue=()):
        skipped = without_gradient(part) if skips else frozenset()
        if part:
            skipped_parts.append(len(skipped) / len(part))
        batches = pack(
            [sample for sample in part if sample.policy not in arrived],
            components.train.token_budget,
            algorithm.reduce,
            components.longest,
            scale=len(samples) / len(part) if part else 1.0,
            skipped=skipped,
        )
        value_batches = pack_values(value_part, components.train.token_budget)
        clock.lap("pack")
        work = [_policy_batch(learners, batch, objective) for batch in batches]
        work += [_value_batch(learners, batch, value_loss) for batch in value_batches]
        found = await side_by_side(work, None if stepped else components.stop.check)
        updated = components.team.policies if components.lag(number) else seen
        now = _by_policy(components, batches, found[: len(batches)], updated)
        for value_batch, value_metrics in zip(value_batches, found[len(batches) :], strict=True):
            valued.setdefault(value_batch.critic, []).append(value_metrics)
        for name, figures in now.items():
            seen.setdefault(name, []).extend(figures)
        if algorithm.stop_at_kl is not None:
            arrived |= {
                name
                for name, figures in now.items()
                if merge(figures)["approx_kl"].value > algorithm.stop_at_kl
            }
        due = [name for name in now if name not in arrived]
        stepped |= await _step(
            learners, [*due, *dict.fromkeys(sample.critic for sample in value_part)]
        )
        clock.lap("learn")
    stepped |= _entropy_metric(algorithm)
    if skips and skipped_parts:
        stepped["learn/skipped"] = sum(skipped_parts) / len(skipped_parts)
    return {**_means(seen), **_means_of_each(valued), **stepped}


_READ = 8
"""Samples of each policy that are read although their gradient is 0: metrics need some, and so does
the check that sampling and training agree. A policy also needs one for its optimizer step, which
moves on with the gradients of earlier steps."""


def gradient_is_advantage(algorithm: Algorithm) -> bool:
    """Whether the gradient of a completion is 0 if its advantage is 0.

    A KL term or an entropy bonus has a gradient of its own, your own loss may have one, and the
    divergence of `stop_at_kl` is measured on all completions.
    """
    return (
        algorithm.kl_in_loss is None
        and algorithm.entropy_coefficient == 0.0
        and algorithm.stop_at_kl is None
        and not isinstance(algorithm.loss, OwnLoss)
    )


def without_gradient(samples: Sequence[TrainSample]) -> frozenset[SampleId]:
    """Return the samples of advantage 0 that need not be read; not all, if few others are left."""
    skipped: set[SampleId] = set()
    for policy in dict.fromkeys(sample.policy for sample in samples):
        own = [sample for sample in samples if sample.policy == policy]
        zero = [sample.id for sample in own if not _any(sample.advantage)]
        read = max(0, _READ - (len(own) - len(zero)))
        skipped |= set(zero) - {zero[k * len(zero) // read] for k in range(min(read, len(zero)))}
    return frozenset(skipped)


def _any(advantage: float | tuple[float, ...]) -> bool:
    return any(advantage) if isinstance(advantage, tuple) else advantage != 0.0


async def learn_pairs(
    components: TrainComponents,
    samples: Sequence[TrainSample],
    preferences: PreferencePairs,
    number: int,
    clock: Stopwatch,
) -> dict[str, float]:
    """All optimizer steps on the pairs of one step. Returns metrics: overall, and per policy.

    Before every update but the first, the log-probabilities of its completions are computed anew,
    because the loss of one agent contains those of the others. Those of completions of earlier
    steps are computed before the first update too.
    """
    algorithm, learners = _algorithm(components, number), components.models.learners
    rule = algorithm.pairs
    assert rule is not None
    beta, objective = rule.beta, policy_objective(algorithm)
    mean = algorithm.reduce == "sequence_mean"
    parts = algorithm.minibatches
    if rule.batch_size is not None:
        parts = -(-len(preferences.pairs) // rule.batch_size)
    seed = derive(components.seed, number, "learn")
    metrics: dict[str, list[BatchMetrics]] = {}
    compared: list[BatchMetrics] = []
    stepped: dict[str, float] = {}
    for part in minibatches(preferences.pairs, algorithm.epochs, parts, seed):
        inside = {id for pair in part for id in pair.completions}
        own = [sample for sample in samples if sample.id in inside]

        def packed(rows: Sequence[TrainSample], pairs: int = len(part)) -> list[Batch]:
            scale = len(preferences.pairs) / pairs
            budget = components.train.token_budget
            return pack(rows, budget, algorithm.reduce, components.longest, scale=scale)

        moved = bool(stepped or preferences.stale or components.lag(number))
        logp = await present_logp(learners, packed(own), mean) if moved else {}
        margin_Q = preferences.margins(part, logp)
        advantages = preference_advantages(part, margin_Q, beta)
        batches = packed([replace(one, advantage=advantages[one.id]) for one in own])
        clock.lap("pack")
        updated = [batch.policy for batch in batches] if moved else []
        work = [_policy_batch(learners, batch, objective) for batch in batches]
        found = await side_by_side(work, None if stepped else components.stop.check)
        now = _by_policy(components, batches, found, updated)
        for name, figures in now.items():
            metrics.setdefault(name, []).extend(figures)
        compared.append(_compared(margin_Q, beta))
        stepped |= await _step(learners, list(now))
        clock.lap("learn")
    pairs = {f"learn/{key}": mean.value for key, mean in merge(compared).items()}
    return {**_means(metrics), **pairs, **stepped, **_entropy_metric(algorithm)}


def _algorithm(components: TrainComponents, number: int) -> Algorithm:
    """Return the algorithm with the entropy bonus of step `number`."""
    entropy = components.algorithm.entropy_at(number, components.steps)
    return components.algorithm.model_copy(update={"entropy_coefficient": entropy})


def _entropy_metric(algorithm: Algorithm) -> dict[str, float]:
    if algorithm.entropy_final is None:
        return {}
    return {"learn/entropy_coefficient": algorithm.entropy_coefficient}


def _by_policy(
    components: TrainComponents,
    batches: Sequence[Batch],
    found: Sequence[BatchMetrics],
    updated: Collection[str],
) -> dict[str, list[BatchMetrics]]:
    """Return the metrics of each policy, of the metrics that its batches gave.

    The weights of a policy that is not `updated` since it sampled are still those that sampled, so
    its log-probabilities are compared with those of sampling. Those of the others differ on
    purpose.

    Raises: MotetError if they disagree.
    """
    metrics: dict[str, list[BatchMetrics]] = {}
    for batch, figures in zip(batches, found, strict=True):
        measured = dict(figures)
        if batch.policy in updated:
            del measured["sampling_logp_difference"], measured["sampling_kl"]
        metrics.setdefault(batch.policy, []).append(measured)
    for name, each in metrics.items():
        if name not in updated:
            own = [batch for batch in batches if batch.policy == name]
            learner = components.models.learners[name]
            refuse_mismatch(own, each, components.alarms.max_mismatch, learner)
    return metrics


def _policy_batch(learners: Mapping[str, Learner], batch: Batch, objective: Objective) -> _Work:
    async def accumulate(learner: Learner) -> BatchMetrics:
        return await learner.accumulate(batch, objective)

    return learners[batch.policy], accumulate


def _value_batch(
    learners: Mapping[str, Learner], batch: ValueBatch, objective: ValueObjective
) -> _Work:
    async def accumulate(learner: Learner) -> BatchMetrics:
        return await learner.accumulate_values(batch, objective)

    return learners[batch.critic], accumulate


def _compared(margin_Q: Tensor, beta: float) -> BatchMetrics:
    measured = {
        "preference_loss": preference_loss(margin_Q, beta),
        "preference_margin": beta * margin_Q,
        "preference_accuracy": (margin_Q > 0).double(),
    }
    count = len(margin_Q)
    return {name: Mean(float(values.sum()), count) for name, values in measured.items()}


def _means(metrics: Mapping[str, Sequence[BatchMetrics]]) -> dict[str, float]:
    """Return the mean of each metric over all policies, and for each policy."""
    overall = merge(found for each in metrics.values() for found in each)
    return {
        **{f"learn/{key}": mean.value for key, mean in overall.items()},
        **_means_of_each(metrics),
    }


def _means_of_each(metrics: Mapping[str, Sequence[BatchMetrics]]) -> dict[str, float]:
    return {
        f"learn/{key}/{name}": mean.value
        for name, found in metrics.items()
        for key, mean in merge(found).items()
    }


async def _step(learners: Mapping[str, Learner], names: Sequence[str]) -> dict[str, float]:
    """One optimizer step of each of `names`.

    Every learner is called, also without names: it then drops its accumulated gradients.
    """

    async def step(learner: Learner) -> Mapping[str, Mapping[str, float]]:
        return await learner.step([name for name in names if learners[name] is learner])

    work = [(learner, step) for learner in dict.fromkeys(learners.values())]
    return {
        f"learn/{key}/{name}": value
        for stepped in await side_by_side(work)
        for name, said in stepped.items()
        for key, value in said.items()
    }
