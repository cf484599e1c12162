"""Requests and responses of the verifier server: the published protocol of reward servers.

    POST /predict  {"query_responses": [[{"role": ..., "content": ...}, ...], ...]}
    ->  {"result": [score, ...]}

Every other response has a status of 400 or above and the body {"error": reason}.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from motet.core import Chat, Message
from motet.settings import Settings
from motet_serve.http.json_body import parsed
from motet_serve.http.refusals import error_responses

MOST_CHATS = 1024
"""Maximum number of chats in one request."""
WRONG: dict[int, str] = {
    400: "The body is not JSON in UTF-8.",
    401: "The key is missing or wrong.",
    403: "There is no key, and the request names another host than localhost.",
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


def read_chats(body: bytes) -> list[Chat]:
    """Parse the body of a request.

    Raises: Refusal 400 if the body is not JSON, 413 if it has too many values, 422 if it does not
    have the expected fields.
    """
    asked = parsed(Asked, body, wrong_form=422)
    return [
        tuple(Message(said.role, said.content) for said in chat) for chat in asked.query_responses
    ]


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route for OpenAPI."""
    return error_responses(WRONG, Wrong.model_json_schema(), statuses)


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
