"""Demonstrations for the warm-up. Demonstration k of a run depends only on k and the seed."""

from collections.abc import Callable, Sequence
from typing import Any

from motet.core import Demonstration, Environment, Prompt, Task, Team
from motet.core.seeding import derive
from motet.errors import ConfigError
from motet.rollout.reference import demonstrations_of, play_reference
from motet.rollout.summary import episode_stats
from motet.settings import Plan

TRIES = 1000
"""Number of tries before an environment counts as having no demonstrations for the policy turns."""


class WarmupBatches:
    """Demonstrations of an environment, made by `demonstrate(task, seed)` or by its solutions."""

    def __init__(self, draw: Callable[[int], Demonstration], team: Team, seed: int) -> None:
        self._draw = draw
        self._team = team
        self._seed = seed

    def one(self, policies: set[str], *number: object) -> tuple[Prompt, str]:
        """Return demonstration `number` for a turn that one of `policies` plays, as (prompt, text).

        The prompt includes the system message of the agent.

        Raises: ConfigError if a thousand tries find none.
        """
        for attempt in range(TRIES):
            shown = self._draw(derive(self._seed, "lesson", *number, attempt))
            if shown.agent not in self._team.agents:
                known = ", ".join(self._team.agents)
                raise ConfigError(
                    f"a demonstration is for agent {shown.agent!r}; expected one of the agents "
                    f"{known}"
                )
            if self._team.policy_of(shown.agent, shown.turn) in policies:
                return self._team.with_system(shown.agent, shown.prompt), shown.text
        raise ConfigError(
            f"the environment gave no demonstration for {', '.join(sorted(policies))} in {TRIES} "
            "draws: let demonstrate(task, seed) cover every agent and turn, or drop warmup"
        )

    def batch(
        self, policies: set[str], model: str, step: int, size: int
    ) -> list[tuple[Prompt, str]]:
        return [self.one(policies, model, step, index) for index in range(size)]


async def warmup_batches_of(
    environment: Environment[Any], tasks: Sequence[Task], team: Team, plan: Plan, seed: int
) -> WarmupBatches:
    """Return the demonstrations of an environment. Solutions that fail are left out.

    Raises: ConfigError if there are neither demonstrations nor solutions.
    """
    if environment.provides(Environment.demonstrate):
        return WarmupBatches(
            lambda key: environment.demonstrate(tasks[key % len(tasks)], key), team, seed
        )
    if not environment.provides(Environment.solve):
        raise ConfigError(
            f"{type(environment).__name__} has no demonstrations and no solutions for the "
            "warm-up: define demonstrate(task, seed) or solve(state, seed), or drop warmup"
        )
    played = [
        await play_reference(environment, task, f"lesson:{task.id}", plan, seed) for task in tasks
    ]
    shown = [
        demonstration
        for episode in played
        if episode_stats(episode).success != 0.0
        for demonstration in demonstrations_of(episode)
    ]
    if not shown:
        raise ConfigError(
            f"no solution of {type(environment).__name__} could be played: check them with motet "
            "evaluate --team reference"
        )
    return WarmupBatches(lambda key: shown[key % len(shown)], team, seed)
