"""What the web applications of all servers have in common."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from motet_serve.http.key import lock
from motet_serve.http.refusals import ErrorBody, Refusal, refuse_in_json
from motet_serve.http.wire import LetGo

if TYPE_CHECKING:
    from fastapi import FastAPI


def create_application(
    title: str,
    version: str,
    errors: Mapping[type[Exception], Callable[[Any], Refusal]],
    error_body: ErrorBody,
    note: Callable[[int, str], None],
    close: Callable[[], Awaitable[None]],
) -> "FastAPI":
    """Create an application without routes, whose errors are JSON (`refuse_in_json`).

    `close` is called at the end.
    """
    from fastapi import FastAPI

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        await close()

    app = FastAPI(
        title=title,
        version=version,
        lifespan=closing,
        docs_url=None,  # these pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_middleware(LetGo)
    refuse_in_json(app, errors, error_body, note)
    return app


def locked_by(key: str | None, documented: Callable[..., dict[Any, Any]]) -> dict[str, Any]:
    """Return the options of a route that needs the key, if there is one.

    `documented` describes the error responses of these statuses.
    """
    from fastapi import Depends

    if key is None:
        return {"responses": documented(500)}
    return {"responses": documented(401, 500), "dependencies": [Depends(lock(key))]}
