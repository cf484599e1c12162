"""A bound on how far one training step moves the team, measured on the step's own completions.

The length of an Adam step hardly depends on how much evidence the gradient has. One step may move
all probability to another token, which is harmless for one policy and not for a team: each policy
is a part of the others' environment. So the distance is measured, and a step that goes too far is
scaled back along its line:

    θ_old ── keep ── optimizer steps ──> θ_new          KL(old || new) > bound?
    θ = θ_old + f (θ_new − θ_old)                       f = √(bound / KL), measured again

For a small step, KL is quadratic in its length (Schulman et al. 2015, arXiv 1502.05477, appendix
C), so one try is usually enough. Agents act independently given what they see, so the divergence of
a joint action is the sum of those of its agents: the bound is for the sum.

In bfloat16 the same weights give other log-probabilities as soon as anything is rounded otherwise:
by ±.06 nats per token in a model of 135 million weights, so that the completions of two agents with
140 tokens each seem to be .5 nats away from themselves. This is taken off the distance. How much it
is, is measured for nothing: by how much the first reading of the step's completions differs from
what was recorded when they were sampled. Where nothing comparable was recorded, a distance that
does not fall when the step is shortened is taken for rounding.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from motet.batch import Batch, Learner, pack
from motet.core import SampleId, TrainSample
from motet.trainer.components import TrainComponents
from motet.trainer.present import present_rows, side_by_side

T = TypeVar("T")
FIRST, MOST = 16, 64
"""The distance is measured on at most `FIRST` completions of each agent and turn, and on at most
`MOST` if it may be too far, which the first say by their mean and its error."""
EACH = 4
"""Completions of a prompt: reading a long prompt once more costs more than its short answers."""
SURE = 2.0
"""So many standard errors below the bound, a first distance is not measured on more."""
TRIES = 6
"""After so many tries that are all too far, the step is undone."""
MOST_NOISE = 0.01
"""More nats per token than this are never taken for rounding."""
_SHORTEST, _LONGEST = 0.1, 0.9
"""Each try shortens the step by a factor between these."""


@dataclass(frozen=True)
class Probe:
    """Completions of a step, and the log-probabilities (nats) of their tokens before it."""

    first: Sequence[Batch]
    before: Mapping[SampleId, Sequence[float]]
    places: Mapping[SampleId, tuple[int, str, str]]
    """Completion -> its turn, agent and policy."""
    others: Sequence[TrainSample] = ()
    recorded: bool = False
    """Whether `before` was recorded by the sampler."""


async def begin(
    components: TrainComponents,
    samples: Sequence[TrainSample],
    number: int,
) -> Probe:
    """Choose the completions on which step `number` is measured, and keep the present weights."""
    recorded = _sampled_by_learner(components) and not components.lag(number)
    first, others = chosen(samples, MOST if recorded else FIRST)
    learners = components.models.learners
    batches = _packed(components, first)
    before: dict[SampleId, Sequence[float]] = {
        one.id: one.completion.logprobs or () for one in (*first, *others)
    }
    if not recorded:
        present = await present_rows(learners, batches)
        before = {one.id: present[one.id][: len(one.completion.tokens or ())] for one in first}
    places = {one.id: (one.turn, one.id.agent, one.policy) for one in (*first, *others)}
    await _keep(learners, {one.policy for one in samples})
    return Probe(batches, before, places, others, recorded)


async def hold(
    components: TrainComponents, probe: Probe, bound: float, learned: Mapping[str, float]
) -> dict[str, float]:
    """Scale the optimizer steps since `begin` back if they moved the team further than `bound`.

    Returns metrics: the divergence of each policy and of the team (nats), and what is left of the
    step's length.

    Args:
        learned: the metrics of these optimizer steps.
    """
    learners, names = components.models.learners, {policy for _, _, policy in probe.places.values()}
    noise = noise_of(names, learned) if probe.recorded else {}
    left, tries = 1.0, 0
    batches = probe.first
    measured = await present_rows(learners, batches)
    found = distance(probe, measured, noise)
    if probe.others and not found.team + SURE * found.error <= bound:
        others = _packed(components, probe.others)
        batches = [*batches, *others]
        found = distance(probe, {**measured, **await present_rows(learners, others)}, noise)
    asked = {"learn/step_kl_asked": max(0.0, found.team)} if math.isfinite(found.team) else {}
    while not found.team <= bound and tries < TRIES:
        tries += 1
        if not math.isfinite(found.team):
            tries = TRIES
        factor = max(_SHORTEST, min(_LONGEST, 0.95 * math.sqrt(bound / found.team)))
        left *= factor
        await _scale(learners, names, factor if tries < TRIES else 0.0)
        before, present = found.team, await present_rows(learners, batches)
        found = distance(probe, present, noise)
        if not (probe.recorded or noise) and found.team > before * (1.0 + factor**2) / 2.0:
            noise = noise_in(probe, present)
            found = distance(probe, present, noise)
    if tries == TRIES:
        left = 0.0
    await _keep(learners, ())
    return {
        "learn/step_kl": max(0.0, found.team),
        **asked,
        "learn/step_scaled": left,
        **{f"learn/step_kl/{name}": max(0.0, value) for name, value in found.each.items()},
    }


@dataclass(frozen=True)
class Distance:
    """KL(old || present) in nats, from some completions."""

    each: Mapping[str, float]
    """Policy -> that of one of its completions."""
    team: float
    """The largest of all turns, of the sums over the agents that act in it. Infinite if one is no
    number."""
    error: float
    """The standard error of `team`. Infinite if an agent has one completion only."""


def noise_of(policies: Collection[str], learned: Mapping[str, float]) -> dict[str, float]:
    """Return policy -> nats per token by which reading a completion differs from sampling it."""
    found = {name: learned.get(f"learn/sampling_kl/{name}", 0.0) for name in policies}
    return {name: min(nats, MOST_NOISE) if nats >= 0.0 else 0.0 for name, nats in found.items()}


def noise_in(probe: Probe, now: Mapping[SampleId, Sequence[float]]) -> dict[str, float]:
    """Return policy -> nats per token by which `now` differs from before."""
    moved: dict[str, float] = {}
    tokens: dict[str, int] = {}
    for id, present in now.items():
        policy = probe.places[id][2]
        moved[policy] = moved.get(policy, 0.0) + _k3(present, probe.before[id])
        tokens[policy] = tokens.get(policy, 0) + min(len(present), len(probe.before[id]))
    return {name: min(nats / max(1, tokens[name]), MOST_NOISE) for name, nats in moved.items()}


def distance(
    probe: Probe,
    now: Mapping[SampleId, Sequence[float]],
    noise: Mapping[str, float] | None = None,
) -> Distance:
    """Measure how far the completions have moved; `now` are their tokens' log-probabilities.

    The divergence of a completion is estimated by the sum over its tokens of e^x - 1 - x, with x =
    log present - log old of a token that the old policy sampled (k3 of Schulman 2020): unbiased,
    never negative, and with less variance than the same of the whole completion. `noise` is taken
    off: policy -> nats per token.
    """
    policies: dict[str, list[float]] = {}
    agents: dict[int, dict[str, list[float]]] = {}
    for id, present in now.items():
        turn, agent, policy = probe.places[id]
        k3 = _k3(present, probe.before[id])
        k3 -= (noise or {}).get(policy, 0.0) * min(len(present), len(probe.before[id]))
        policies.setdefault(policy, []).append(k3)
        agents.setdefault(turn, {}).setdefault(agent, []).append(k3)
    each = {name: _mean(values) for name, values in policies.items()}
    sums = {turn: sum(map(_mean, own.values())) for turn, own in agents.items()}
    team, turn = max((math.inf if math.isnan(nats) else nats, turn) for turn, nats in sums.items())
    error = math.sqrt(sum(map(_variance_of_mean, agents[turn].values())))
    return Distance(each, team, error)


_LARGEST = 50.0
"""Nats by which a token may become more likely; more would overflow."""


def _k3(present: Sequence[float], before: Sequence[float]) -> float:
    tokens = zip(present, before, strict=False)  # padding may follow either
    moved = (min(new - old, _LARGEST) for new, old in tokens)
    return math.fsum(math.expm1(x) - x for x in moved)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance_of_mean(values: Sequence[float]) -> float:
    if len(values) < 2:
        return math.inf
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def chosen(
    samples: Sequence[TrainSample], most: int
) -> tuple[list[TrainSample], list[TrainSample]]:
    """Choose at most `most` samples of each agent and turn: up to `EACH` of a prompt, of prompts at
    equal distances in the order of play. Return `FIRST` of them, spread likewise, and the
    others."""
    groups: dict[tuple[int, str], dict[tuple[int, ...], list[TrainSample]]] = {}
    for sample in samples:
        group = groups.setdefault((sample.turn, sample.id.agent), {})
        group.setdefault(sample.prompt_tokens, []).append(sample)
    probed = [_spread_over_prompts(list(group.values()), most) for group in groups.values()]
    first = {one.id: one for group in probed for one in _spread(group, FIRST)}
    return list(first.values()), [one for group in probed for one in group if one.id not in first]


def _spread_over_prompts(prompts: Sequence[Sequence[TrainSample]], most: int) -> list[TrainSample]:
    if sum(map(len, prompts)) <= most:
        return [one for own in prompts for one in own]
    each = max(min(EACH, max(map(len, prompts))), -(-most // len(prompts)))
    taken = [one for own in _spread(prompts, -(-most // each)) for one in _spread(own, each)]
    return _spread(taken, most)


def _spread(group: Sequence[T], most: int) -> list[T]:
    count = min(most, len(group))
    return [group[k * len(group) // count] for k in range(count)]


def _packed(components: TrainComponents, samples: Sequence[TrainSample]) -> list[Batch]:
    budget, reduce = components.train.token_budget, components.algorithm.reduce
    return pack(samples, budget, reduce, components.longest)


def _sampled_by_learner(components: TrainComponents) -> bool:
    """Whether the recorded log-probabilities are those of the whole distribution of the learner.

    Pairs may hold completions of earlier steps, which older weights sampled.
    """
    return (
        not components.models.samples_beside
        and components.algorithm.pairs is None
        and all(
            decode.top_p == 1.0 and decode.top_k == 0 for decode in components.team.decode.values()
        )
    )


async def _keep(learners: Mapping[str, Learner], names: Collection[str]) -> None:
    async def keep(learner: Learner) -> None:
        await learner.keep([name for name in names if learners[name] is learner])

    await side_by_side([(learner, keep) for learner in dict.fromkeys(learners.values())])


async def _scale(learners: Mapping[str, Learner], names: Collection[str], factor: float) -> None:
    async def scale(learner: Learner) -> None:
        await learner.scale_back([name for name in names if learners[name] is learner], factor)

    await side_by_side([(learner, scale) for learner in dict.fromkeys(learners.values())])
