"""`Rewarded`: an environment whose own reward is replaced by a custom reward."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.reward import RewardLike, ask, reads_transition
from motet.environments.wrapper import Wrapper
from motet.errors import MotetError, RewardFault
from motet.user_code.retries import again, may_pass


@dataclass(frozen=True)
class RewardedState:
    """The wrapped environment's state, and what is passed to the reward."""

    task: Task
    inner: Any
    texts: Mapping[str, str]
    """Agent -> its latest text. An agent that has not acted yet has none."""


class Rewarded(Wrapper[RewardedState]):
    """Calls `reward` after every turn with the latest text of each agent that has acted, and with
    the environment's own Transition if the reward has the parameter `transition`.

    After an error that may pass, the reward is called again, up to `retries` times. The game is not
    stepped again, so this is safe with live state, too.

    What the environment says besides its rewards is kept. If the reward says it too, such as
    `success` or a metric of the same name, the reward counts.
    """

    def __init__(self, environment: Environment[Any], reward: RewardLike, retries: int = 0) -> None:
        """Raises: ConfigError for wrong parameters of the reward."""
        super().__init__(environment)
        self.reward, self.retries = reward, retries
        self._reads_transition = reads_transition(reward)
        self.rewards_at_end = False  # this reward is called after every turn

    def alone(self) -> "Rewarded":
        # the single agent gets the same reward as the team, so that both are comparable
        return Rewarded(super().alone(), self.reward, self.retries)

    async def start(self, task: Task, seed: int) -> RewardedState:
        return RewardedState(task, await self.environment.start(task, seed), {})

    def observe(self, state: RewardedState) -> Mapping[str, Prompt]:
        return self.environment.observe(state.inner)

    async def step(
        self, state: RewardedState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        """Raises: RewardFault if the reward raises or does not return valid scores."""
        transition = await self.environment.step(state.inner, replies, seed)
        texts = {**state.texts, **{agent: reply.text for agent, reply in replies.items()}}
        score = await self._score(state.task, texts, transition)
        return replace(
            transition,
            state=RewardedState(state.task, transition.state, texts),
            rewards=score.rewards,
            success=transition.success if score.success is None else score.success,
            right={**transition.right, **score.right},
            bonus={**transition.bonus, **score.bonus},
            metrics={**transition.metrics, **score.metrics},
        )

    async def _score(
        self, task: Task, texts: Mapping[str, str], transition: Transition
    ) -> Transition:
        read = transition if self._reads_transition else None
        try:
            return await again(
                self.retries, lambda: ask(self.reward, task, texts, self.agents, read)
            )
        except MotetError as error:
            if not may_pass(error):
                raise
            fault = RewardFault(error)  # it does not pass: `step` is not to be taken again
            fault.cause = error.cause or type(error.__cause__ or error).__name__
            raise fault from error
