"""The web application that serves a verifier.

Besides /predict it has /health (are requests accepted?), /model (description of the verifier),
/metrics (counters and times) and /openapi.json (the description of all routes).
"""

import asyncio
import hmac
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from motet.core import Chat
from motet.errors import RewardFault
from motet.verifier.bodies import Bodies
from motet.verifier.limits import ScoringLimits
from motet.verifier.metrics import ServerMetrics
from motet.verifier.model import Verifier
from motet.verifier.protocol import (
    Health,
    Refusal,
    Scored,
    Served,
    documented,
    documented_body,
    read_chats,
)
from motet.verifier.queue import Closed, Full, ScoringQueue
from motet.verifier.scorer import VerifierBroken
from motet.verifier.wire import LetGo, check_head

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

MOST_SAID = 300
"""Maximum number of characters of an error message."""


def create_app(
    verifier: Verifier, name: str, version: str, *, key: str | None, limits: ScoringLimits
) -> "FastAPI":
    """Create the application that serves `verifier` under `name`; `version` is Motet's version.

    If there is a key, /health and /openapi.json can still be read without it.
    """
    from fastapi import Depends, FastAPI

    metrics = ServerMetrics()
    queue = ScoringQueue(verifier, limits, metrics.batch)
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

    @asynccontextmanager
    async def drained(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(queue.close)

    app = FastAPI(
        title="Motet verifier",
        version=version,
        lifespan=drained,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
    )
    locked: dict[str, Any] = {"responses": documented(500)}
    if key is not None:
        locked = {"responses": documented(401, 500), "dependencies": [Depends(_lock(key))]}
    app.add_middleware(LetGo)
    _refuse_in_json(app, metrics)
    _score(app, queue, metrics, limits, locked)
    _tell(app, queue, metrics, served, locked)
    return app


def _score(
    app: "FastAPI",
    queue: ScoringQueue,
    metrics: ServerMetrics,
    limits: ScoringLimits,
    locked: dict[str, Any],
) -> None:
    from fastapi import Request

    bodies = Bodies(limits)

    @app.post(
        "/predict",
        **locked
        | {"responses": locked["responses"] | documented(400, 408, 413, 415, 422, 429, 503)},
        openapi_extra={"requestBody": documented_body()},
    )
    async def predict(request: Request) -> Scored:
        """Score answers. The order is kept. A score does not depend on the other chats."""
        begun = perf_counter()
        check_head(request, limits.max_body_bytes)
        try:
            async with asyncio.timeout(limits.request_seconds), bodies.read(request) as body:
                scores = await _scores(queue, read_chats(body), request)
        except TimeoutError as error:
            raise Refusal(
                503,
                "late",
                f"the request was not answered within {limits.request_seconds:g} s; try again",
            ) from error
        metrics.scored(len(scores), perf_counter() - begun)
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
    left = asyncio.create_task(_left(request))
    either: set[asyncio.Future[Any]] = {scores, left}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not scores.done():
            raise Refusal(400, "left", "the client closed the connection before its answer")
        return scores.result()
    finally:
        asked.cancel()  # cancel this first: through `scores` the queue would learn of it later
        scores.cancel()
        left.cancel()


async def _left(request: "Request") -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _lock(key: str) -> Callable[..., Any]:
    """Return a dependency that accepts requests with the right key.

    The comparison takes the same time however many characters of a key are right.
    """
    from fastapi import Security
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

    async def let_in(
        given: Annotated[
            HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False))
        ],
    ) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode(), key.encode()):
            what = "the request has no key" if given is None else "the key is wrong"
            expected = "expected the header Authorization: Bearer KEY"
            raise Refusal(401, "key", f"{what}; {expected}", {"WWW-Authenticate": "Bearer"})

    return let_in


# ------------------------------------------------------------------------------------------- errors


def _refuse_in_json(app: "FastAPI", metrics: ServerMetrics) -> None:
    """Turn every exception into a status with {"error": ...}, and count it."""
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

    async def refuse(request: "Request", error: Any) -> JSONResponse:
        refusal = _refusal(request, error)
        metrics.refused(refusal.status, refusal.cause or "")
        said = str(refusal)
        shown = said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]} ..."
        return JSONResponse({"error": shown}, refusal.status, refusal.headers)

    def _refusal(request: "Request", error: Exception) -> Refusal:
        match error:
            case Refusal():
                return error
            case Full():
                return Refusal(429, "full", str(error), {"Retry-After": "1"})
            case Closed():
                return Refusal(503, "closed", str(error))
            case RewardFault():
                status = 503 if isinstance(error, VerifierBroken) else 422
                return Refusal(status, error.cause or type(error).__name__, str(error))
            case HTTPException():
                what = f"{request.method} {request.url.path}: {error.detail}; see /openapi.json"
                return Refusal(error.status_code, "not_served", what, dict(error.headers or {}))
            case _:  # the server raises it again, so that it is logged
                return Refusal(
                    500,
                    "mistake",
                    f"the server has an internal error ({type(error).__name__}): see its log",
                )

    for kind in (Refusal, Full, Closed, RewardFault, HTTPException, Exception):
        app.add_exception_handler(kind, refuse)
