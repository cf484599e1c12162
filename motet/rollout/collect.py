"""collect: all tasks of one step -> their Episodes; and which tasks a step draws."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from motet.core import Environment, Episode, Sampler, Task, Team
from motet.errors import ConfigError
from motet.rollout.play import check_plan, play
from motet.rollout.waves import Waves
from motet.seeding import derive
from motet.settings import Plan
from motet.timeouts import guarded


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
    on_episode: Callable[[Episode], None] | None = None,
) -> list[Episode]:
    """Plays all tasks side by side, in common waves, and returns their episodes in the order of the tasks.

    Args:
        tag: what makes the episode ids of this call unique in the run, such as the step's number.
        greedy, greedy_path: see `play`.
        on_episode: called with each episode when it ends, for progress. Which ends first may depend on the clock.
    Raises: ConfigError from `check_plan` before anything is played; otherwise as `play`.
    """
    check_plan(plan, environment, team, greedy_path)
    waves = Waves(sampler)

    async def one(task: Task, episode_id: str) -> Episode:
        episode = await play(
            task, episode_id, environment, team, plan, waves, run_seed, greedy=greedy, greedy_path=greedy_path
        )
        if on_episode is not None:
            on_episode(episode)
        return episode

    with guarded(plan.timeout_seconds):
        return await waves.run([one(task, name) for task, name in zip(tasks, episode_ids(tasks, tag), strict=True)])


def episode_ids(tasks: Sequence[Task], tag: str) -> list[str]:
    """`tag:task`, and `tag:task#2`, `tag:task#3` where one step plays a task again."""
    seen: Counter[str] = Counter()
    names = []
    for task in tasks:
        seen[task.id] += 1
        names.append(f"{tag}:{task.id}" if seen[task.id] == 1 else f"{tag}:{task.id}#{seen[task.id]}")
    return names


def task_order(count: int, seed: int) -> Callable[[int], int]:
    """The data cursor as a function: position (how many tasks the run drew before) -> index of the task drawn there.

    Every epoch of `count` draws is a permutation of its own, so one integer is all there is to save.

    Raises: ConfigError where there are no tasks.
    """
    if count < 1:
        raise ConfigError("got 0 training tasks; expected at least one: check data.train and its split")

    @lru_cache(maxsize=2)  # a step may reach from one epoch into the next
    def permutation(epoch: int) -> list[int]:
        return sorted(range(count), key=lambda index: derive(seed, "task_order", epoch, index))

    return lambda position: permutation(position // count)[position % count]
