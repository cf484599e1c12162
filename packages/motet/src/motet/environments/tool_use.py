"""`ToolGame`: an environment whose agents may call tools before they answer.

A reply with calls is no answer yet: the calls run, and the agent reads them and their results in
the next Round, behind its prompt. Replies of other agents wait. When all agents have answered, the
wrapped environment makes its step. So a result is only ever part of a prompt and is never trained.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from motet.core import Demonstration, Environment, Prompt, Reply, Task, Transition
from motet.core.tools import Tool
from motet.environments.wrapper import Wrapper
from motet.settings import ToolUse
from motet.user_code.tool_runs import Chain, offered


@dataclass(frozen=True)
class ToolState:
    """The wrapped environment's state, and what its agents have said since its last step."""

    inner: Any
    prompts: Mapping[str, Prompt]
    """What the wrapped environment asks now."""
    chains: Mapping[str, Chain] = field(default_factory=dict)
    answers: Mapping[str, Reply] = field(default_factory=dict)
    turn: int = 0
    """Turns played, those of calls included."""


class ToolGame(Wrapper[ToolState]):
    """`environment`, in which each agent of `tools` may call its own."""

    def __init__(
        self,
        environment: Environment[Any],
        tools: Mapping[str, Sequence[Tool]],
        limits: ToolUse | None = None,
        turns: int | None = None,
    ) -> None:
        """Create the game.

        Args:
            tools: agent -> its tools, with different names.
            turns: the number of turns of the plan. At the last one no call can be answered.
        """
        super().__init__(environment)
        self._tools = {agent: {one.name: one for one in own} for agent, own in tools.items()}
        self.limits, self._turns = limits or ToolUse(), turns
        # How many turns a game has depends on its calls, so no reward is repeated for the others.
        self.rewards_at_end = True
        if self.most_turns is not None:
            self.most_turns *= 1 + self.limits.rounds

    def around(self, environment: Environment[Any]) -> "ToolGame":
        """Return the same tools around another game."""
        tools = {agent: list(own.values()) for agent, own in self._tools.items()}
        return ToolGame(environment, tools, self.limits, self._turns)

    async def start(self, task: Task, seed: int) -> ToolState:
        inner = await self.environment.start(task, seed)
        return ToolState(inner, self.environment.observe(inner))

    def observe(self, state: ToolState) -> Mapping[str, Prompt]:
        return {
            agent: self._offered(agent, prompt, state.chains.get(agent, Chain()))
            for agent, prompt in state.prompts.items()
            if agent not in state.answers
        }

    async def step(self, state: ToolState, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: SandboxFault if the sandbox of a tool failed."""
        chains = {agent: state.chains.get(agent, Chain()) for agent in replies}
        callers = [
            agent for agent, reply in replies.items() if self._calls(agent, reply, chains, state)
        ]
        said = {agent: reply for agent, reply in replies.items() if agent not in callers}
        answers = {**state.answers, **said}
        if not callers:
            return await self._answered(state, answers, seed)
        after = await asyncio.gather(
            *(
                chains[agent].after(replies[agent], self._tools[agent], self.limits)
                for agent in callers
            )
        )
        longer = {**state.chains, **dict(zip(callers, after, strict=True))}
        on = replace(state, chains=longer, answers=answers, turn=state.turn + 1)
        return Transition(on, dict.fromkeys(self.agents, 0.0), done=False)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        shown = super().demonstrate(task, seed)
        return replace(shown, prompt=self._offered(shown.agent, shown.prompt, Chain()))

    def solve(self, state: ToolState, seed: int) -> Mapping[str, str]:
        solved = super().solve(state, seed)
        return {agent: text for agent, text in solved.items() if agent not in state.answers}

    def _calls(
        self, agent: str, reply: Reply, chains: Mapping[str, Chain], state: ToolState
    ) -> bool:
        """Return whether the calls of a reply are made. Otherwise its text is the answer."""
        last = self._turns is not None and state.turn + 1 >= self._turns
        may = agent in self._tools and chains[agent].rounds < self.limits.rounds
        return bool(reply.calls or reply.unread) and may and not last

    async def _answered(
        self, state: ToolState, answers: Mapping[str, Reply], seed: int
    ) -> Transition:
        ordered = {agent: answers[agent] for agent in state.prompts}
        moved = await self.environment.step(state.inner, ordered, seed)
        # Nobody is asked after the end, so there need be no prompts.
        prompts = {} if moved.done else self.environment.observe(moved.state)
        return replace(moved, state=ToolState(moved.state, prompts, turn=state.turn + 1))

    def _offered(self, agent: str, prompt: Prompt, chain: Chain) -> Prompt:
        own = self._tools.get(agent)
        return offered(prompt, list(own.values()), chain) if own else prompt
