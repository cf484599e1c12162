"""`Centralized`: one policy writes the completions of all agents.

This is the baseline of a team: the same task, reward and number of policy updates, but one
completion with a tagged section for every agent instead of one completion each. comlrl calls it
`collaboration_mode: centralized`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from motet.core import (
    Demonstrates,
    Demonstration,
    Drawing,
    Environment,
    Grades,
    Message,
    PlaysAlone,
    Prompt,
    Reply,
    Task,
    Transition,
)
from motet.core.seeding import derive
from motet.environments.wrapper import Wrapper
from motet.errors import ConfigError

TRIES = 64
"""Demonstrations that are drawn to find one for every agent."""


@dataclass(frozen=True)
class CentralizedState:
    """The wrapped environment's state."""

    inner: Any


class Centralized(Wrapper[CentralizedState]):
    """`environment` as a game of one agent that answers for all agents.

    Its prompt contains the prompt of every agent that acts. Its completion must contain a section
    `<TAG>...</TAG>` for each of them. A missing section is an empty completion. The reward is the
    mean of the agents' rewards. Chats become one user message; prompts that are plain strings are
    joined without instructions, because base models follow none.
    """

    gives_up = (PlaysAlone, Grades)  # these are about one agent's own completion

    def __init__(
        self,
        environment: Environment[Any],
        agent: str = "joint",
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Create the game.

        Args:
            agent: the name of the one agent.
            tags: agent of `environment` -> its tag. Default: agent_0, agent_1, ...

        Raises: ConfigError if a tag is missing, repeated, or not a word.
        """
        super().__init__(environment)
        self.agents = (agent,)
        self.says_right = False
        self.tools = {}
        self.tags = dict(tags or {})
        if not tags:
            self.tags = {name: f"agent_{place}" for place, name in enumerate(environment.agents)}
        self._check_tags()

    def _check_tags(self) -> None:
        expected, got = set(self.environment.agents), set(self.tags)
        if got != expected:
            raise ConfigError(
                f"centralized.tags names {', '.join(sorted(got))}; expected a tag for each of "
                f"{', '.join(self.environment.agents)}"
            )
        for agent, tag in self.tags.items():
            if not re.fullmatch(r"\w+", tag, re.ASCII):
                raise ConfigError(
                    f"centralized.tags.{agent} is {tag!r}; expected letters, digits and _ only"
                )
        if len({tag.lower() for tag in self.tags.values()}) < len(self.tags):
            raise ConfigError(
                f"centralized.tags gives {', '.join(self.tags.values())}; expected different tags"
            )

    async def start(self, task: Task, seed: int) -> CentralizedState:
        return CentralizedState(await self.environment.start(task, seed))

    def observe(self, state: CentralizedState) -> Mapping[str, Prompt]:
        return {self.agents[0]: self.prompt(self.environment.observe(state.inner))}

    async def step(
        self, state: CentralizedState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        joint = replies[self.agents[0]]
        acting = self.environment.observe(state.inner)
        parts = {agent: Reply(self.section(joint.text, agent), joint.stop) for agent in acting}
        moved = await self.environment.step(state.inner, parts, seed)
        total = sum(moved.rewards.values()) + sum(moved.bonus.values())
        return replace(
            moved,
            state=CentralizedState(moved.state),
            rewards={self.agents[0]: total / len(moved.rewards)},
            right={},
            bonus={},
        )

    def prompt(self, prompts: Mapping[str, Prompt]) -> Prompt:
        """Return the joint prompt of the agents that act."""
        texts = {agent: prompts[agent] for agent in self.tags if agent in prompts}
        if all(isinstance(text, str) for text in texts.values()):
            return "".join(str(text) for text in texts.values())
        assigned = "\n\n".join(
            f"Assignment of {self.tags[agent]}:\n{_plain(text)}" for agent, text in texts.items()
        )
        form = self.joined(dict.fromkeys(texts, "..."))
        content = (
            f"You answer for a team of {len(texts)}. Every assignment below gets an answer of its "
            f"own, and the answers must work together.\n\n{assigned}\n\nWrite nothing but these "
            f"sections:\n{form}"
        )
        return (Message("user", content),)

    def joined(self, texts: Mapping[str, str]) -> str:
        """Return one completion with a section for every agent in `texts`."""
        return "\n".join(
            f"<{tag}>\n{texts[agent].strip()}\n</{tag}>"
            for agent, tag in self.tags.items()
            if agent in texts
        )

    def section(self, text: str, agent: str) -> str:
        """Return the completion of `agent` in a joint completion; empty if it has none."""
        tag = self.tags[agent]
        # Two searches instead of one pattern, so that the time is linear in the length.
        opened = re.search(rf"<\s*{tag}\s*>", text, re.IGNORECASE)
        if opened is None:
            return ""
        rest = text[opened.end() :]
        closed = re.search(rf"<\s*/\s*{tag}\s*>", rest, re.IGNORECASE)
        return "" if closed is None else rest[: closed.start()].strip()

    # ------------------------------------------------------------ optional methods

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return demonstrations of all agents for the same turn as one joint demonstration.

        The agents' demonstrations are drawn independently, as in the warm-up of a team.
        """
        assert isinstance(self.environment, Demonstrates)
        first = self.environment.demonstrate(task, seed)
        found = {first.agent: first}
        for number in range(TRIES):
            drawn = self.environment.demonstrate(task, derive(seed, "centralized", number))
            if drawn.turn == first.turn:
                found.setdefault(drawn.agent, drawn)
        prompts = {agent: one.prompt for agent, one in found.items()}
        text = self.joined({agent: one.text for agent, one in found.items()})
        return Demonstration(self.agents[0], self.prompt(prompts), text, first.turn)

    def solve(self, state: CentralizedState, seed: int) -> Mapping[str, str]:
        return {self.agents[0]: self.joined(super().solve(state, seed))}

    def convention(self, task: Task, agent: str, text: str) -> str:
        of_one = super().convention
        return " + ".join(of_one(task, name, self.section(text, name)) for name in self.tags)

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        return super().answer(task, self._sections(texts))

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        return super().chat_answer(task, self._sections(texts))

    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        return super().drawing(task, self._sections(texts))

    def _sections(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self.section(texts[self.agents[0]], name) for name in self.tags}


def _plain(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    if len(prompt) == 1:
        return prompt[0].content
    return "\n".join(f"{message.role}: {message.shown}" for message in prompt)
