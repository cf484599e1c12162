"""What an agent hears of the turns before: its own, everyone's, or none of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from motet.core import Chat, Message

History = Literal["own", "joint", "none"]
"""own: an agent's own prompts and replies. joint: and what the others replied. none: the task, its last reply, what is new."""


@dataclass(frozen=True)
class Exchange:
    """One turn as it was: what was new to every agent that acted, and what each replied."""

    asked: Mapping[str, str]
    replies: Mapping[str, str]

    def __post_init__(self) -> None:
        if set(self.asked) != set(self.replies):
            raise ValueError(f"{', '.join(self.asked)} were asked, but {', '.join(self.replies)} replied")


def compose(
    history: History,
    agent: str,
    turns: Sequence[Exchange],
    asked: str,
    *,
    restate_problem: bool | None = None,
    restate_answer: bool | None = None,
) -> Chat:
    """The chat in which `agent` is asked `asked`, after `turns`. It starts with `user`, ends with it, and they alternate.

    What is restated stands again in the new message: the first thing the agent was asked, and its last reply. Unless set, both
    are where nothing else of the past is (none), and neither is where the chat has them anyway (own, joint). A chat of `own` or
    `joint` goes on from the chat of the turn before, message by message.
    """
    restate = tuple(history == "none" if chosen is None else chosen for chosen in (restate_problem, restate_answer))
    messages: list[Message] = []
    heard: list[str] = []
    mine: list[tuple[str, str]] = []
    for turn in turns:
        if agent in turn.asked:
            question, reply = turn.asked[agent], turn.replies[agent]
            messages += [_question(mine, heard, question, *restate), Message("assistant", reply)]
            mine.append((question, reply))
            heard = []
        if history == "joint":
            heard += [_quoted(f"{name} answered:", text) for name, text in turn.replies.items() if name != agent]
    last = _question(mine, heard, asked, *restate)
    return (last,) if history == "none" else (*messages, last)


def flatten(chat: Chat) -> str:
    """The same as raw text, for a base model that knows no roles: what was said, in order, with an empty line between."""
    return "\n\n".join(message.content for message in chat)


def _question(
    mine: Sequence[tuple[str, str]], heard: Sequence[str], asked: str, problem: bool, answer: bool
) -> Message:
    """What an agent is asked after `mine`, its own questions and replies; the first question restates nothing."""
    parts = []
    if mine and problem:
        parts.append(mine[0][0])
    if mine and answer:
        parts.append(_quoted("Your last answer:", mine[-1][1]))
    return Message("user", "\n\n".join([*parts, *heard, asked]))


def _quoted(heading: str, text: str) -> str:
    shown = text.strip("\n") if text.strip() else "(nothing)"
    return f"{heading}\n{shown}"
