"""One training step: play -> score -> credit -> pack -> learn -> publish.

Nothing here knows on which device or machine a model runs, or the name of an algorithm.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal

from motet.batch import (
    BatchMetrics,
    Learner,
    merge,
    minibatches,
    pack,
    pack_values,
    policy_objective,
    value_objective,
)
from motet.core import (
    CreditState,
    Environment,
    Episode,
    Publisher,
    Sampler,
    Scorer,
    Task,
    Team,
    TrainSample,
    ValueSample,
)
from motet.credit.assign import assign_credit
from motet.errors import MotetError
from motet.rollout.collect import collect, task_order
from motet.rollout.summary import Summary, episode_stats, fault_share, summarise
from motet.seeding import derive
from motet.settings import Algorithm, Plan, Schedule
from motet.trainer.alarms import refuse_mismatch
from motet.trainer.score import score
from motet.trainer.stopping import StopRequest
from motet.trainer.timing import Stopwatch


@dataclass(frozen=True)
class TrainComponents:
    """Everything that plays and learns in a run. The assembly room creates it."""

    environment: Environment[Any]
    team: Team
    plan: Plan
    algorithm: Algorithm
    sampler: Sampler
    scorer: Scorer
    publisher: Publisher
    learners: Mapping[str, Learner]
    """Trained policy or critic -> the learner of its backbone. Adapters of one base share one."""
    longest: Mapping[str, int]
    """Policy -> the largest number of tokens in one of its completions."""
    seed: int
    schedule: Schedule
    critic_epochs: int
    """Epochs of the critics over the values of a step."""
    value_coefficient: float
    """Factor of a critic's loss."""
    timings: Callable[[], Mapping[str, float]] = dict
    """Total wall seconds of the sampler so far, by kind of work. Empty if it does not measure."""
    stop: StopRequest = field(default_factory=StopRequest)
    """Checked between the parts of a step until the first optimizer step of it."""

    def trains(self, step: int, policy: str, turn: int) -> bool:
        """Whether the policy learns from this turn at this step."""
        return self.schedule.trains(
            step, policy, turn, self.team.policy_turns(len(self.plan.samples))
        )


@dataclass(frozen=True)
class StepConfig:
    """The sizes of a run: steps, tasks, micro-batches, and the limits that stop it."""

    steps: int
    tasks_per_step: int
    token_budget: int
    """The largest number of padded tokens in a micro-batch."""
    max_fault_share: float
    """The run stops if a larger share of the joint actions of a step fails."""
    max_mismatch: float | Literal["dtype"] | None
    """`AlarmBounds.max_mismatch`."""


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


def tasks_of(number: int, tasks: Sequence[Task], seed: int, step_config: StepConfig) -> list[Task]:
    """The tasks of step `number`."""
    task_at = task_order(len(tasks), seed)
    start = (number - 1) * step_config.tasks_per_step
    return [
        tasks[task_at(position)] for position in range(start, start + step_config.tasks_per_step)
    ]


async def play_step(components: TrainComponents, tasks: Sequence[Task], number: int) -> Played:
    """Sample the episodes of step `number` from its seed."""
    clock, before = Stopwatch(), components.timings()
    episodes = await components.stop.unless_wished(
        collect(
            components.environment,
            tasks,
            components.sampler,
            components.team,
            components.plan,
            run_seed=components.seed,
            tag=f"{number:06d}",
            greedy_path=components.algorithm.baseline == "greedy_path",
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
) -> tuple[TrainStep, CreditState]:
    """Score, credit, pack, learn and publish: everything after the episodes of step `number`.

    The episodes may come from `play_step` or from a record.
    """
    episodes, algorithm, team = played.episodes, components.algorithm, components.team
    clock = Stopwatch()
    scores = await components.stop.unless_wished(
        score(components.scorer, episodes, algorithm, team)
    )
    clock.lap("score")
    turns = len(components.plan.samples)
    credit = assign_credit(episodes, scores, algorithm, state, team, turns)
    clock.lap("credit")
    samples = [one for one in credit.samples if components.trains(number, one.policy, one.turn)]
    values = [
        one
        for one in credit.values
        if any(components.trains(number, *policy_turn) for policy_turn in one.policy_turns)
    ]
    learned = await _learn(components, samples, values, state, number, step_config, clock)
    clock.lap("learn")
    await components.publisher.publish(sorted({sample.policy for sample in samples}))
    clock.lap("publish")
    metrics = {**credit.metrics, **learned}
    seconds = {"play": played.seconds.get("play", 0.0), **clock.seconds, **played.seconds}
    return TrainStep(number, episodes, summarise(episodes), metrics, seconds), credit.state


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


async def _learn(
    components: TrainComponents,
    samples: Sequence[TrainSample],
    values: Sequence[ValueSample],
    state: CreditState,
    number: int,
    step_config: StepConfig,
    clock: Stopwatch,
) -> dict[str, float]:
    """All optimizer steps on the samples of one step. Returns metrics: overall, and per policy."""
    algorithm, learners = components.algorithm, components.learners
    objective = policy_objective(algorithm, state.kl_coefficients)
    value_loss = value_objective(algorithm, components.value_coefficient)
    seen: dict[str, list[BatchMetrics]] = {}
    valued: dict[str, list[BatchMetrics]] = {}
    stepped: dict[str, float] = {}
    arrived: set[str] = set()
    parts = minibatches(
        samples, algorithm.epochs, algorithm.minibatches, derive(components.seed, number, "learn")
    )
    value_parts = minibatches(
        values,
        components.critic_epochs,
        algorithm.minibatches,
        derive(components.seed, number, "values"),
    )
    for part, value_part in zip_longest(parts, value_parts, fillvalue=()):
        batches = pack(
            [sample for sample in part if sample.policy not in arrived],
            step_config.token_budget,
            algorithm.reduce,
            components.longest,
            scale=len(samples) / len(part) if part else 1.0,
        )
        value_batches = pack_values(value_part, step_config.token_budget)
        clock.lap("pack")
        now: dict[str, list[BatchMetrics]] = {}
        for batch in batches:
            if not stepped:
                components.stop.check()
            measured = dict(await learners[batch.policy].accumulate(batch, objective))
            if batch.policy in seen:
                # After an update the policies differ on purpose.
                del measured["sampling_logp_difference"]
            now.setdefault(batch.policy, []).append(measured)
        for value_batch in value_batches:
            if not stepped:
                components.stop.check()
            value_metrics = await learners[value_batch.critic].accumulate_values(
                value_batch, value_loss
            )
            valued.setdefault(value_batch.critic, []).append(value_metrics)
        for name in [name for name in now if name not in seen]:
            # The first update of a policy: its weights are still those that sampled.
            own = [batch for batch in batches if batch.policy == name]
            refuse_mismatch(own, now[name], step_config.max_mismatch, learners[name])
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
    overall = merge(metrics for figures in seen.values() for metrics in figures)
    each = {
        f"learn/{key}/{name}": mean.value
        for name, figures in (*seen.items(), *valued.items())
        for key, mean in merge(figures).items()
    }
    return {**{f"learn/{key}": mean.value for key, mean in overall.items()}, **each, **stepped}


async def _step(learners: Mapping[str, Learner], names: Sequence[str]) -> dict[str, float]:
    """One optimizer step of each of `names`.

    Every learner is called, also without names: it then drops its accumulated gradients.
    """
    figures: dict[str, float] = {}
    for learner in dict.fromkeys(learners.values()):
        for name, said in (
            await learner.step([n for n in names if learners[n] is learner])
        ).items():
            figures |= {f"learn/{key}/{name}": value for key, value in said.items()}
    return figures


def refuse_too_many_faults(episodes: Sequence[Episode], when: str, limit: float) -> None:
    """Raises MotetError if more than `limit` of the joint actions failed.

    Training on the rest would be biased towards the joint actions that survive.
    """
    share = fault_share(episodes)
    if share > limit:
        causes = summarise(episodes).causes
        commonest = max(causes, key=lambda cause: causes[cause])
        messages = (
            fault.message for episode in episodes for fault in episode_stats(episode).faults
        )
        raise MotetError(
            f"{when}: {share:.0%} of the joint actions failed, "
            f"more than train.max_fault_share {limit:.0%}; "
            f"most often {commonest}. The first: {next(messages)}"
        )
