"""What the Minecraft environments share: options, the state, and the prompts of later turns.

Every turn starts with an empty world, and every turn is scored.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, NonNegativeInt

from motet.core import Prompt, Transition
from motet.environments.history import Exchange, History, compose, flatten
from motet.settings import Settings
from motet_tasks.rewards.buildings import BuildScore
from motet_tasks.rewards.minecraft import Orders, Position
from motet_tasks.scaling import Scaling


class BuildFeedback(Settings):
    """What agents are told between turns."""

    limit: NonNegativeInt = 0
    """position_modification and rect_modification list at most this many corrections. 0: all."""
    restate_problem: bool | None = None
    """Whether later prompts repeat the task. If unset, only under history: none, where the prompt
    would not contain it otherwise."""
    restate_answer: bool = False
    """Whether later prompts repeat the agent's last commands."""


class BuildOptions(Settings):
    """The options that the Minecraft environments share."""

    builders: Literal[1, 2] = 2
    """Number of agents: `builder1` and `builder2`, or a single `builder1`."""
    prompts: Literal["chat", "raw"] = "chat"
    """chat: instructions, for instruction-tuned models. raw: the target and the agent's name, for
    small models that are warmed up."""
    max_commands: int = Field(600, ge=1, le=1000)
    """Commands per turn of all agents together. Each may give its part; `builder1` also gets the
    rest."""
    history: History = "none"
    """The past turns in an agent's prompt. own: its own. joint: those of all agents. none: only
    what `feedback` says."""
    reward: Scaling = Scaling()
    """Maps levels to rewards."""
    stop_when_solved: bool = True
    """Whether an episode ends when the build is perfect."""

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(f"builder{number}" for number in range(1, self.builders + 1))

    @property
    def most_commands(self) -> dict[str, int]:
        """Agent -> its part of `max_commands`."""
        part, rest = divmod(self.max_commands, self.builders)
        return {agent: max(1, part) + (rest if agent == "builder1" else 0) for agent in self.agents}


@dataclass(frozen=True)
class BuildState:
    """The state: the task, what is new to each agent now, and the past turns."""

    fields: Mapping[str, Any]
    asked: Mapping[str, str]
    turns: tuple[Exchange, ...] = ()


def prompts_of(
    state: BuildState, options: BuildOptions, feedback: BuildFeedback
) -> dict[str, Prompt]:
    """Return the prompt of every agent."""
    chats = {
        agent: compose(
            options.history,
            agent,
            state.turns,
            new,
            restate_problem=feedback.restate_problem,
            restate_answer=feedback.restate_answer,
        )
        for agent, new in state.asked.items()
    }
    if options.prompts == "chat":
        return dict(chats)
    return {agent: flatten(chat) for agent, chat in chats.items()}


def paid(
    state: BuildState, options: BuildOptions, score: BuildScore, rejected: int, turns: int
) -> Transition:
    """Return the transition to `state`, whose last turn has this score. All agents get the same
    reward."""
    over = (options.stop_when_solved and score.success) or len(state.turns) >= turns
    metrics = {**score.terms, "rejected": float(rejected), "levels": score.levels}
    rewards = dict.fromkeys(options.agents, options.reward.reward(score.levels))
    return Transition(state, rewards, over, metrics, success=score.success)


# ------------------------------------------------------------ words


def team_of(agent: str, builders: int, what: str) -> str:
    """Return who the agent is, and what its team builds."""
    if builders == 1:
        return f"You build {what} in Minecraft."
    parts = [
        f"You are {agent} in a team of two in Minecraft. Together you build {what}. You place some "
        "of the blocks, the other agent places the others.",
        "Your commands run after the other agent's, and replace its blocks where both place one."
        if agent == "builder2"
        else "",
    ]
    return " ".join(part for part in parts if part)


def score_told(score: BuildScore) -> str:
    return f"Your last build scored {score.levels:.4f}."


def listed(title: str, items: Iterable[str]) -> str:
    """Return a titled list, one item per line."""
    return "\n".join([title, *([f"- {item}" for item in items] or ["- (none)"])])


def at(position: Position, block: str = "") -> str:
    """Return a position in words, with its block if there is one."""
    place = f"({', '.join(map(str, position))})"
    return f"{place} = {block}" if block else place


def accepted(orders: Orders) -> str:
    return listed("Your accepted commands of the last turn:", orders.commands)


def joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part)


AGAIN = "The world is empty again: give all commands of your part, one per line and nothing else."
"""The last line of all feedback."""
