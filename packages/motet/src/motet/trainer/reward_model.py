"""The reward model of a run: a critic that learns from pairs of joint actions (MARLHF).

    at the first step of an iteration:  the team plays, pairs are made, the model is trained on them
    at every step:                      its scores replace the rewards that credit reads

The episodes that were played, and so all metrics of play, keep the environment's rewards.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import correlation

import torch

from motet.batch import BatchMetrics, merge, minibatches, pack_value_pairs, pair_objective
from motet.core import (
    Episode,
    Outcome,
    Prompt,
    Round,
    SampleId,
    ValueEstimate,
    ValueId,
    ValueRequest,
    ValueSample,
)
from motet.core.seeding import derive
from motet.credit.preferences import pairs_of, replayed
from motet.credit.table import Table
from motet.credit.views import joint_action
from motet.rollout.collect import collect, task_order
from motet.settings import RewardModel
from motet.trainer.components import REWARD_MODEL, TrainComponents
from motet.trainer.timing import Stopwatch


@dataclass(frozen=True)
class Fitted:
    """The training of the reward model before a step. Empty if it was not trained."""

    episodes: Sequence[Episode] = ()
    """The episodes that were played for its pairs."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


NOT_FITTED = Fitted()


def first_steps(settings: RewardModel, steps: int) -> list[int]:
    """Return the first step of every iteration, as many as there are iterations.

    Blocks have steps / iterations steps, rounded up; the last may be shorter. Where that leaves no
    step for the last ones (6 blocks of 2 in 8 steps), the blocks are as equal as they can be.
    """
    wanted = settings.iterations
    firsts = list(range(1, steps + 1, -(-steps // wanted)))
    if len(firsts) < wanted:
        firsts = [1 - (-number * steps // wanted) for number in range(wanted)]
    return firsts


async def play_for_pairs(components: TrainComponents, number: int) -> list[Episode]:
    """Play the tasks whose joint actions are compared before step `number`."""
    settings, tasks = components.reward_model, components.tasks["train"]
    assert settings is not None
    task_at = task_order(len(tasks), derive(components.seed, "pairs", number))
    count = min(settings.tasks or len(tasks), len(tasks))
    return await components.stop.unless_wished(
        collect(
            components.environment,
            [tasks[task_at(place)] for place in range(count)],
            components.models.sampler,
            components.team_for(settings),
            components.plan.model_copy(update={"samples": (settings.samples,)}),
            run_seed=components.seed,
            tag=f"pairs-{number:06d}",
        )
    )


async def fit(
    components: TrainComponents,
    history: Sequence[Sequence[Episode]],
    number: int,
) -> Fitted:
    """Train the reward model from its initial weights.

    It stays as it is if there are no pairs: no two joint actions of a Round had different rewards.

    Args:
        history: the episodes of all iterations so far, oldest first. The last are those that were
            played before step `number`.

    Raises: TrainingDiverged; Interrupted.
    """
    settings, learner = components.reward_model, components.models.learners[REWARD_MODEL]
    assert settings is not None
    clock, seed = Stopwatch(), derive(components.seed, number, "reward model")
    pairs = replayed(
        [_pairs_of_texts(components, episodes) for episodes in history], settings.replay, seed
    )
    if not pairs:
        return Fitted(history[-1], {"fit/pairs": 0.0})
    components.models.restart(REWARD_MODEL)
    texts = dict.fromkeys(text for pair in pairs for text in pair)
    read = dict(zip(texts, await _estimates(components, list(texts)), strict=True))
    samples = [(_sample(read[chosen]), _sample(read[rejected])) for chosen, rejected in pairs]
    parts = -(-len(samples) // settings.batch_size)
    measured: list[BatchMetrics] = []
    for place, part in enumerate(minibatches(samples, settings.epochs, parts, seed)):
        components.stop.check()
        if place % parts == 0:
            measured = []  # of the last pass
        for batch in pack_value_pairs(part, components.train.token_budget):
            measured.append(await learner.accumulate_values(batch, pair_objective))
        await learner.step([REWARD_MODEL])
    clock.lap("fit")
    means = {f"fit/{name}": mean.value for name, mean in merge(measured).items()}
    return Fitted(history[-1], {"fit/pairs": float(len(pairs)), **means}, clock.seconds)


async def judged(
    components: TrainComponents, episodes: Sequence[Episode]
) -> tuple[list[Episode], dict[str, float]]:
    """Return the episodes with the scores of the reward model as rewards, and metrics.

    All agents get the same reward, and no bonus.
    """
    rounds = [
        round_
        for episode in episodes
        for round_ in (episode.root, episode.greedy)
        if round_ is not None
    ]
    valid = [(round_, one) for round_ in rounds for one in round_.outcomes if one.fault is None]
    texts = [joint_action(round_, outcome.picks) for round_, outcome in valid]
    read = await _estimates(components, texts)
    scores = [one.values[0] for one in read]
    if not scores:
        return list(episodes), {}
    paid = [sum(one.rewards.values()) / len(one.rewards) for _, one in valid]
    measured = {
        "score/reward": sum(scores) / len(scores),
        "score/truncated": sum(one.cut > 0 for one in read) / len(read),
    }
    if len(set(scores)) > 1 and len(set(paid)) > 1:
        measured["score/reward_correlation"] = correlation(scores, paid)

    left = iter(scores)
    return [
        replace(
            one,
            root=_rewarded(one.root, left, components.team.agents),
            greedy=_rewarded(one.greedy, left, components.team.agents),
        )
        for one in episodes
    ], measured


def _rewarded(round_: Round | None, scores: Iterator[float], agents: Iterable[str]) -> Round | None:
    """Return the Round with the next scores as rewards of its valid joint actions."""
    if round_ is None:
        return None

    def of(outcome: Outcome) -> Outcome:
        if outcome.fault is not None:
            return outcome
        return outcome.rewarded(dict.fromkeys(agents, next(scores)))

    return replace(round_, outcomes=tuple(map(of, round_.outcomes)))


def _pairs_of_texts(
    components: TrainComponents, episodes: Sequence[Episode]
) -> list[tuple[Prompt, Prompt]]:
    """Return the (chosen, rejected) texts of all pairs, by the environment's reward."""
    settings = components.reward_model
    assert settings is not None
    roots = {episode.id: episode.root for episode in episodes if episode.root is not None}
    table = Table.of(list(roots.items()), list(components.team.agents), 1)
    if not table.samples:
        return []
    nothing_S = torch.zeros(len(table.samples), dtype=torch.float64)
    returns_NJ = table.returns_NJ(components.algorithm, nothing_S)

    def text(side: Sequence[SampleId]) -> Prompt:
        return joint_action(roots[side[0].episode], {id.agent: id.index for id in side})

    pairs = pairs_of(table, returns_NJ.mean(0), settings)
    return [(text(pair.chosen), text(pair.rejected)) for pair in pairs]


async def _estimates(components: TrainComponents, texts: Sequence[Prompt]) -> list[ValueEstimate]:
    requests = [ValueRequest(REWARD_MODEL, text) for text in texts]
    return await components.stop.unless_wished(components.models.scorer.values(requests))


def _sample(read: ValueEstimate) -> ValueSample:
    """Return a text as an input of the reward model, whose value is read at its end."""
    return ValueSample(
        id=ValueId("", (), None),
        critic=REWARD_MODEL,
        policy_turns=(),
        turn=0,
        tokens=read.tokens,
        positions=read.positions,
        target=(0.0,),
        old_value=(0.0,),
        share=1.0,
    )
