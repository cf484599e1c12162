"""The web application that serves a verifier.

Besides /predict it has /health (are requests accepted?), /model (description of the verifier),
/metrics (counters and times) and /openapi.json (the description of all routes).
"""

import asyncio
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

from motet.core import Chat
from motet.errors import RewardFault
from motet_serve.http.application import create_application, locked_by, unless_client_leaves
from motet_serve.http.body import read_body
from motet_serve.http.metrics import ServerMetrics
from motet_serve.http.refusals import Refusal, plain_error
from motet_verifier.model import Verifier
from motet_verifier.protocol import (
    Health,
    Scored,
    Served,
    documented,
    documented_body,
    read_chats,
)
from motet_verifier.queue import Closed, Full, ScoringQueue
from motet_verifier.scorer import VerifierBroken
from motet_verifier.server_settings import VerifierServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI, Request


def create_app(
    verifier: Verifier, name: str, version: str, key: str | None, settings: VerifierServerSettings
) -> "FastAPI":
    """Create the application that serves `verifier` under `name`; `version` is Motet's version.

    If there is a key, /health and /openapi.json can still be read without it.
    """
    metrics = ServerMetrics("motet_verifier_")
    queue = ScoringQueue(verifier, settings, metrics.batch)
    backbone = verifier.critic.backbone
    served = Served(
        name=name,
        base=verifier.base,
        context_length=verifier.context_length,
        device=str(backbone.device),
        dtype=str(backbone.dtype).removeprefix("torch."),
        reads=verifier.reads,
        version=version,
        facts=dict(verifier.facts),
    )

    async def drain() -> None:
        await asyncio.to_thread(queue.close)

    app = create_application("Motet verifier", version, ERRORS, plain_error, metrics.refused, drain)
    locked = locked_by(key, settings, documented)
    _score(app, queue, metrics, settings, locked)
    _tell(app, queue, metrics, served, locked)
    return app


def _score(
    app: "FastAPI",
    queue: ScoringQueue,
    metrics: ServerMetrics,
    settings: VerifierServerSettings,
    locked: dict[str, Any],
) -> None:
    from fastapi import Request

    @app.post(
        "/predict",
        **locked
        | {"responses": locked["responses"] | documented(400, 408, 413, 415, 422, 429, 503)},
        openapi_extra={"requestBody": documented_body()},
    )
    async def predict(request: Request) -> Scored:
        """Score answers. The order is kept. A score does not depend on the other chats."""
        begun = perf_counter()
        try:
            async with asyncio.timeout(settings.request_seconds):
                chats = read_chats(await read_body(request, settings))
                scores = await _scores(queue, chats, request)
        except TimeoutError as error:
            raise Refusal(
                503,
                "late",
                f"the request was not answered within {settings.request_seconds:g} s; try again",
            ) from error
        metrics.answered(len(scores), perf_counter() - begun)
        return Scored(result=scores)


def _tell(
    app: "FastAPI",
    queue: ScoringQueue,
    metrics: ServerMetrics,
    served: Served,
    locked: dict[str, Any],
) -> None:
    from fastapi.responses import PlainTextResponse

    @app.get("/health", responses=documented(500, 503))
    async def health() -> Health:
        """Test whether the server accepts requests."""
        if queue.closed:
            raise Refusal(503, "closed", "the server is shutting down; ask again later")
        return Health(status="ok")

    @app.get("/model", **locked)
    async def model() -> Served:
        """Describe the served verifier."""
        return served

    @app.get("/metrics", **locked, response_class=PlainTextResponse)
    async def figures() -> PlainTextResponse:
        """Return counts and times since the start, for Prometheus."""
        return PlainTextResponse(metrics.text(queue.open), media_type="text/plain; version=0.0.4")


# ---------------------------------------------------------------------------------------- a request


async def _scores(queue: ScoringQueue, chats: Sequence[Chat], request: "Request") -> list[float]:
    """Return the scores. If the client leaves first, cancel the computation."""
    asked = queue.submit(chats)
    scores = asyncio.wrap_future(asked)
    try:
        return await unless_client_leaves(scores, request)
    finally:
        asked.cancel()  # cancel this first: through `scores` the queue would learn of it later
        scores.cancel()


def _fault(fault: RewardFault) -> Refusal:
    status = 503 if isinstance(fault, VerifierBroken) else 422
    return Refusal(status, fault.cause or type(fault).__name__, str(fault))


ERRORS: dict[type[Exception], Callable[[Any], Refusal]] = {
    Full: lambda error: Refusal(429, "full", str(error), {"Retry-After": "1"}),
    Closed: lambda error: Refusal(503, "closed", str(error)),
    RewardFault: _fault,
}
"""What the errors of the queue and of the model become."""
