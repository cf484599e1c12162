"""Responses with an error status, and what they say."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from motet.errors import MotetError

MOST_SAID = 300
"""Maximum number of characters of an error message."""
_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After"}


class Refusal(MotetError):
    """An error response. `cause` is one word, used as the label of a counter.

    `field` is the field of the request that is wrong, if it is a single one.
    """

    cause: str

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
