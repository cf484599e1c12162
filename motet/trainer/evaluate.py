"""evaluate: play tasks without learning, and say how it went."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from motet.core import Environment, Episode, Sampler, Task, Team
from motet.rollout.collect import collect
from motet.rollout.summary import Summary, summarise
from motet.settings import Plan

TASKS_AT_ONCE = 512
"""Bounds the memory of an evaluation; part of what makes a wave, so it is the same for every run."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes, and their means."""

    episodes: list[Episode]
    summary: Summary


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
) -> Evaluation:
    """Plays `samples` straight paths of every task, with the turn limit and the stop rule of `plan`."""
    paths = plan.model_copy(
        update={"samples": (samples, *[1] * (len(plan.samples) - 1)), "expand": "all", "pairing": "aligned"}
    )
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
    return Evaluation(episodes, summarise(episodes))
