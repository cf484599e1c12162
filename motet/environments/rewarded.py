"""`Rewarded`: an environment as it is, with an author's reward in place of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.forward import forward
from motet.rewards.reward import RewardLike, ask


@dataclass(frozen=True)
class Judged:
    """The environment's own state, and the task that the reward is told."""

    task: Task
    inner: Any


class Rewarded:
    """Asks `reward` after every turn, with what was said in it. The environment's terms stay, `success` too, unless the reward
    names a term of its own the same."""

    def __init__(self, environment: Environment[Any], reward: RewardLike) -> None:
        self.environment = environment
        self.reward = reward
        self.agents: Sequence[str] = environment.agents
        self.branches = environment.branches

    def __getattr__(self, name: str) -> Any:
        if name in ("most_turns", "says_right"):  # not rewards_at_end: this reward is asked every turn
            return getattr(self.environment, name)
        found = forward(self.environment, name)
        if name == "alone":
            return lambda: Rewarded(found(), self.reward)  # judged as the team is, or the two could not be compared
        return found

    async def start(self, task: Task, seed: int) -> Judged:
        return Judged(task, await self.environment.start(task, seed))

    def observe(self, state: Judged) -> Mapping[str, Prompt]:
        return self.environment.observe(state.inner)

    async def step(self, state: Judged, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: RewardFault where the reward raises, or returns what is no score."""
        transition = await self.environment.step(state.inner, replies, seed)
        texts = {agent: reply.text for agent, reply in replies.items()}
        rewards, terms = await ask(self.reward, state.task, texts, self.agents)
        judged = Judged(state.task, transition.state)
        return Transition(judged, rewards, transition.done, {**transition.terms, **terms})

    async def close(self, state: Judged) -> None:
        await self.environment.close(state.inner)
