"""Answers as server-sent events, in the form of OpenAI's API.

An agent's message is sent when it is complete, if the client asks for messages. An answer's text is
sent in pieces when the answer is complete, because a team's answer depends on all of its messages.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet_serve.http.refusals import Refusal
from motet_serve.protocol import openai_error, plain_message, usage_of
from motet_serve.team import AgentMessage, OnMessage, TeamAnswer

PIECE = re.compile(r"\S*\s+|\S+$")
"""A word with the spaces behind it."""
DONE = b"data: [DONE]\n\n"
Answering: TypeAlias = Callable[[int, OnMessage], Awaitable[TeamAnswer]]
"""Gives the answer number `index`, and passes on the messages that lead to it."""


@dataclass(frozen=True)
class _Event:
    """What happened to the answer number `index`."""

    index: int
    what: AgentMessage | TeamAnswer | Refusal


class AnswerStream:
    """The events of `count` answers that are computed at the same time."""

    def __init__(
        self,
        answering: Answering,
        count: int,
        refuse: Callable[[Exception], Refusal],
        finished: Callable[[Sequence[TeamAnswer] | Refusal], None],
    ) -> None:
        """`refuse` says what an error becomes. `finished` gets the answers, or the first error."""
        self._answering, self._count, self._refuse = answering, count, refuse
        self._finished = finished
        self._events: asyncio.Queue[_Event] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._answer(index)) for index in range(count)]
        self._first: _Event | None = None

    async def begin(self) -> None:
        """Wait for the first event, so that an error before it has a status of its own.

        The caller closes the stream if this raises. Raises: Refusal.
        """
        self._first = await self._events.get()
        if isinstance(self._first.what, Refusal):
            raise self._first.what

    async def chunks(
        self, head: Mapping[str, Any], shown: bool, usage: bool
    ) -> AsyncIterator[bytes]:
        """Yield the events. `usage` adds a last chunk with the counts of tokens."""
        more: dict[str, Any] = {"usage": None} if usage else {}
        head = {**head, "object": "chat.completion.chunk"}

        def chunk(index: int, delta: dict[str, Any], reason: str | None = None) -> bytes:
            choice = {"index": index, "delta": delta, "finish_reason": reason, "logprobs": None}
            return _sent({**head, "choices": [choice], **more})

        answers: dict[int, TeamAnswer] = {}
        try:
            for index in range(self._count):
                yield chunk(index, {"role": "assistant", "content": ""})
            event = self._first
            while len(answers) < self._count:
                event = event or await self._events.get()
                index, what, event = event.index, event.what, None
                if isinstance(what, Refusal):
                    self._finished(what)
                    yield _sent(openai_error(what))
                    return
                if isinstance(what, AgentMessage):
                    if shown:
                        yield chunk(index, {"agent_messages": [plain_message(what)]})
                    continue
                answers[index] = what
                if what.thinking:
                    yield chunk(index, {"reasoning_content": what.thinking})
                for piece in PIECE.findall(what.text):
                    yield chunk(index, {"content": piece})
                yield chunk(index, {}, what.stop)
            whole = [answers[index] for index in range(self._count)]
            self._finished(whole)
            if usage:
                yield _sent({**head, "choices": [], "usage": usage_of(whole)})
            yield DONE
        finally:
            self.close()

    def close(self) -> None:
        """Cancel what is not answered."""
        for task in self._tasks:
            task.cancel()

    async def _answer(self, index: int) -> None:
        def told(message: AgentMessage) -> None:
            self._events.put_nowait(_Event(index, message))

        try:
            answer: TeamAnswer | Refusal = await self._answering(index, told)
        except Exception as error:  # noqa: BLE001 it becomes a response
            answer = self._refuse(error)
        self._events.put_nowait(_Event(index, answer))


def _sent(value: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
