"""The loop: play -> score -> credit -> pack -> learn -> publish.

It never asks where a model lives, nor what an algorithm is called.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from motet.batch import Learner, Metrics, merge, minibatches, pack, policy_objective
from motet.core import CreditState, Environment, Episode, Publisher, Sampler, Scorer, Task, Team, TrainSample
from motet.credit.assign import assign_credit
from motet.errors import MotetError
from motet.rollout.collect import collect, task_order
from motet.rollout.summary import Summary, episode_stats, fault_share, summarise
from motet.seeding import derive
from motet.settings import Algorithm, Plan
from motet.trainer.score import score


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
    """Trained policy -> the learner of its backbone; adapters on one base share one."""
    longest: Mapping[str, int]
    """Policy -> most tokens one of its answers may have."""
    seed: int


@dataclass(frozen=True)
class Pace:
    """How far and in what portions a run goes."""

    steps: int
    tasks_per_step: int
    token_budget: int
    """Padded tokens a micro-batch may have."""
    max_fault_share: float
    """A step with a larger share of failed joint actions stops the run."""


@dataclass(frozen=True)
class Step:
    """One step as it went, for whoever records it."""

    number: int
    episodes: Sequence[Episode]
    summary: Summary
    metrics: Mapping[str, float]
    seconds: Mapping[str, float] = field(default_factory=dict)


async def train(
    ensemble: Ensemble,
    tasks: Sequence[Task],
    pace: Pace,
    state: CreditState,
    first: int,
    after_step: Callable[[Step, CreditState], Any],
) -> CreditState:
    """Runs steps `first` to `pace.steps` (from 1); `after_step` is awaited after each.

    Raises: MotetError where too many episodes of a step failed; TrainingDiverged before a bad number reaches the weights.
    """
    task_at = task_order(len(tasks), ensemble.seed)
    for number in range(first, pace.steps + 1):
        start = (number - 1) * pace.tasks_per_step
        drawn = [tasks[task_at(position)] for position in range(start, start + pace.tasks_per_step)]
        step, state = await one_step(ensemble, drawn, number, pace, state)
        await after_step(step, state)
    return state


async def one_step(
    ensemble: Ensemble, tasks: Sequence[Task], number: int, pace: Pace, state: CreditState
) -> tuple[Step, CreditState]:
    """Plays `tasks`, learns from them, publishes. Every random draw follows from the run's seed and `number`."""
    algorithm, team, plan = ensemble.algorithm, ensemble.team, ensemble.plan
    clock = Stopwatch()
    episodes = await collect(
        ensemble.environment,
        tasks,
        ensemble.sampler,
        team,
        plan,
        run_seed=ensemble.seed,
        tag=f"{number:06d}",
        greedy_path=algorithm.baseline == "greedy_path",
    )
    summary = summarise(episodes)
    refuse_too_many_faults(episodes, f"step {number}", pace.max_fault_share)
    clock.lap("play")
    scores = await score(ensemble.scorer, episodes, algorithm, team)
    clock.lap("score")
    credit = assign_credit(episodes, scores, algorithm, state, team, len(plan.samples))
    clock.lap("credit")
    learned = await _learn(ensemble, credit.samples, number, pace)
    clock.lap("learn")
    await ensemble.publisher.publish(sorted({sample.policy for sample in credit.samples}))
    clock.lap("publish")
    return Step(number, episodes, summary, {**credit.metrics, **learned}, clock.seconds), credit.state


async def _learn(ensemble: Ensemble, samples: Sequence[TrainSample], number: int, pace: Pace) -> dict[str, float]:
    """Every optimiser step that the algorithm takes on one sample set. Returns figures by name, over all and per policy."""
    algorithm, learners = ensemble.algorithm, ensemble.learners
    objective = policy_objective(algorithm)
    seen: dict[str, list[Metrics]] = {}
    stepped: dict[str, float] = {}
    parts = minibatches(samples, algorithm.epochs, algorithm.minibatches, derive(ensemble.seed, number, "learn"))
    for update, part in enumerate(parts):
        for batch in pack(part, pace.token_budget, algorithm.reduce, ensemble.longest):
            measured = dict(await learners[batch.policy].accumulate(batch, objective))
            if update > 0:
                del measured["sampler_mismatch"]  # after an update the policies differ on purpose
            seen.setdefault(batch.policy, []).append(measured)
        updated = dict.fromkeys(sample.policy for sample in part)
        for learner in dict.fromkeys(learners[name] for name in updated):
            for name, figures in (await learner.step([n for n in updated if learners[n] is learner])).items():
                stepped |= {f"learn/{key}/{name}": value for key, value in figures.items()}
    overall = merge(metrics for parts in seen.values() for metrics in parts)
    per_policy = {
        f"learn/{key}/{name}": mean.value for name, parts in seen.items() for key, mean in merge(parts).items()
    }
    return {**{f"learn/{key}": mean.value for key, mean in overall.items()}, **per_policy, **stepped}


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


class Stopwatch:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = perf_counter()

    def lap(self, stage: str) -> None:
        now = perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
