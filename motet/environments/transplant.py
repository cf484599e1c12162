"""`Transplanted`: does the message matter? After one turn each agent hears what the others said on another problem.

A team that talks falls apart under it; a team that succeeds as before never listened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.forward import forward
from motet.errors import ConfigError, EnvironmentFault

Said: TypeAlias = Mapping[str, Reply]
"""What each agent said in one turn."""


@dataclass(frozen=True)
class Divided:
    """The state that is graded, and from the transplanted turn on what each agent believes it to be."""

    task: str
    turn: int
    inner: Any
    views: Mapping[str, Any] | None = None


def shifted(said: Mapping[str, Said]) -> dict[str, Said]:
    """Donors for `Transplanted`: every task is given what was said on the next one, the last what was said on the first."""
    if len(said) < 2:
        raise ConfigError(f"a transplant needs replies on at least 2 tasks, got {len(said)}: evaluate more tasks")
    tasks = list(said)
    return {task: said[donor] for task, donor in zip(tasks, tasks[1:] + tasks[:1], strict=True)}


class Transplanted:
    """`environment` with the replies of `turn` (from 0) exchanged: an agent's view goes on from its own reply and the others' of
    `donors[task.id]`. Later replies are added to every view as they are. What is graded is what was really said."""

    branches = True

    def __init__(self, environment: Environment[Any], turn: int, donors: Mapping[str, Said]) -> None:
        if not environment.branches:
            raise ConfigError(
                f"a transplant steps {type(environment).__name__} once per agent from one state; expected branches = True"
            )
        self.environment = environment
        self.turn = turn
        self.donors = donors
        self.agents: Sequence[str] = environment.agents

    def __getattr__(self, name: str) -> Any:
        return forward(self.environment, name)

    async def start(self, task: Task, seed: int) -> Divided:
        """Raises: EnvironmentFault for a task without donors."""
        if task.id not in self.donors:
            raise EnvironmentFault(f"no donors for task {task.id}; expected replies for every task that is played")
        return Divided(task.id, 0, await self.environment.start(task, seed))

    def observe(self, state: Divided) -> Mapping[str, Prompt]:
        prompts = self.environment.observe(state.inner)
        if state.views is None:
            return prompts
        return {agent: self._as_seen_by(agent, state.views[agent]) for agent in prompts}

    async def step(self, state: Divided, replies: Said, seed: int) -> Transition:
        transition = await self.environment.step(state.inner, replies, seed)
        views = state.views
        if not transition.done and state.turn >= self.turn:
            views = {agent: await self._seen_by(agent, state, replies, seed) for agent in self.agents}
        divided = Divided(state.task, state.turn + 1, transition.state, views)
        return Transition(divided, transition.rewards, transition.done, transition.terms)

    async def close(self, state: Divided) -> None:
        await self.environment.close(state.inner)

    async def _seen_by(self, agent: str, state: Divided, replies: Said, seed: int) -> Any:
        """The state that follows for `agent`."""
        believed = state.inner if state.views is None else state.views[agent]
        heard = dict(replies)
        if state.turn == self.turn:
            donor = self.donors[state.task]
            missing = [name for name in replies if name != agent and name not in donor]
            if missing:
                raise EnvironmentFault(
                    f"the donor of task {state.task} says nothing for {', '.join(missing)} at turn {self.turn}"
                )
            heard |= {name: donor[name] for name in replies if name != agent}
        transition = await self.environment.step(believed, heard, seed)
        if transition.done:
            raise EnvironmentFault(
                f"after the transplant all is over for {agent}, but really goes on: the end hangs on what was said"
            )
        return transition.state

    def _as_seen_by(self, agent: str, view: Any) -> Prompt:
        prompts = self.environment.observe(view)
        if agent not in prompts:
            raise EnvironmentFault(
                f"after the transplant {agent} would not act, but really does: turns hang on what was said"
            )
        return prompts[agent]
