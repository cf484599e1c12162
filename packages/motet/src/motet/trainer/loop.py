"""One training step: play -> score -> credit -> pack -> learn -> publish.

Nothing here knows on which device or machine a model runs, or the name of an algorithm.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from motet.batch import weighs_completions
from motet.core import (
    CreditState,
    Episode,
    Task,
)
from motet.credit.assign import assign_credit
from motet.credit.preferences import weights_of
from motet.errors import MotetError
from motet.rollout.collect import collect, task_order
from motet.rollout.summary import Summary, episode_stats, fault_share, summarise
from motet.trainer.comparator import as_own
from motet.trainer.components import StepConfig, TrainComponents
from motet.trainer.earlier import Earlier, with_earlier_pairs
from motet.trainer.learn import learn_pairs, learn_samples
from motet.trainer.present import present_logprobs
from motet.trainer.reward_model import NOT_FITTED, Fitted, first_steps, fit, judged, play_for_pairs
from motet.trainer.score import score
from motet.trainer.timing import Stopwatch


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


async def one_step(
    components: TrainComponents,
    tasks: Sequence[Task],
    number: int,
    step_config: StepConfig,
    state: CreditState,
) -> tuple[TrainStep, CreditState]:
    """Play `tasks`, learn from the episodes, publish the new weights.

    Every random draw follows from the run's seed and `number`.
    Raises: MotetError if too many joint actions failed, or if the log-probabilities of training
    are not those of sampling; TrainingDiverged before a bad number reaches the weights;
    Interrupted.
    """
    played = await play_step(components, tasks, number)
    refuse_too_many_faults(played.episodes, f"step {number}", step_config.max_fault_share)
    return await learn_step(components, played, number, step_config, state)


async def fit_step(
    components: TrainComponents,
    tasks: Sequence[Task],
    number: int,
    step_config: StepConfig,
    earlier: Earlier,
) -> Fitted:
    """Play for pairs and train the reward model, if step `number` begins an iteration.

    Without a reward model every step is an iteration, of which the comparator is told.

    Args:
        tasks: all training tasks.
        earlier: gives the recorded episodes of earlier iterations.

    Raises: MotetError if too many joint actions failed, or as `fit`; Interrupted.
    """
    settings = components.reward_model
    begins = settings is None or number in first_steps(settings, step_config.steps)
    if begins:
        components.remember(number)
    if settings is None or not begins:
        return NOT_FITTED
    clock = Stopwatch()
    episodes = await play_for_pairs(components, tasks, number)
    clock.lap("play_pairs")
    refuse_too_many_faults(episodes, f"pairs of step {number}", step_config.max_fault_share)
    past = [step for step in first_steps(settings, step_config.steps) if step < number]
    weights = weights_of(len(past) + 1, settings.replay)
    history: list[Sequence[Episode]] = [
        earlier("pairs", step) if weight > 0.0 else ()
        for step, weight in zip(past, weights, strict=False)
    ]
    history.append(episodes)
    fitted = await fit(components, history, number, step_config)
    return replace(fitted, seconds={**clock.seconds, **fitted.seconds})


def tasks_of(number: int, tasks: Sequence[Task], seed: int, step_config: StepConfig) -> list[Task]:
    """The tasks of step `number`."""
    task_at = task_order(len(tasks), seed)
    start = (number - 1) * step_config.tasks_per_step
    return [
        tasks[task_at(position)] for position in range(start, start + step_config.tasks_per_step)
    ]


async def play_step(
    components: TrainComponents,
    tasks: Sequence[Task],
    number: int,
    on_episode: Callable[[Episode], None] | None = None,
) -> Played:
    """Sample the episodes of step `number` from its seed. `on_episode` gets each when it ends."""
    clock, before = Stopwatch(), components.timings()
    episodes = await components.stop.unless_wished(
        collect(
            components.environment,
            tasks,
            components.sampler,
            components.compared(components.algorithm.preference),
            components.plan,
            run_seed=components.seed,
            tag=f"{number:06d}",
            greedy_path=components.algorithm.baseline == "greedy_path",
            on_episode=on_episode,
        )
    )
    clock.lap("play")
    parts = _parts_of_play(clock.seconds["play"], before, components.timings())
    return Played(episodes, {**clock.seconds, **parts})


async def learn_step(
    components: TrainComponents,
    played: Played,
    number: int,
    step_config: StepConfig,
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
    episodes, algorithm, team = played.episodes, components.algorithm, components.team
    clock, judgement = Stopwatch(), dict[str, float]()
    episodes = await as_own(components, episodes, step_config)
    if components.reward_model is not None:
        episodes, judgement = await judged(components, episodes)
    scores = await components.stop.unless_wished(
        score(components.scorer, episodes, algorithm, team)
    )
    if weighs_completions(algorithm, components.max_lag):
        budget = step_config.token_budget
        present = await present_logprobs(components, episodes, budget)
        scores = replace(scores, present=present)
    clock.lap("score")
    turns = len(components.plan.samples)
    credit = assign_credit(episodes, scores, algorithm, state, team, turns, components.credit)
    if algorithm.preference is not None and algorithm.preference.replay.mode != "current":
        credit = await with_earlier_pairs(components, credit, number, earlier, step_config)
    clock.lap("credit")
    samples = [one for one in credit.samples if components.trains(number, one.policy, one.turn)]
    values = [
        one
        for one in credit.values
        if any(components.trains(number, *policy_turn) for policy_turn in one.policy_turns)
    ]
    if credit.preferences is None:
        learned = await learn_samples(
            components, samples, values, state, number, step_config, clock
        )
    else:
        learned = await learn_pairs(
            components, samples, credit.preferences, number, step_config, clock
        )
    clock.lap("learn")
    if ahead is not None:
        await ahead
        clock.lap("wait")
    await components.publisher.publish(sorted({sample.policy for sample in samples}))
    clock.lap("publish")
    metrics = {**fitted.metrics, **judgement, **credit.metrics, **learned}
    metrics |= components.publish_metrics()
    play = {"play": played.seconds.get("play", 0.0)}
    seconds = {**play, **clock.seconds, **played.seconds, **fitted.seconds}
    summary = summarise(played.episodes)
    return TrainStep(number, played.episodes, summary, metrics, seconds), credit.state


def _parts_of_play(
    play: float, before: Mapping[str, float], after: Mapping[str, float]
) -> dict[str, float]:
    """Split `play` seconds: the sampler's parts, and `play/environment`, when nothing was sampled.

    The time of an environment that steps while the sampler works is not counted: nobody waited.
    Empty if the sampler does not measure.
    """
    if not after:
        return {}
    parts = {f"play/{kind}": total - before[kind] for kind, total in after.items()}
    return {**parts, "play/environment": max(0.0, play - sum(parts.values()))}


def refuse_too_many_faults(episodes: Sequence[Episode], when: str, limit: float) -> None:
    """Raises MotetError if more than `limit` of the joint actions failed.

    Training on the rest would be biased towards the joint actions that survive.
    """
    share = fault_share(episodes)
    if share > limit:
        causes = summarise(episodes).causes
        commonest = max(causes, key=lambda cause: causes[cause])
        faults = (fault for episode in episodes for fault in episode_stats(episode).faults)
        first = next(faults)
        at = f" ({first.place})" if first.place else ""
        raise MotetError(
            f"{when}: {share:.0%} of the joint actions failed, "
            f"more than train.max_fault_share {limit:.0%}; "
            f"most often {commonest}. The first: {first.message}{at}"
        )
