"""`Unscored`: an environment whose last turn is not stepped, because nobody can reward it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.tool_use import ToolGame
from motet.environments.wrapper import Wrapper


@dataclass(frozen=True)
class UnscoredState:
    """The wrapped environment's state, and the number of turns played."""

    inner: Any
    played: int = 0


class Unscored(Wrapper[UnscoredState]):
    """The same game for `turns` turns, with rewards of 0.

    The replies of the last turn end the episode without a step of the wrapped environment. A
    person's question has no gold answer and no tests, so the step could not reward them.
    """

    def __init__(self, environment: Environment[Any], turns: int) -> None:
        super().__init__(environment)
        self.turns = turns

    async def start(self, task: Task, seed: int) -> UnscoredState:
        return UnscoredState(await self.environment.start(task, seed))

    def observe(self, state: UnscoredState) -> Mapping[str, Prompt]:
        return self.environment.observe(state.inner)

    async def step(
        self, state: UnscoredState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        rewards, played = dict.fromkeys(self.agents, 0.0), state.played + 1
        if played == self.turns:
            return Transition(UnscoredState(state.inner, played), rewards, done=True)
        led_to = await self.environment.step(state.inner, replies, seed)
        return Transition(UnscoredState(led_to.state, played), rewards, led_to.done)


def unscored(environment: Environment[Any], turns: int) -> Unscored:
    """Return the game of a plan with so many turns, in which no last turn is stepped.

    An agent that calls no tool ends the wrapped game before the last turn of the plan.
    """
    if isinstance(environment, ToolGame) and environment.environment.most_turns is not None:
        inner, most = environment.environment, environment.environment.most_turns
        environment = environment.around(Unscored(inner, most))
    return Unscored(environment, turns)
