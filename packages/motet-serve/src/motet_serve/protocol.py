"""Requests and responses of OpenAI's chat API, as far as a team can honour them.

A field that would have no effect is refused, with its name.
"""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from motet.core import Chat, Message
from motet.settings import COLDEST, Settings, check_temperature
from motet_serve.http.json_body import LIST, TEXT, parsed
from motet_serve.http.refusals import Refusal, shortened
from motet_serve.team import TEAM, AgentMessage, AnswerSettings, TeamAnswer, Unanswered

MOST_CHOICES = 16
"""Maximum `n` of a request."""
MOST_NEW_TOKENS = 2**20
WRONG: dict[int, str] = {
    400: "The request is malformed, too long, or has a field that is not supported.",
    401: "The key is missing or wrong.",
    403: "There is no key, and the request names another host than localhost.",
    404: "There is no such model.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many values.",
    415: "The body is not application/json, or is compressed.",
    429: "Too many answers or bytes are waiting: ask again after Retry-After seconds.",
    500: "The server has an internal error.",
    503: "The server is shutting down, could not sample, or was too slow: ask again.",
}
"""Description of every error status."""
CODES: Mapping[str, str] = {
    "key": "invalid_api_key",
    "full": "rate_limit_exceeded",
    "not_served": "unknown_url",
    "not_expected": "invalid_value",
}
"""Cause of a refusal -> the code by which OpenAI's API names it, where they differ."""


class WireSettings(Settings):
    """Fields of a request. A value of another type is refused, not converted."""

    model_config = ConfigDict(strict=True)


HOTTEST_ASKED = 2.0
Zero = Annotated[float, Field(ge=0, le=0)]
Nothing = Annotated[list[Any], Field(max_length=0)]


def _greedy_or_sampled(temperature: float) -> float:
    return temperature if temperature == 0.0 else check_temperature(temperature)


AskedTemperature = Annotated[
    float,
    Field(ge=0, le=HOTTEST_ASKED),
    AfterValidator(_greedy_or_sampled),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": COLDEST, "maximum": HOTTEST_ASKED},
                {"type": "number", "minimum": 0, "maximum": 0},
            ]
        }
    ),
]


def _text_or_list(value: Any) -> str | None:
    return TEXT if isinstance(value, str) else LIST if isinstance(value, list) else None


def _one_or_more(items: str) -> Discriminator:
    return Discriminator(
        _text_or_list,
        custom_error_type="text_or_list",
        custom_error_message=f"Input should be a string or a list of {items}",
    )


class TextContent(WireSettings):
    """A part of a message. Only text is read."""

    type: Literal["text"]
    text: str


class AskedMessage(WireSettings):
    """One message of a request."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[str, Tag(TEXT)] | Annotated[list[TextContent], Tag(LIST)],
        _one_or_more("parts"),
    ]
    name: str | None = None
    # What clients send back of an answer.
    agent_messages: list[dict[str, Any]] | None = None
    """Of an answer of this server. The model does not read it."""
    refusal: None = None
    tool_calls: Nothing | None = None
    function_call: None = None
    annotations: Nothing | None = None
    audio: None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class StreamOptions(WireSettings):
    """Options of a streamed answer."""

    include_usage: bool = False
    """Whether the last chunk has the usage."""


class PlainText(WireSettings):
    """The only response format."""

    type: Literal["text"]


class ChatRequest(WireSettings):
    """A request for answers. Fields that are null are as if they were left out."""

    model: str
    """team, or team/AGENT for one agent."""
    messages: Annotated[list[AskedMessage], Field(min_length=1)]
    """For the team: one message of the user. For an agent: a chat."""
    temperature: AskedTemperature | None = None
    """0 takes the most likely token. Default: that of the training."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)] | None = None
    """Limit of each message of each agent, in tokens."""
    max_completion_tokens: Annotated[int, Field(ge=1, le=MOST_NEW_TOKENS)] | None = None
    """Another name of max_tokens."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    """The same request and seed give the same answer. Default: a random number."""
    stop: (
        Annotated[
            Annotated[str, Field(min_length=1), Tag(TEXT)]
            | Annotated[list[Annotated[str, Field(min_length=1)]], Field(max_length=4), Tag(LIST)],
            _one_or_more("at most 4 strings"),
        ]
        | None
    ) = None
    """Strings that end a message of an agent."""
    n: Annotated[int, Field(ge=1, le=MOST_CHOICES)] | None = None
    """Number of answers."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    show_messages: bool = False
    """Whether an answer has `agent_messages`: what the agents wrote. Not in OpenAI's API."""
    user: str | None = None
    """A label of the client's user. It has no effect on the answer."""
    # Fields that other servers support: only the values that change nothing are accepted.
    presence_penalty: Zero | None = None
    frequency_penalty: Zero | None = None
    logprobs: Literal[False] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    tools: Nothing | None = None
    tool_choice: Literal["none"] | None = None
    response_format: PlainText | None = None
    store: Literal[False] | None = None

    @property
    def settings(self) -> AnswerSettings:
        """The settings of the first answer; a random seed if none is set."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        seed = secrets.randbits(63) if self.seed is None else self.seed
        limit = self.max_tokens or self.max_completion_tokens
        return AnswerSettings(seed, self.temperature, self.top_p, limit, stop)

    @property
    def chat(self) -> Chat:
        return tuple(
            Message("system" if one.role == "developer" else one.role, one.text, one.name)
            for one in self.messages
        )


def read_request(body: bytes, names: Sequence[str]) -> ChatRequest:
    """Parse a request, and check that it asks one of the models `names`.

    Raises: Refusal.
    """
    asked = parsed(ChatRequest, body, wrong_form=400)
    check_model(asked.model, names)
    if asked.max_tokens and asked.max_completion_tokens:
        raise _unsupported("max_completion_tokens", "max_tokens is set as well: set one of them")
    if asked.stream_options is not None and not asked.stream:
        raise _unsupported("stream_options", "stream is not true: set it, or leave this out")
    if asked.model == TEAM and [message.role for message in asked.messages] != ["user"]:
        roles = ", ".join(message.role for message in asked.messages[:8])
        raise _unsupported(
            "messages",
            f"the team answers one question at a time: got messages of {roles}; expected one of "
            "the user, because the environment makes its game of one text: send only the last "
            f"one, or ask {names[1]}, which reads a whole chat",
        )
    return asked


def check_model(name: str, names: Sequence[str]) -> None:
    """Raises: Refusal 404."""
    if name == TEAM and name not in names:
        raise Refusal(
            404,
            "model_not_found",
            "The environment of this team cannot be asked: it does not define chat_task and "
            f"chat_answer; expected one of its agents, {', '.join(names)}",
            field="model",
        )
    if name not in names:
        raise Refusal(
            404,
            "model_not_found",
            f"The model `{name[:100]}` does not exist; expected one of {', '.join(names)}",
            field="model",
        )


def _unsupported(field: str, why: str) -> Refusal:
    return Refusal(400, "unsupported_value", f"{field}: {why}", field=field)


# ------------------------------------------------------------------------------------------- errors


def refusal_of(unanswered: Unanswered) -> Refusal:
    """Say why there is no answer, as OpenAI's API words it."""
    fault = unanswered.fault
    if fault.cause == "long_prompt":
        return Refusal(400, "context_length_exceeded", str(fault.message), field="messages")
    if fault.where == "sampler" and fault.cause in ("bad_prompt", "tokenizer", "not_finite"):
        return Refusal(400, "invalid_prompt", str(fault.message), field="messages")
    return Refusal(503, "no_answer", f"the team could not answer: {fault}")


def openai_error(refusal: Refusal) -> dict[str, Any]:
    """Return the body of an error response."""
    kind = "server_error" if refusal.status >= 500 else "invalid_request_error"
    if refusal.status == 429:
        kind = "rate_limit_error"
    code = CODES.get(refusal.cause, refusal.cause)
    said = {"message": shortened(str(refusal)), "type": kind, "param": refusal.field, "code": code}
    return {"error": said}


ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}


# ---------------------------------------------------------------------------------------- responses


def plain_message(message: AgentMessage) -> dict[str, Any]:
    said: dict[str, Any] = {
        "agent": message.agent,
        "turn": message.turn + 1,
        "content": message.text,
    }
    called = {"calls": list(message.calls)} if message.calls else {}
    return said | _thought(message.thinking) | called


def _thought(thinking: str) -> dict[str, str]:
    """Return thinking as vLLM and others name it; nothing if there is none."""
    return {"reasoning_content": thinking} if thinking else {}


def usage_of(answers: Sequence[TeamAnswer]) -> dict[str, int]:
    """Return the tokens that all agents read and wrote for all answers."""
    read = sum(answer.prompt_tokens for answer in answers)
    written = sum(answer.completion_tokens for answer in answers)
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
    }


def completion_of(
    head: Mapping[str, Any], answers: Sequence[TeamAnswer], shown: bool
) -> dict[str, Any]:
    """Return the response to a request that is not streamed."""
    choices = []
    for index, answer in enumerate(answers):
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        message |= _thought(answer.thinking)
        if shown:
            message["agent_messages"] = [plain_message(one) for one in answer.messages]
        choices.append(
            {"index": index, "message": message, "finish_reason": answer.stop, "logprobs": None}
        )
    return {**head, "object": "chat.completion", "choices": choices, "usage": usage_of(answers)}


def documented_request() -> dict[str, Any]:
    """Return the request body for OpenAPI. The route parses the body itself."""
    schema = json.loads(
        json.dumps(ChatRequest.model_json_schema(ref_template="#/components/schemas/{model}"))
    )
    schema.pop("$defs")
    example = {"model": TEAM, "messages": [{"role": "user", "content": "6 * 7?"}]}
    return {
        "required": True,
        "content": {"application/json": {"schema": schema, "example": example}},
    }


def documented_parts() -> dict[str, Any]:
    """Return the schemas that `documented_request` names."""
    found = ChatRequest.model_json_schema(ref_template="#/components/schemas/{model}")
    return dict(found["$defs"])
