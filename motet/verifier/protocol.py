"""Requests and responses of the verifier server: the published protocol of reward servers.

    POST /predict  {"query_responses": [[{"role": ..., "content": ...}, ...], ...]}
    ->  {"result": [score, ...]}

Every other response has a status of 400 or above and the body {"error": reason}.
"""

import re
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from motet.core import Chat, Message
from motet.errors import MotetError
from motet.settings import Settings

MOST_CHATS = 1024
"""Maximum number of chats in one request."""
MOST_PARTS = 2**18
"""Maximum number of strings, objects, arrays and commas in one request: about 37,000 messages. A
parser needs far more time and memory for many small values than for long strings.
"""
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[{\[,]', re.DOTALL)
"""Matches in linear time and constant memory, even if a string is cut off."""
WRONG: dict[int, str] = {
    400: "The body is not JSON in UTF-8.",
    401: "The key is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many values.",
    415: "The body is not application/json, or is compressed.",
    422: "The body has the wrong form, or a chat is too long for the verifier or cannot be scored.",
    429: "Too many answers or bytes are waiting: ask again after Retry-After seconds.",
    500: "The server has an internal error.",
    503: "The server is shutting down, could not compute the scores, or was too slow: ask again.",
}
"""Description of every error status."""


class ChatMessage(Settings):
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


def _judgeable(chat: list[ChatMessage]) -> list[ChatMessage]:
    if chat[-1].role != "assistant":
        raise ValueError(
            f"the last message has the role {chat[-1].role}; expected the assistant's answer"
        )
    return chat


class Asked(Settings):
    """Chats to score. Each chat ends with the assistant's answer."""

    query_responses: Annotated[
        list[
            Annotated[
                list[ChatMessage], Field(min_length=2, fail_fast=True), AfterValidator(_judgeable)
            ]
        ],
        Field(min_length=1, max_length=MOST_CHATS, fail_fast=True),
    ]


class Scored(Settings):
    """Scores in the order of the chats."""

    result: list[Annotated[float, Field(ge=0.0, le=1.0)]]
    """Probability that each answer is right."""


class Wrong(Settings):
    """Reason for an error status."""

    error: str


class Health(Settings):
    """The server accepts requests."""

    status: Literal["ok"]


class Served(Settings):
    """Description of the served verifier."""

    name: str
    """Name of the verifier's folder."""
    base: str | None
    """Source of the frozen base model of an adapter. null if all weights are the verifier's own."""
    context_length: int
    """Maximum number of tokens of question and answer together."""
    device: str
    dtype: str
    reads: str
    """How the score is computed from the values: the value at the end of the answer, or the mean or
    the lowest of the values after its lines.
    """
    version: str
    """Version of Motet."""
    facts: dict[str, Any]
    """Information that the verifier's author stored with it."""


class Refusal(MotetError):
    """An error response. `cause` is one word, used as the label of a counter."""

    def __init__(
        self, status: int, cause: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.cause, self.headers = status, cause, headers


def read_chats(body: bytes) -> list[Chat]:
    """Parse the body of a request.

    Raises: Refusal 400 if the body is not JSON, 413 if it has too many values, 422 if it does not
    have the expected fields.
    """
    _check_parts(body)
    try:
        asked = Asked.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        first, more = problems[0], len(problems) - 1
        if first["type"] == "json_invalid":
            raise Refusal(400, "no_json", f"the body is not JSON: {first['msg']}") from error
        where = "".join(
            f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]
        ).lstrip(".")
        others = f" (and {more} more)" if more else ""
        raise Refusal(
            422, "not_expected", f"{where or 'the body'}: {first['msg']}{others}"
        ) from error
    return [
        tuple(Message(said.role, said.content) for said in chat) for chat in asked.query_responses
    ]


def _check_parts(body: bytes) -> None:
    """Refuse a body that would take the parser seconds, because all other requests wait meanwhile.

    Raises: Refusal.
    """
    if next(islice(_PART.finditer(body), MOST_PARTS, None), None) is not None:
        raise Refusal(
            413,
            "too_large",
            f"the body has more than {MOST_PARTS:,} values: ask for fewer answers at a time",
        )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for OpenAPI.

    They are JSON, whatever type a successful response has.
    """
    headers = {401: "WWW-Authenticate", 429: "Retry-After"}
    return {
        status: {
            "description": WRONG[status],
            "content": {"application/json": {"schema": Wrong.model_json_schema()}},
            **(
                {"headers": {headers[status]: {"schema": {"type": "string"}}}}
                if status in headers
                else {}
            ),
        }
        for status in statuses
    }


def documented_body() -> dict[str, Any]:
    """Return the request body of /predict for OpenAPI.

    The route parses the body itself, so that a body that is too large is never kept in memory.
    """
    schema = Asked.model_json_schema()
    said = schema.pop("$defs")["ChatMessage"]
    schema["properties"]["query_responses"]["items"]["items"] = said
    example = {
        "query_responses": [
            [{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]
        ]
    }
    return {
        "required": True,
        "content": {"application/json": {"schema": schema, "example": example}},
    }
