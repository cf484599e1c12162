"""What a verifier's server is asked and what it answers: the published protocol of reward servers.

    POST /predict  {"query_responses": [[{"role": ..., "content": ...}, ...], ...]}  ->  {"result": [score, ...]}

Every other answer is a status from 400 on with {"error": why}.
"""

import re
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from motet.core import Chat, Message
from motet.errors import MotetError
from motet.settings import Settings

MOST_CHATS = 1024
"""Chats in one request."""
MOST_PARTS = 2**18
"""Strings, objects, arrays and commas in one request: about 37,000 messages. A parser needs far
more time and memory for many small values than for long texts."""
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[{\[,]', re.DOTALL)
"""In linear time and constant memory, also where a string is cut off."""
WRONG: dict[int, str] = {
    400: "The body is no JSON in UTF-8.",
    401: "No key, or a wrong one.",
    408: "The body did not come in time.",
    413: "The body is too large, or has too many values.",
    415: "The body is not application/json, or is packed.",
    422: "Not what is expected, longer than the verifier's context, or nothing that it can score.",
    429: "Too many answers or bytes are open: ask again after Retry-After seconds.",
    500: "The server has a mistake.",
    503: "The server is about to end, could not compute, or did not come to it in time: ask again.",
}
"""What every status means that comes with an error."""


class Said(Settings):
    """One message."""

    role: Literal["system", "user", "assistant"]
    content: str


def _judgeable(chat: list[Said]) -> list[Said]:
    if chat[-1].role != "assistant":
        raise ValueError(f"the last message is the {chat[-1].role}'s; expected the assistant's answer, which is judged")
    return chat


class Asked(Settings):
    """Chats, each of which ends with the assistant's answer."""

    query_responses: Annotated[
        list[Annotated[list[Said], Field(min_length=2, fail_fast=True), AfterValidator(_judgeable)]],
        Field(min_length=1, max_length=MOST_CHATS, fail_fast=True),
    ]


class Scored(Settings):
    """The scores, in the order of the chats."""

    result: list[Annotated[float, Field(ge=0.0, le=1.0)]]
    """How likely each answer is right."""


class Wrong(Settings):
    """Why there is nothing else."""

    error: str


class Health(Settings):
    """Requests are taken."""

    status: Literal["ok"]


class Served(Settings):
    """What is served."""

    name: str
    """The name of its folder."""
    base: str | None
    """Where the frozen base of an adapter came from; null where all weights are the verifier's own."""
    context_length: int
    """Tokens of question and answer together."""
    device: str
    dtype: str
    reads: str
    """What of an answer is its score: the value at its end, or the mean or the lowest of those after its lines."""
    version: str
    """Motet's."""
    facts: dict[str, Any]
    """What its maker says of it."""


class Refusal(MotetError):
    """An answer that says no; `cause` is one word to count it by."""

    def __init__(self, status: int, cause: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.cause, self.headers = status, cause, headers


def read_chats(body: bytes) -> list[Chat]:
    """Raises: Refusal of 400 for what is no JSON, of 413 for too many values, of 422 for what is
    another than asked for."""
    _check_parts(body)
    try:
        asked = Asked.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        first, more = problems[0], len(problems) - 1
        if first["type"] == "json_invalid":
            raise Refusal(400, "no_json", f"the body is no JSON: {first['msg']}") from error
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        others = f" (and {more} more)" if more else ""
        raise Refusal(422, "not_expected", f"{where or 'the body'}: {first['msg']}{others}") from error
    return [tuple(Message(said.role, said.content) for said in chat) for chat in asked.query_responses]


def _check_parts(body: bytes) -> None:
    """All other requests wait while the parser works, so what would take it seconds is refused
    before. Raises: Refusal."""
    if next(islice(_PART.finditer(body), MOST_PARTS, None), None) is not None:
        raise Refusal(
            413, "too_large", f"the body has more than {MOST_PARTS:,} values: ask for fewer answers at a time"
        )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Refusals of a route, for OpenAPI: they are JSON, whatever the route itself answers with."""
    headers = {401: "WWW-Authenticate", 429: "Retry-After"}
    return {
        status: {
            "description": WRONG[status],
            "content": {"application/json": {"schema": Wrong.model_json_schema()}},
            **({"headers": {headers[status]: {"schema": {"type": "string"}}}} if status in headers else {}),
        }
        for status in statuses
    }


def documented_body() -> dict[str, Any]:
    """What /predict reads, for OpenAPI: it reads by hand, so that a body that is too large is never held."""
    schema = Asked.model_json_schema()
    said = schema.pop("$defs")["Said"]
    schema["properties"]["query_responses"]["items"]["items"] = said
    example = {"query_responses": [[{"role": "user", "content": "6 * 7?"}, {"role": "assistant", "content": "42"}]]}
    return {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}
