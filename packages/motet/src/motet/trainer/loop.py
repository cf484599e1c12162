"""One training step: play -> score -> credit -> pack -> learn -> publish.

Nothing here knows on which device or machine a model runs, or the name of an algorithm.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from motet.algorithms import plays_absent, plays_greedy_path
from motet.core import CreditState, Episode, Task, TrainSample
from motet.credit.assign import Credit
from motet.credit.preferences import weights_of
from motet.errors import MotetError, TrainingDiverged
from motet.models.completions import NOT_FINITE
from motet.rollout.collect import collect
from motet.rollout.summary import Summary, episode_stats, fault_share, summarise
from motet.trainer import refill, step_bound
from motet.trainer.components import TrainComponents
from motet.trainer.credited import Earlier, credit_of, scored, with_earlier_pairs
from motet.trainer.in_sequence import learn_in_sequence
from motet.trainer.learn import learn_pairs, learn_samples
from motet.trainer.reward_model import NOT_FITTED, Fitted, first_steps, fit, play_for_pairs
from motet.trainer.self_imitation import imitated
from motet.trainer.task_sampling import TaskSampler
from motet.trainer.timing import Stopwatch
from motet.trainer.weight_mean import average


@dataclass(frozen=True)
class TrainStep:
    """The result of one step."""

    number: int
    episodes: Sequence[Episode]
    summary: Summary
    metrics: Mapping[str, float]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage. `play/PART` is a part of `play`."""

    @property
    def took(self) -> float:
        """Seconds of the whole step."""
        return sum(value for stage, value in self.seconds.items() if "/" not in stage)


@dataclass(frozen=True)
class Played:
    """The episodes of one step. `seconds`: wall time of `play`, and `play/PART` for each part."""

    episodes: Sequence[Episode]
    seconds: Mapping[str, float] = field(default_factory=dict)
    ages: Mapping[str, int] = field(default_factory=dict)
    """Policy that played earlier weights of another -> how many steps these were learnt before."""


def tasks_of(components: TrainComponents, number: int, state: CreditState) -> list[Task]:
    """The tasks of step `number`, drawn when the games so far have left `state`."""
    return TaskSampler.of(components).tasks_of(number, state.sampling)


async def play_step(
    components: TrainComponents,
    tasks: Sequence[Task],
    number: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> Played:
    """Sample the episodes of step `number` from its seed. `on_episode` gets each when it ends.

    With `rollout.refill`, further waves of tasks are played while too few groups teach.
    """
    clock, before = Stopwatch(), components.models.timings()
    algorithm = components.algorithm
    snapshots = components.models.play_snapshots(number)
    ages = {name: number - 1 - step for name, step in snapshots.items()}

    async def play(tasks: Sequence[Task], tag: str) -> list[Episode]:
        return await components.stop.unless_wished(
            collect(
                components.environment,
                tasks,
                components.models.sampler,
                components.team_for(algorithm.pairs),
                components.plan,
                run_seed=components.seed,
                tag=tag,
                greedy_path=plays_greedy_path(algorithm),
                absent=plays_absent(algorithm),
                on_episode=on_episode,
            )
        )

    episodes = await play(tasks, f"{number:06d}")
    for wave in range(1, components.plan.refill + 1):
        missing = len(tasks) - sum(bool(refill.teaching(episode)) for episode in episodes)
        further = refill.further_tasks(
            components.tasks["train"],
            [episode.task for episode in episodes],
            components.seed,
            number,
            wave,
            missing,
        )
        if not further:
            break
        episodes += await play(further, f"{number:06d}+{wave}")
    clock.lap("play")
    parts = _parts_of_play(clock.seconds["play"], before, components.models.timings())
    return Played(episodes, {**clock.seconds, **parts}, ages)


async def learn_step(
    components: TrainComponents,
    played: Played,
    number: int,
    state: CreditState,
    fitted: Fitted = NOT_FITTED,
    earlier: Earlier = lambda kind, step: (),
    ahead: Awaitable[Played] | None = None,
) -> tuple[TrainStep, CreditState]:
    """Score, credit, pack, learn and publish: everything after the episodes of step `number`.

    The episodes may come from `play_step` or from a record. `fitted` comes from `fit_step`.
    `earlier` gives the episodes of earlier steps, if pairs of them are learned from again.
    `ahead`: the games of the next step. The new weights are published after they have ended.
    """
    clock, pairs = Stopwatch(), components.algorithm.pairs
    episodes = played.episodes
    if components.plan.refill:
        episodes = refill.chosen(episodes, components.tasks_per_step)
    found = await scored(components, episodes, clock)
    credit = credit_of(components, found, state)
    if pairs is not None and pairs.replay.mode != "current":
        credit = await with_earlier_pairs(components, credit, number, earlier)
    clock.lap("credit")

    def trained(credit: Credit) -> list[TrainSample]:
        own = [one for one in credit.samples if components.trains(number, one.policy, one.turn)]
        if components.plan.refill:
            own = refill.without_flat_rounds(own, episodes, components.algorithm)
        return own

    samples = trained(credit)
    values = [
        one
        for one in credit.values
        if any(components.trains(number, *policy_turn) for policy_turn in one.policy_turns)
    ]
    earned, known = await imitated(components, episodes, credit.samples, state.successes, number)
    clock.lap("score")
    in_sequence = components.schedule.kind == "sequential"
    bound = None if in_sequence else components.train.max_step_kl
    probe = None
    if bound is not None and samples:
        probe = await step_bound.begin(components, samples, number)
    samples += earned
    if in_sequence:
        learned = await learn_in_sequence(
            components, found, credit, trained, earned, values, state, number, clock
        )
    elif credit.preferences is None:
        learned = await learn_samples(components, samples, values, state, number, clock)
    else:
        learned = await learn_pairs(components, samples, credit.preferences, number, clock)
    if bound is not None and probe is not None:
        learned |= await step_bound.hold(components, probe, bound, learned)
    clock.lap("learn")
    if ahead is not None:
        await ahead
        clock.lap("wait")
    updated = {sample.policy for sample in samples}.union(await average(components, number))
    await components.models.publisher.publish(sorted(updated))
    components.models.store_snapshots(number)
    clock.lap("publish")
    groups = refill.shares(played.episodes)
    if components.plan.refill:
        groups["credit/refilled"] = float(len(played.episodes) - components.tasks_per_step)
    if components.algorithm.self_imitation is not None:
        groups["credit/imitated"] = float(len(earned))
    tasks = TaskSampler.of(components)
    sampling = tasks.after(state.sampling, played.episodes, number)
    drawn = tasks.metrics(
        state.sampling, sampling, [episode.task for episode in played.episodes], number
    )
    metrics = {**fitted.metrics, **drawn, **credit.metrics, **groups, **learned}
    metrics |= components.models.publish_metrics()
    metrics |= {f"play/snapshot_age/{name}": age for name, age in played.ages.items()}
    play = {"play": played.seconds.get("play", 0.0)}
    seconds = {**play, **clock.seconds, **played.seconds, **fitted.seconds}
    summary = summarise(played.episodes)
    return TrainStep(number, played.episodes, summary, metrics, seconds), replace(
        credit.state, successes=known, sampling=sampling
    )


def _parts_of_play(
    play: float, before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """Split `play` seconds: the sampler's parts, and `play/environment`, when no model sampled.

    The time of an environment that steps while the sampler works is not counted: nobody waited.
    Empty if the sampler does not measure.
    """
    if not after:
        return {}
    parts = {f"play/{kind}": total - before[kind] for kind, total in after.items()}
    return {**parts, "play/environment": max(0.0, play - sum(parts.values()))}


async def fit_step(components: TrainComponents, number: int, earlier: Earlier) -> Fitted:
    """Play for pairs and train the reward model, if step `number` begins an iteration.

    Without a reward model every step is an iteration, of which the comparator is told.

    `earlier` gives the recorded episodes of earlier iterations.

    Raises: MotetError if too many joint actions failed, or as `fit`; Interrupted.
    """
    settings = components.reward_model
    begins = settings is None or number in first_steps(settings, components.steps)
    if begins and components.comparator is not None:
        components.comparator.begin(number)
    if settings is None or not begins:
        return NOT_FITTED
    clock = Stopwatch()
    episodes = await play_for_pairs(components, number)
    clock.lap("play_pairs")
    refuse_too_many_faults(components, episodes, f"pairs of step {number}")
    past = [step for step in first_steps(settings, components.steps) if step < number]
    weights = weights_of(len(past) + 1, settings.replay)
    history: list[Sequence[Episode]] = [
        earlier("pairs", step) if weight > 0.0 else ()
        for step, weight in zip(past, weights, strict=False)
    ]
    history.append(episodes)
    fitted = await fit(components, history, number)
    return replace(fitted, seconds={**clock.seconds, **fitted.seconds})


def refuse_too_many_faults(
    components: TrainComponents, episodes: Sequence[Episode], when: str
) -> None:
    """Raises MotetError if more than `train.max_fault_share` of the joint actions failed, and
    TrainingDiverged if most of them did because logits are not finite.

    Training on the rest would be biased towards the joint actions that survive.
    """
    share, limit = fault_share(episodes), components.train.max_fault_share
    if share > limit:
        causes = summarise(episodes).causes
        commonest = max(causes, key=lambda cause: causes[cause])
        faults = (fault for episode in episodes for fault in episode_stats(episode).faults)
        first = next(faults)
        at = f" ({first.place})" if first.place else ""
        diverged = commonest == f"sampler/{NOT_FINITE}"
        raise (TrainingDiverged if diverged else MotetError)(
            f"{when}: {share:.0%} of the joint actions failed, "
            f"more than train.max_fault_share {limit:.0%}; "
            f"most often {commonest}. The first: {first.message}{at}"
        )
