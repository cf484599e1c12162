"""Demonstrations for a warm-up: the k-th one of a run is a function of k, whoever asks and however often."""

from collections.abc import Callable, Sequence
from typing import Any

from motet.core import Demonstration, Environment, Prompt, Task, Team
from motet.errors import ConfigError
from motet.rollout.prompts import with_system
from motet.rollout.reference import demonstrations_of, play_reference
from motet.rollout.summary import episode_stats
from motet.seeding import derive
from motet.settings import Plan

TRIES = 1000
"""Draws after which an environment is taken not to demonstrate anything for the seats asked for."""


class Lessons:
    """What an environment can teach: its `demonstrate(task, seed)`, else what its reference team says."""

    def __init__(self, draw: Callable[[int], Demonstration], team: Team, seed: int) -> None:
        self._draw = draw
        self._team = team
        self._seed = seed

    def one(self, policies: set[str], *number: object) -> tuple[Prompt, str]:
        """Demonstration `number` among those for seats that one of `policies` plays; the prompt under the seat's system text.

        Raises: ConfigError where there is none in a thousand.
        """
        for attempt in range(TRIES):
            shown = self._draw(derive(self._seed, "lesson", *number, attempt))
            if shown.agent not in self._team.agents:
                known = ", ".join(self._team.agents)
                raise ConfigError(f"a demonstration is for agent {shown.agent!r}; the environment's agents are {known}")
            if self._team.policy_of(shown.agent, shown.turn) in policies:
                return with_system(shown.prompt, self._team.system.get(shown.agent, "")), shown.text
        raise ConfigError(
            f"the environment demonstrated nothing for {', '.join(sorted(policies))} in {TRIES} draws: "
            f"give demonstrate(task, seed) every agent and turn, or drop the warm-up"
        )

    def batch(self, policies: set[str], model: str, step: int, size: int) -> list[tuple[Prompt, str]]:
        return [self.one(policies, model, step, index) for index in range(size)]


async def lessons_of(
    environment: Environment[Any], tasks: Sequence[Task], team: Team, plan: Plan, seed: int
) -> Lessons:
    """Solutions that fail or break teach nothing. Raises: ConfigError where there are neither demonstrations nor solutions."""
    teacher: Any = environment
    if hasattr(teacher, "demonstrate"):
        return Lessons(lambda key: teacher.demonstrate(tasks[key % len(tasks)], key), team, seed)
    if not hasattr(teacher, "solve"):
        raise ConfigError(
            f"{type(environment).__name__} has neither demonstrations nor solutions to warm up on: "
            f"give it demonstrate(task, seed) or solve(state, seed), or drop warmup"
        )
    played = [await play_reference(environment, task, f"lesson:{task.id}", plan, seed) for task in tasks]
    shown = [
        lesson for episode in played if episode_stats(episode).success != 0.0 for lesson in demonstrations_of(episode)
    ]
    if not shown:
        raise ConfigError(
            f"no solution of {type(environment).__name__} could be played: see motet evaluate --team reference"
        )
    return Lessons(lambda key: shown[key % len(shown)], team, seed)
