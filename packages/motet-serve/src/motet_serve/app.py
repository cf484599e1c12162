"""The web application that serves a team in the form of OpenAI's chat API.

/v1/chat/completions answers, /v1/models lists the team and its agents. /health says whether
requests are accepted, /metrics has counts and times, /openapi.json describes all routes.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from motet.core.seeding import derive
from motet.errors import ConfigError, EnginesLost, MotetError
from motet_serve.http.application import create_application, locked_by, unless_client_leaves
from motet_serve.http.body import read_body
from motet_serve.http.metrics import ServerMetrics
from motet_serve.http.refusals import Refusal, error_responses, internal_error
from motet_serve.protocol import (
    ERROR_SCHEMA,
    WRONG,
    ChatRequest,
    check_model,
    completion_of,
    documented_parts,
    documented_request,
    openai_error,
    read_request,
    refusal_of,
)
from motet_serve.settings import TeamServerSettings
from motet_serve.stream import AnswerStream
from motet_serve.team import TEAM, ChatTeam, OnMessage, TeamAnswer, Unanswered

if TYPE_CHECKING:
    from fastapi import FastAPI, Request
    from starlette.responses import Response

OWNER = "motet"
log = logging.getLogger(__name__)


class _Desk:
    """Answers the requests of one application, within the limits of its settings."""

    def __init__(
        self, team: ChatTeam, settings: TeamServerSettings, metrics: ServerMetrics
    ) -> None:
        self.team, self.settings, self.metrics = team, settings, metrics
        self.open, self.closed = 0, False
        self.lost: EnginesLost | None = None
        """Why some agents will never answer again."""

    def enter(self, count: int) -> None:
        """Reserve places for `count` answers. Raises: Refusal if there are not so many."""
        if self.closed:
            raise Refusal(503, "closed", "the server is shutting down and accepts no more requests")
        if self.open and self.open + count > self.settings.max_queue:
            why = f"{self.open} answers are open, and at most {self.settings.max_queue} may be"
            raise Refusal(429, "full", f"{why}; ask again later", {"Retry-After": "1"})
        self.open += count

    def leave(self, count: int) -> None:
        self.open -= count

    async def answer(self, asked: ChatRequest, index: int, told: OnMessage) -> TeamAnswer:
        """Return answer number `index` of a request. Each has a seed of its own."""
        first = asked.settings
        seed = first.seed if index == 0 else derive(first.seed, "choice", index)
        settings = replace(first, seed=seed)
        async with asyncio.timeout(self.settings.request_seconds):
            if asked.model == TEAM:
                return await self.team.ask(asked.messages[0].text, settings, told)
            agent = asked.model.removeprefix(f"{TEAM}/")
            return await self.team.ask_agent(agent, asked.chat, settings, told)

    def refuse(self, error: Exception) -> Refusal:
        """Say what an error of `answer` becomes."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, EnginesLost):
            self.lost = error
        for kind, become in ERRORS.items():
            if isinstance(error, kind):
                return become(error)
        if isinstance(error, TimeoutError):
            seconds = self.settings.request_seconds
            said = f"the request was not answered within {seconds:g} s; try again"
            return Refusal(503, "late", said)
        log.error("the server has an internal error", exc_info=error)
        return internal_error(error)


ERRORS: dict[type[Exception], Callable[[Any], Refusal]] = {
    Unanswered: refusal_of,
    ConfigError: lambda error: Refusal(400, "invalid_value", str(error), field="messages"),
    MotetError: lambda error: Refusal(503, "no_answer", f"the team could not answer: {error}"),
}
"""What the errors of a team become. ConfigError: the environment cannot read the text."""


def create_app(
    team: ChatTeam,
    version: str,
    key: str | None,
    settings: TeamServerSettings,
    metrics: ServerMetrics,
) -> "FastAPI":
    """Create the application that serves `team`; `version` is Motet's version.

    If there is a key, /health and /openapi.json can still be read without it.
    """
    desk = _Desk(team, settings, metrics)

    async def close() -> None:
        desk.closed = True

    app = create_application("Motet team", version, ERRORS, openai_error, metrics.refused, close)
    locked = locked_by(key, settings, documented)
    _complete(app, desk, locked)
    _tell(app, desk, locked)
    _describe_request(app)
    return app


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return error_responses(WRONG, ERROR_SCHEMA, statuses)


def _complete(app: "FastAPI", desk: _Desk, locked: dict[str, Any]) -> None:
    from fastapi import Request
    from starlette.responses import JSONResponse, Response

    statuses = documented(400, 404, 408, 413, 415, 429, 503)

    @app.post(
        "/v1/chat/completions",
        **locked | {"responses": locked["responses"] | statuses},
        openapi_extra={"requestBody": documented_request()},
        response_class=JSONResponse,
    )
    async def complete(request: Request) -> Response:
        """Answer a question with the whole team, or a chat with one agent."""
        begun = perf_counter()
        asked = read_request(await read_body(request, desk.settings), desk.team.names)
        count = asked.n or 1
        # A random seed is drawn once, so that all answers follow from it.
        asked = asked.model_copy(update={"seed": asked.settings.seed})
        desk.enter(count)
        head = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": asked.model,
            "system_fingerprint": None,
        }
        if asked.stream:
            return await _streamed(desk, asked, request, head, begun)
        try:
            answers = await _answers(desk, asked, request)
        finally:
            desk.leave(count)
        desk.metrics.answered(count, perf_counter() - begun)
        return JSONResponse(completion_of(head, answers, asked.show_messages))


async def _answers(desk: _Desk, asked: ChatRequest, request: "Request") -> Sequence[TeamAnswer]:
    """Return all answers. If the client leaves, or one fails, cancel the others."""
    work = [
        asyncio.ensure_future(desk.answer(asked, index, lambda message: None))
        for index in range(asked.n or 1)
    ]
    together = asyncio.gather(*work)
    # Nobody waits for it after the client left, and asyncio would log its cancellation.
    together.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        return await unless_client_leaves(together, request)
    except Refusal:
        raise
    except Exception as error:
        raise desk.refuse(error) from error
    finally:
        together.cancel()
        for one in work:
            one.cancel()


async def _streamed(
    desk: _Desk, asked: ChatRequest, request: "Request", head: dict[str, Any], begun: float
) -> "Response":
    from starlette.responses import StreamingResponse

    count, options = asked.n or 1, asked.stream_options

    def finished(what: Sequence[TeamAnswer] | Refusal) -> None:
        if isinstance(what, Refusal):
            desk.metrics.refused(what.status, what.cause)
        else:
            desk.metrics.answered(count, perf_counter() - begun)

    stream = AnswerStream(
        lambda index, told: desk.answer(asked, index, told), count, desk.refuse, finished
    )
    first = asyncio.create_task(stream.begin())
    try:
        await unless_client_leaves(first, request)
    except BaseException:
        first.cancel()
        stream.close()
        desk.leave(count)
        raise

    class Streamed(StreamingResponse):
        async def __call__(self, *call: Any) -> None:
            try:
                await super().__call__(*call)
            finally:  # also if the client left before the first chunk
                stream.close()
                desk.leave(count)

    usage = options is not None and options.include_usage
    chunks = stream.chunks(head, asked.show_messages, usage)
    headers = {"Cache-Control": "no-cache"}
    return Streamed(chunks, media_type="text/event-stream", headers=headers)


def _tell(app: "FastAPI", desk: _Desk, locked: dict[str, Any]) -> None:
    from fastapi.responses import PlainTextResponse

    created = int(time.time())
    models = [
        {"id": name, "object": "model", "created": created, "owned_by": OWNER}
        for name in desk.team.names
    ]

    @app.get("/health", responses=documented(500, 503))
    async def health() -> dict[str, str]:
        """Test whether the server accepts requests, and whether all agents can answer."""
        if desk.closed:
            raise Refusal(503, "closed", "the server is shutting down; ask again later")
        if desk.lost is not None:
            raise Refusal(503, "lost", f"start the server again: {desk.lost}")
        return {"status": "ok"}

    @app.get("/v1/models", **locked)
    async def list_models() -> dict[str, Any]:
        """List the team and its agents."""
        return {"object": "list", "data": models}

    @app.get(
        "/v1/models/{name:path}", **locked | {"responses": locked["responses"] | documented(404)}
    )
    async def one_model(name: str) -> dict[str, Any]:
        """Describe the team or one agent."""
        check_model(name, desk.team.names)
        return next(model for model in models if model["id"] == name)

    @app.get("/metrics", **locked, response_class=PlainTextResponse)
    async def figures() -> PlainTextResponse:
        """Return counts and times since the start, for Prometheus."""
        text = desk.metrics.text(desk.open)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def _describe_request(app: "FastAPI") -> None:
    """Add the parts of the request's schema, which the route parses itself, to /openapi.json."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        schema = described()
        parts = schema.setdefault("components", {}).setdefault("schemas", {})
        parts.update(documented_parts())
        return schema

    app.openapi = openapi  # type: ignore[method-assign]
