"""What the web applications of all servers have in common."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from motet_serve.http.key import lock, only_as_localhost
from motet_serve.http.refusals import ErrorBody, Refusal, internal_error
from motet_serve.http.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request

Awaited = TypeVar("Awaited")


def create_application(
    title: str,
    version: str,
    errors: Mapping[type[Exception], Callable[[Any], Refusal]],
    error_body: ErrorBody,
    note: Callable[[int, str], None],
    close: Callable[[], Awaitable[None]],
) -> "FastAPI":
    """Create an application without routes. Every exception of a route becomes an error response.

    `errors` says what the errors of this server become. `note` gets the status and the cause.
    `close` is called at the end.
    """
    from fastapi import FastAPI
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        await close()

    async def refuse(request: "Request", error: Any) -> JSONResponse:
        refusal = refusal_of(request, error)
        note(refusal.status, refusal.cause)
        return JSONResponse(error_body(refusal), refusal.status, refusal.headers)

    def refusal_of(request: "Request", error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, HTTPException):
            what = f"{request.method} {request.url.path}: {error.detail}; see /openapi.json"
            return Refusal(error.status_code, "not_served", what, dict(error.headers or {}))
        for kind, become in errors.items():
            if isinstance(error, kind):
                return become(error)
        return internal_error(error)  # the server raises it again, so that it is logged

    kinds: list[type[Exception]] = [Refusal, *errors, HTTPException, Exception]
    return FastAPI(
        title=title,
        version=version,
        lifespan=closing,
        exception_handlers=dict.fromkeys(kinds, refuse),
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
    )


def locked_by(
    key: str | None, settings: ServerSettings, documented: Callable[..., dict[Any, Any]]
) -> dict[str, Any]:
    """Return the options of a route that needs the key, if there is one.

    Without a key it answers only as localhost, unless the settings say that it needs none.
    `documented` describes the error responses of these statuses.
    """
    from fastapi import Depends

    if key is not None:
        return {"responses": documented(401, 500), "dependencies": [Depends(lock(key))]}
    if settings.without_key:
        return {"responses": documented(500)}
    return {"responses": documented(403, 500), "dependencies": [Depends(only_as_localhost())]}


async def unless_client_leaves(answer: asyncio.Future[Awaited], request: "Request") -> Awaited:
    """Wait for the answer. The caller cancels it if this raises.

    The request's body must have been read. Raises: Refusal if the client leaves first; what
    `answer` raises.
    """
    left = asyncio.create_task(_left(request))
    either: set[asyncio.Future[Any]] = {answer, left}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refusal(400, "left", "the client closed the connection before its answer")
        return answer.result()
    finally:
        left.cancel()


async def _left(request: "Request") -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
