"""Play all tasks of one step (`collect`), and choose the tasks of a step (`task_order`)."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from motet.core import Environment, Episode, Sampler, Task, Team
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.rollout.play import check_plan, play
from motet.rollout.waves import Waves
from motet.settings import Plan
from motet.settings.rollout import Defaulting
from motet.user_code.timeouts import guarded


async def collect(
    environment: Environment[Any],
    tasks: Sequence[Task],
    sampler: Sampler,
    team: Team,
    plan: Plan,
    run_seed: int,
    tag: str,
    *,
    greedy: bool = False,
    greedy_path: bool = False,
    absent: Defaulting = "none",
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Play all tasks concurrently, in shared waves. Return their episodes in task order.

    Args:
        tag: makes the episode ids of this call unique in the run, such as the number of the step.
        greedy, greedy_path, absent: see `play`.
        on_episode: called with each episode when it ends, to show progress. The order of these
            calls may depend on timing.

    Raises: ConfigError from `check_plan` before anything is played; otherwise the same as `play`.
    """
    check_plan(plan, environment, team, absent)
    waves = Waves(sampler)

    async def one(task: Task, episode_id: str) -> Episode:
        episode = await play(
            task,
            episode_id,
            environment,
            team,
            plan,
            waves,
            run_seed,
            greedy=greedy,
            greedy_path=greedy_path,
            absent=absent,
        )
        if on_episode is not None:
            on_episode(episode)
        return episode

    with guarded(plan.timeout_seconds, plan.call_threads):
        return await waves.run(
            [one(task, name) for task, name in zip(tasks, episode_ids(tasks, tag), strict=True)]
        )


def episode_ids(tasks: Sequence[Task], tag: str) -> list[str]:
    """Return `tag:task`, or `tag:task#2`, `tag:task#3`, ... for repetitions in one step.

    A number is left out if a task of the step has this id: `x#2` is also the id of a second row
    whose id is x.
    """
    given = {task.id for task in tasks}
    seen: Counter[str] = Counter()
    names = []
    for task in tasks:
        seen[task.id] += 1
        while seen[task.id] > 1 and f"{task.id}#{seen[task.id]}" in given:
            seen[task.id] += 1
        names.append(
            f"{tag}:{task.id}" if seen[task.id] == 1 else f"{tag}:{task.id}#{seen[task.id]}"
        )
    return names


def task_order(count: int, seed: int) -> Callable[[int], int]:
    """Return a function: position -> index of the task drawn there.

    The position is the number of tasks that the run drew before. It is all that a checkpoint has to
    store. Every epoch of `count` draws is a new permutation.

    Raises: ConfigError if there are no tasks.
    """
    if count < 1:
        raise ConfigError(
            "got 0 training tasks; expected at least one: check data.train and its split"
        )

    @lru_cache(maxsize=2)  # a step may span two epochs
    def permutation(epoch: int) -> list[int]:
        return sorted(range(count), key=lambda index: derive(seed, "task_order", epoch, index))

    return lambda position: permutation(position // count)[position % count]
