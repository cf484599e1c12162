"""Responses with an error status: what they say, and how every exception becomes one."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from motet.errors import MotetError

if TYPE_CHECKING:
    from fastapi import FastAPI, Request

MOST_SAID = 300
"""Maximum number of characters of an error message."""
_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After"}


class Refusal(MotetError):
    """An error response. `cause` is one word, used as the label of a counter.

    `field` is the field of the request that is wrong, if it is a single one.
    """

    def __init__(
        self,
        status: int,
        cause: str,
        message: str,
        headers: dict[str, str] | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.cause, self.headers, self.field = status, cause, headers, field


ErrorBody: TypeAlias = Callable[[Refusal], dict[str, Any]]
"""The JSON body of an error response."""


def plain_error(refusal: Refusal) -> dict[str, Any]:
    """Return {"error": reason}."""
    return {"error": shortened(str(refusal))}


def shortened(said: str) -> str:
    return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]} ..."


def refuse_in_json(
    app: "FastAPI",
    own: Mapping[type[Exception], Callable[[Any], Refusal]],
    error_body: ErrorBody,
    note: Callable[[int, str], None],
) -> None:
    """Turn every exception of a route into an error response.

    `own` says what the errors of this server become. `note` gets the status and the cause.
    """
    from fastapi.responses import JSONResponse
    from starlette.exceptions import HTTPException

    async def refuse(request: "Request", error: Any) -> JSONResponse:
        refusal = _refusal(request, error)
        note(refusal.status, refusal.cause or "")
        return JSONResponse(error_body(refusal), refusal.status, refusal.headers)

    def _refusal(request: "Request", error: Exception) -> Refusal:
        if isinstance(error, Refusal):
            return error
        if isinstance(error, HTTPException):
            what = f"{request.method} {request.url.path}: {error.detail}; see /openapi.json"
            return Refusal(error.status_code, "not_served", what, dict(error.headers or {}))
        for kind, become in own.items():
            if isinstance(error, kind):
                return become(error)
        return internal_error(error)  # the server raises it again, so that it is logged

    kinds: list[type[Exception]] = [Refusal, *own, HTTPException, Exception]
    for kind in kinds:
        app.add_exception_handler(kind, refuse)


def internal_error(error: BaseException) -> Refusal:
    return Refusal(
        500,
        "mistake",
        f"the server has an internal error ({type(error).__name__}): see its log",
    )


def error_responses(
    meanings: Mapping[int, str], schema: dict[str, Any], statuses: Iterable[int]
) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for OpenAPI. `meanings` describes each status.

    They are JSON, whatever type a successful response has.
    """
    return {
        status: {
            "description": meanings[status],
            "content": {"application/json": {"schema": schema}},
            **(
                {"headers": {_HEADERS[status]: {"schema": {"type": "string"}}}}
                if status in _HEADERS
                else {}
            ),
        }
        for status in statuses
    }
