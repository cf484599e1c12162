"""The loop: play -> score -> credit -> pack -> learn -> publish.

It never asks where a model lives, nor what an algorithm is called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Literal, Protocol

from motet.batch import (
    Learner,
    Metrics,
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
from motet.trainer.guards import refuse_mismatch
from motet.trainer.score import score
from motet.trainer.stopping import Stop
from motet.trainer.timing import Stopwatch


@dataclass(frozen=True)
class Ensemble:
    """Everything that plays and learns in a run, made by build."""

    environment: Environment[Any]
    team: Team
    plan: Plan
    algorithm: Algorithm
    sampler: Sampler
    scorer: Scorer
    publisher: Publisher
    learners: Mapping[str, Learner]
    """Trained policy or critic -> the learner of its backbone; adapters on one base share one."""
    longest: Mapping[str, int]
    """Policy -> most tokens one of its answers may have."""
    seed: int
    schedule: Schedule
    critic_epochs: int
    """Passes of critics over a step's values."""
    value_coefficient: float
    """What a critic's loss is multiplied with."""
    timings: Callable[[], Mapping[str, float]] = dict
    """Wall seconds the sampler has been at work so far, by kind of work; nothing where it does not tell."""
    stop: Stop = field(default_factory=Stop)
    """Asked between any two parts of a step until weights have moved; then the step is ended."""

    def trains(self, step: int, policy: str, turn: int) -> bool:
        """Whether the policy learns at this step from what it did at this turn."""
        return self.schedule.trains(step, policy, turn, self.team.learning_seats(len(self.plan.samples)))


@dataclass(frozen=True)
class Pace:
    """How far and in what portions a run goes."""

    steps: int
    tasks_per_step: int
    token_budget: int
    """Padded tokens a micro-batch may have."""
    max_fault_share: float
    """A step with a larger share of failed joint actions stops the run."""
    max_mismatch: float | Literal["dtype"] | None
    """`Guards.max_mismatch`."""


@dataclass(frozen=True)
class Step:
    """One step as it went, for whoever records it."""

    number: int
    episodes: Sequence[Episode]
    summary: Summary
    metrics: Mapping[str, float]
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By stage; `play/PART` is part of `play`."""

    @property
    def took(self) -> float:
        """Seconds of the whole step."""
        return sum(value for stage, value in self.seconds.items() if "/" not in stage)


class Witness(Protocol):
    """Who is told what happens in a run."""

    def played(self, number: int, episodes: Sequence[Episode]) -> None:
        """The episodes of step `number`, before anything is learnt from them."""
        ...

    async def learnt(self, step: Step, state: CreditState) -> None:
        """A step that is over, and what credit remembers after it."""
        ...


async def train(
    ensemble: Ensemble, tasks: Sequence[Task], pace: Pace, state: CreditState, first: int, witness: Witness
) -> CreditState:
    """Runs steps `first` to `pace.steps` (from 1).

    Raises: as `one_step`.
    """
    for number in range(first, pace.steps + 1):
        drawn = tasks_of(number, tasks, ensemble.seed, pace)
        step, state = await one_step(ensemble, drawn, number, pace, state, witness.played)
        await witness.learnt(step, state)
    return state


async def one_step(
    ensemble: Ensemble,
    tasks: Sequence[Task],
    number: int,
    pace: Pace,
    state: CreditState,
    played: Callable[[int, Sequence[Episode]], object] = lambda number, episodes: None,
) -> tuple[Step, CreditState]:
    """Plays `tasks`, learns from them, publishes. Every random draw follows from the run's seed and `number`.

    Raises: MotetError where too many episodes failed, or where training does not give the log-probabilities of sampling;
    TrainingDiverged before a bad number reaches the weights; Interrupted.
    """
    clock, before = Stopwatch(), ensemble.timings()
    episodes = await play_step(ensemble, tasks, number)
    played(number, episodes)
    refuse_too_many_faults(episodes, f"step {number}", pace.max_fault_share)
    clock.lap("play")
    parts = _parts_of_play(clock.seconds["play"], before, ensemble.timings())
    step, state = await learn_step(ensemble, episodes, number, pace, state, clock)
    return replace(step, seconds={**step.seconds, **parts}), state


def tasks_of(number: int, tasks: Sequence[Task], seed: int, pace: Pace) -> list[Task]:
    """What step `number` plays, of all training tasks."""
    task_at = task_order(len(tasks), seed)
    start = (number - 1) * pace.tasks_per_step
    return [tasks[task_at(position)] for position in range(start, start + pace.tasks_per_step)]


async def play_step(ensemble: Ensemble, tasks: Sequence[Task], number: int) -> list[Episode]:
    """The episodes of step `number`, sampled from its seed."""
    return await ensemble.stop.unless_wished(
        collect(
            ensemble.environment,
            tasks,
            ensemble.sampler,
            ensemble.team,
            ensemble.plan,
            run_seed=ensemble.seed,
            tag=f"{number:06d}",
            greedy_path=ensemble.algorithm.baseline == "greedy_path",
        )
    )


async def learn_step(
    ensemble: Ensemble,
    episodes: Sequence[Episode],
    number: int,
    pace: Pace,
    state: CreditState,
    clock: Stopwatch | None = None,
) -> tuple[Step, CreditState]:
    """Learns from `episodes` as step `number`, wherever they come from, and publishes. `clock` has the seconds of playing."""
    algorithm, team, turns = ensemble.algorithm, ensemble.team, len(ensemble.plan.samples)
    clock = clock or Stopwatch()
    scores = await ensemble.stop.unless_wished(score(ensemble.scorer, episodes, algorithm, team))
    clock.lap("score")
    credit = assign_credit(episodes, scores, algorithm, state, team, turns)
    clock.lap("credit")
    samples = [one for one in credit.samples if ensemble.trains(number, one.policy, one.turn)]
    values = [one for one in credit.values if any(ensemble.trains(number, *seat) for seat in one.seats)]
    learned = await _learn(ensemble, samples, values, state, number, pace, clock)
    clock.lap("learn")
    await ensemble.publisher.publish(sorted({sample.policy for sample in samples}))
    clock.lap("publish")
    figures = {**credit.metrics, **learned}
    return Step(number, episodes, summarise(episodes), figures, clock.seconds), credit.state


def _parts_of_play(play: float, before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """What the sampler did in `play` seconds, and `play/environment`: the rest, in which nothing was being sampled.

    An environment that steps while answers are drawn is no part of it, for it made nobody wait. Empty where nothing is told.
    """
    if not after:
        return {}
    parts = {f"play/{kind}": total - before[kind] for kind, total in after.items()}
    return {**parts, "play/environment": max(0.0, play - sum(parts.values()))}


async def _learn(
    ensemble: Ensemble,
    samples: Sequence[TrainSample],
    values: Sequence[ValueSample],
    state: CreditState,
    number: int,
    pace: Pace,
    clock: Stopwatch,
) -> dict[str, float]:
    """Every optimiser step of policies and critics on one sample set. Returns figures by name, over all and for each."""
    algorithm, learners = ensemble.algorithm, ensemble.learners
    objective = policy_objective(algorithm, state.kl_coefficients)
    value_loss = value_objective(algorithm, ensemble.value_coefficient)
    seen: dict[str, list[Metrics]] = {}
    valued: dict[str, list[Metrics]] = {}
    stepped: dict[str, float] = {}
    arrived: set[str] = set()
    parts = minibatches(samples, algorithm.epochs, algorithm.minibatches, derive(ensemble.seed, number, "learn"))
    lessons = minibatches(
        values, ensemble.critic_epochs, algorithm.minibatches, derive(ensemble.seed, number, "values")
    )
    for dealt, lesson in zip_longest(parts, lessons, fillvalue=()):
        part = [sample for sample in dealt if sample.policy not in arrived]
        batches = pack(part, pace.token_budget, algorithm.reduce, ensemble.longest)
        readings = pack_values(lesson, pace.token_budget)
        clock.lap("pack")
        now: dict[str, list[Metrics]] = {}
        for batch in batches:
            if not stepped:
                ensemble.stop.check()
            measured = dict(await learners[batch.policy].accumulate(batch, objective))
            if batch.policy in seen:
                del measured["sampler_mismatch"]  # after an update the policies differ on purpose
            now.setdefault(batch.policy, []).append(measured)
        for reading in readings:
            if not stepped:
                ensemble.stop.check()
            told = await learners[reading.critic].accumulate_values(reading, value_loss)
            valued.setdefault(reading.critic, []).append(told)
        for name in [name for name in now if name not in seen]:  # its weights are still those that sampled
            own = [batch for batch in batches if batch.policy == name]
            refuse_mismatch(own, now[name], pace.max_mismatch, learners[name])
        for name, figures in now.items():
            seen.setdefault(name, []).extend(figures)
        if algorithm.stop_at_kl is not None:
            arrived |= {name for name, figures in now.items() if merge(figures)["moved"].value > algorithm.stop_at_kl}
        due = [name for name in now if name not in arrived]
        stepped |= await _step(learners, [*due, *dict.fromkeys(sample.critic for sample in lesson)])
        clock.lap("learn")
    overall = merge(metrics for figures in seen.values() for metrics in figures)
    each = {
        f"learn/{key}/{name}": mean.value
        for name, figures in (*seen.items(), *valued.items())
        for key, mean in merge(figures).items()
    }
    return {**{f"learn/{key}": mean.value for key, mean in overall.items()}, **each, **stepped}


async def _step(learners: Mapping[str, Learner], names: Sequence[str]) -> dict[str, float]:
    """One optimiser step of each of `names`, learner by learner; every learner hears of it, to forget what is not stepped."""
    figures: dict[str, float] = {}
    for learner in dict.fromkeys(learners.values()):
        for name, said in (await learner.step([n for n in names if learners[n] is learner])).items():
            figures |= {f"learn/{key}/{name}": value for key, value in said.items()}
    return figures


def refuse_too_many_faults(episodes: Sequence[Episode], when: str, limit: float) -> None:
    """Raises: MotetError where a larger share than `limit` of the joint actions failed: results would be the survivors'."""
    share = fault_share(episodes)
    if share > limit:
        causes = summarise(episodes).causes
        commonest = max(causes, key=lambda cause: causes[cause])
        messages = (fault.message for episode in episodes for fault in episode_stats(episode).faults)
        raise MotetError(
            f"{when}: {share:.0%} of the joint actions failed, more than train.max_fault_share {limit:.0%}; "
            f"most often {commonest}. The first: {next(messages)}"
        )
