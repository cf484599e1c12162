"""Which earlier turns an agent's prompt contains: its own, those of all agents, or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from motet.core import Chat, Message

History = Literal["own", "joint", "none"]
"""own: the agent's own prompts and replies. joint: also the other agents' replies. none: one
message with the task, the agent's last reply and what is new."""


@dataclass(frozen=True)
class Exchange:
    """One past turn: what was new to each agent that acted, and the agents' replies."""

    asked: Mapping[str, str]
    replies: Mapping[str, str]

    def __post_init__(self) -> None:
        if set(self.asked) != set(self.replies):
            raise ValueError(
                f"got replies of {', '.join(self.replies)}; expected replies of "
                f"{', '.join(self.asked)}, the agents with prompts"
            )


def compose(
    history: History,
    agent: str,
    turns: Sequence[Exchange],
    asked: str,
    *,
    restate_problem: bool | None = None,
    restate_answer: bool | None = None,
) -> Chat:
    """Build the chat in which `agent` is asked `asked` after `turns`.

    The chat starts and ends with a `user` message, and roles alternate.

    `restate_problem` repeats the first question to the agent in the new message;
    `restate_answer` repeats its last reply. If None, both are repeated under history `none`, where
    the prompt contains nothing else of the past. Under `own` and `joint` the chat contains them
    already, so neither is repeated. A chat of `own` or `joint` extends the chat of the turn before,
    message by message.
    """
    restate = tuple(
        history == "none" if chosen is None else chosen
        for chosen in (restate_problem, restate_answer)
    )
    messages: list[Message] = []
    received: list[str] = []
    mine: list[tuple[str, str]] = []
    for turn in turns:
        if agent in turn.asked:
            question, reply = turn.asked[agent], turn.replies[agent]
            messages += [_question(mine, received, question, *restate), Message("assistant", reply)]
            mine.append((question, reply))
            received = []
        if history == "joint":
            received += [
                _quoted(f"{name} answered:", text)
                for name, text in turn.replies.items()
                if name != agent
            ]
    last = _question(mine, received, asked, *restate)
    return (last,) if history == "none" else (*messages, last)


def flatten(chat: Chat) -> str:
    """Join the messages of a chat to a string for a base model without roles. Messages are
    separated by an empty line."""
    return "\n\n".join(message.content for message in chat)


def _question(
    mine: Sequence[tuple[str, str]],
    received: Sequence[str],
    asked: str,
    problem: bool,
    answer: bool,
) -> Message:
    """Build the next question to an agent. `mine` holds its own questions and replies so far. The
    first question restates nothing."""
    parts = []
    if mine and problem:
        parts.append(mine[0][0])
    if mine and answer:
        parts.append(_quoted("Your last answer:", mine[-1][1]))
    return Message("user", "\n\n".join([*parts, *received, asked]))


def _quoted(heading: str, text: str) -> str:
    shown = text.strip("\n") if text.strip() else "(nothing)"
    return f"{heading}\n{shown}"
