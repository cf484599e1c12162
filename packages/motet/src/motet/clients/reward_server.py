"""A client for verifiers with the protocol of MAPoRL's reward server:

    POST BASE_URL/predict
    request:   {"query_responses": [[{"role": ..., "content": ...}, ...], ...]}
    response:  {"result": [score, ...]}

The server returns one score in [0, 1] for every chat. Every error is a RewardFault, because a
completion without a score is not a wrong one.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import BaseModel, Field

from motet.clients.http_client import EndpointFault, JsonClient
from motet.core import Chat
from motet.errors import RewardFault


class VerifierFault(RewardFault):
    """The verifier returned no scores or invalid ones.

    `said_no` is true if the verifier is available and rejects these particular completions.
    """

    def __init__(self, cause: str, message: str, *, said_no: bool = False) -> None:
        super().__init__(message)
        self.cause = f"verifier_{cause}"
        self.said_no = said_no


class AnswerVerifier(Protocol):
    """Estimates how likely answers are right."""

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """Return a score in [0, 1] for each chat of a question and an answer.

        Raises: RewardFault if there is no score.
        """
        ...


class _Scores(BaseModel):
    result: list[Annotated[float, Field(strict=True, ge=0.0, le=1.0, allow_inf_nan=False)]]


class RewardServer:
    """Requests scores from a server, `batch_size` chats per request."""

    def __init__(self, base_url: str, *, batch_size: int, **settings: Any) -> None:
        """`settings` are keyword arguments of `http_client.JsonClient`."""
        expected = '{"result": [a score in [0, 1] for every chat]}: check the address'
        self._server = JsonClient(f"{base_url.rstrip('/')}/predict", expected, **settings)
        self._batch_size = batch_size

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """Return one score in [0, 1] per chat, in order. The last message of each chat is the
        completion to judge.

        Raises: VerifierFault.
        """
        size = self._batch_size
        batches = [chats[start : start + size] for start in range(0, len(chats), size)]
        try:
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(self._ask(batch)) for batch in batches]
        except ExceptionGroup as faults:
            fault = faults.exceptions[0]
            if not isinstance(fault, EndpointFault):
                raise
            raise VerifierFault(fault.cause, f"verifier: {fault}", said_no=fault.said_no) from fault
        return [score for task in asked for score in task.result()]

    async def _ask(self, chats: Sequence[Chat]) -> list[float]:
        sent = [
            [{"role": message.role, "content": message.content} for message in chat]
            for chat in chats
        ]
        return await self._server.post(
            {"query_responses": sent}, lambda body: self._read(body, len(chats))
        )

    def _read(self, body: bytes, count: int) -> list[float]:
        scores = self._server.parsed(_Scores, body).result
        if len(scores) != count:
            raise self._server.garbled(
                f"{len(scores)} scores for {count} chats: {self._server.shown(body)}"
            )
        return scores


class Ensemble:
    """Combines several verifiers: the mean or the minimum of their scores. It fails if one of them
    fails."""

    def __init__(
        self, verifiers: Sequence[AnswerVerifier], combine: Literal["mean", "minimum"]
    ) -> None:
        self._verifiers, self._combine = verifiers, combine

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """See `RewardServer.score`."""
        said = await asyncio.gather(*(verifier.score(chats) for verifier in self._verifiers))
        rows = zip(*said, strict=True)
        return [min(row) if self._combine == "minimum" else sum(row) / len(row) for row in rows]


class ConstantScores:
    """Gives every completion the same score. `motet check` uses it in place of a server."""

    def __init__(self, score: float) -> None:
        self._score = score

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        return [self._score] * len(chats)
