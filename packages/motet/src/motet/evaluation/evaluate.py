"""Play tasks without training, and compute the figures of the result."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from time import monotonic
from typing import Any

from motet.core import Environment, Episode, NamesConventions, Sampler, Task, Team
from motet.errors import MotetError
from motet.evaluation.influence import Influence, influence
from motet.evaluation.intervals import estimate, success_of
from motet.evaluation.pass_at_k import mean_pass_at_k, powers_of_two
from motet.evaluation.playthrough import (
    Playthrough,
    TurnSummary,
    by_turn,
    playthroughs,
    rewards,
)
from motet.rollout.collect import collect
from motet.rollout.reference import reference_path
from motet.rollout.summary import (
    EnvironmentFigures,
    Summary,
    ToolCounts,
    by_environment,
    summarise,
    tool_use,
)
from motet.settings import Plan
from motet.user_code.timeouts import guarded

TASKS_AT_ONCE = 512
"""Limits the memory of an evaluation. It is the same for every run, because it determines the
waves."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes and their means."""

    episodes: list[Episode]
    summary: Summary
    seconds: float | None = None
    """Wall-clock time from the first task to the last. None if it was not measured."""

    @property
    def games(self) -> list[list[Playthrough]]:
        """The single games of every task."""
        return [playthroughs(episode) for episode in self.episodes]


async def evaluate(
    environment: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    team: Team,
    plan: Plan,
    *,
    seed: int,
    tag: str,
    samples: int = 1,
    greedy: bool = False,
    on_episode: Callable[[Episode], None] | None = None,
    clock: Callable[[], float] = monotonic,
) -> Evaluation:
    """Play `samples` paths of every task, with the turn limit and `stop_at_reward` of `plan`.

    The plan's `max_nodes` does not apply: it limits trees, and here the number of paths is given.
    Neither does `stop_by`: a path ends by its own reward, whatever the others earn.
    """
    turns = len(plan.samples)
    paths = plan.model_copy(
        update={
            "samples": (samples, *[1] * (turns - 1)),
            "expand": "all",
            "pairing": "aligned",
            "stop_by": "branch",
            "max_nodes": 1 + samples * (turns - 1),
        }
    )
    begun = clock()
    episodes: list[Episode] = []
    for start in range(0, len(tasks), TASKS_AT_ONCE):
        episodes += await collect(
            environment,
            tasks[start : start + TASKS_AT_ONCE],
            sampler,
            team,
            paths,
            run_seed=seed,
            tag=f"{tag}-{start:06d}" if start else tag,
            greedy=greedy,
            on_episode=on_episode,
        )
    return Evaluation(episodes, summarise(episodes), clock() - begun)


async def evaluate_reference(
    environment: Environment[Any], tasks: Sequence[Task], plan: Plan, *, seed: int
) -> Evaluation:
    """Play the environment's own solutions, which need no model.

    Raises: ConfigError if the environment has no solutions; MotetError if no task can be played.
    """
    episodes: list[Episode] = []
    with guarded(plan.timeout_seconds, plan.call_threads):
        for start in range(0, len(tasks), TASKS_AT_ONCE):
            paths = (
                reference_path(environment, task, f"reference:{task.id}", plan, seed)
                for task in tasks[start : start + TASKS_AT_ONCE]
            )
            episodes += await asyncio.gather(*paths)
    faults = [episode.fault for episode in episodes if episode.fault is not None]
    if faults and len(faults) == len(episodes):
        raise MotetError(
            f"the reference team could play none of {len(episodes)} tasks: {faults[0].message}"
        )
    return Evaluation(episodes, summarise(episodes))


# ------------------------------------------------------------------------------------------ results


@dataclass(frozen=True)
class EvaluationResult(Summary):
    """What an evaluation found: the figures of its episodes and more.

    Those that are None by default are absent where they do not apply. docs/evaluation.md explains
    all. Only `time` differs between two calls.
    """

    samples: int
    """Games per task."""
    tokens_per_episode: float
    pass_at: Mapping[int, float]
    by_turn: Sequence[TurnSummary]
    success_by_turn: Sequence[float | None] | None = None
    """Of debates, as `influence`."""
    influence: Influence | None = None
    conventions: Mapping[str, Mapping[str, float]] | None = None
    """Agent -> label -> share of its first answers, if the environment names them."""
    environments: Mapping[str, EnvironmentFigures] | None = None
    """Environment -> its figures, of a mixture."""
    tools: Mapping[str, ToolCounts] | None = None
    """Agent -> how often it called its tools, if any agent has some."""
    code_changed: Sequence[str] | None = None
    """The user's files, and the versions of packages, that are other than when the run was
    computed."""
    rows_passed_over: int | None = None
    """The number of held-out rows that gave no task."""
    interval: Mapping[str, Sequence[float] | None] | None = None
    """The ends of the 95 % intervals of `success` and `reward`."""
    time: Mapping[str, float] | None = None
    """`seconds` and `seconds_per_episode`. Empty if they were not measured."""


def described(
    evaluation: Evaluation, environment: Environment[Any], pass_at: Sequence[int] | None = None
) -> EvaluationResult:
    """Return what the episodes say, without intervals and wall-clock times.

    Args:
        pass_at: the k of pass@k. The default is 1 and the powers of two up to the games per task.
    """
    games, summary = evaluation.games, evaluation.summary
    samples = max(map(len, games), default=0)
    turns, debated = by_turn(games), influence(evaluation.episodes)
    return EvaluationResult(
        **{one.name: getattr(summary, one.name) for one in fields(summary)},
        samples=samples,
        tokens_per_episode=summary.tokens / max(summary.episodes, 1),
        pass_at=mean_pass_at_k(games, powers_of_two(samples) if pass_at is None else pass_at),
        by_turn=turns if debated else [replace(turn, terms=None) for turn in turns],
        success_by_turn=[turn.success for turn in turns] if debated else None,
        influence=debated,
        conventions=conventions(evaluation.episodes, environment.convention)
        if isinstance(environment, NamesConventions)
        else None,
        environments=by_environment(evaluation.episodes) or None,
        tools=tool_use(evaluation.episodes) or None,
    )


def conventions(
    episodes: Sequence[Episode], name: Callable[[Task, str, str], str]
) -> dict[str, dict[str, float]]:
    """Return agent -> label -> share of its answers at turn one, the most common label first."""
    seen: dict[str, Counter[str]] = {}
    for episode in episodes:
        if episode.root is None:
            continue
        for agent, completions in episode.root.samples.items():
            labels = seen.setdefault(agent, Counter())
            labels.update(name(episode.task, agent, completion.text) for completion in completions)
    return {
        agent: {label: count / labels.total() for label, count in labels.most_common()}
        for agent, labels in seen.items()
    }


def intervals(evaluation: Evaluation, seed: int) -> dict[str, list[float] | None]:
    """Return the ends of the confidence intervals of success and reward.

    None if there is no value, and for a reward that is the same in all tasks: no resample of them
    says how far it is from that of other tasks.
    """
    success = success_of(evaluation.games, seed)
    reward = estimate(rewards(evaluation.games), seed)
    return {
        "success": None if success is None else [success.low, success.high],
        "reward": None if reward is None or reward.certain else [reward.low, reward.high],
    }


def times(evaluation: Evaluation) -> dict[str, float]:
    """Return the wall-clock seconds, in total and per episode. Empty if they were not measured."""
    if evaluation.seconds is None:
        return {}
    per_episode = evaluation.seconds / max(evaluation.summary.episodes, 1)
    return {"seconds": evaluation.seconds, "seconds_per_episode": per_episode}
