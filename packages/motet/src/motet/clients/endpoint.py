"""A client for chat endpoints with the OpenAI protocol.

The server is a hosted model, or a local vLLM, llama.cpp, Ollama or similar.

    endpoint = Endpoint("http://localhost:8000/v1", "qwen3-coder",
                        timeout_seconds=60, retries=3, concurrency=8, jitter=draw)
    text = await endpoint.ask((Message("user", "..."),))

Each request is one `POST BASE_URL/chat/completions`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from motet.clients.http_client import JsonClient
from motet.core import Chat, Message, StopReason, ToolCall, Usage
from motet.core.tools import MOST_CALLS, call_of


class _Function(BaseModel):
    name: str
    arguments: str = ""


class _ToolCall(BaseModel):
    function: _Function


class _Message(BaseModel):
    content: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: Any = None


class _ChatCompletion(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]
    usage: Any = None


_Count = Annotated[NonNegativeInt, Field(strict=True, lt=1 << 53)]


class _Usage(BaseModel):
    prompt_tokens: _Count
    completion_tokens: _Count


@dataclass(frozen=True)
class ChatAnswer:
    """The answer of a server: its text, why it ended, and the tokens that the server counted."""

    text: str
    stop: StopReason
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    unread: str = ""
    """These two as in a Reply."""


class Endpoint:
    """A chat model behind a URL."""

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """Create an endpoint.

        Args:
            parameters: more fields of the request, such as temperature. None: the field is not
                sent.
            settings: keyword arguments of `JsonClient`.
        """
        expected = "a chat completion: check the address and the model"
        self.server = JsonClient(f"{base_url.rstrip('/')}/chat/completions", expected, **settings)
        self._parameters = {**(parameters or {}), "model": model}

    async def ask(self, messages: Chat) -> str:
        """Return the model's completion, which is never empty. Raises: EndpointFault."""
        return (await self.server.post(self.request(messages), self._read_text)).text

    def request(self, messages: Chat, usual: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the request that asks for a completion, as plain JSON.

        `usual`: its fields, unless `parameters` sets them.
        """
        offered = [tool.function for message in messages for tool in message.tools]
        said = {
            **(usual or {}),
            "tools": offered or None,
            **self._parameters,
            "messages": [_row(message) for message in messages],
        }
        return {name: value for name, value in said.items() if value is not None}

    async def answer(self, request: Mapping[str, Any]) -> ChatAnswer:
        """Return the answer to a request, whose text may be empty. Raises: EndpointFault."""
        return await self.server.post(request, self._read)

    def _read_text(self, body: bytes) -> ChatAnswer:
        answer = self._read(body)
        if not answer.text.strip():
            raise self.server.garbled(f"a message without text: {self.server.shown(body)}")
        return answer

    def _read(self, body: bytes) -> ChatAnswer:
        completion = self.server.parsed(_ChatCompletion, body)
        choice = completion.choices[0]
        given = [
            call_of(
                self.server.without_key(one.function.name),
                self.server.without_key(one.function.arguments),
            )
            for one in choice.message.tool_calls or ()
        ]
        if choice.message.content is None and not given:
            shown = self.server.shown(body)
            raise self.server.garbled(f"choices.0.message.content null, and no call: {shown}")
        # completions are written to files
        text = self.server.without_key(choice.message.content or "")
        stop: StopReason = "length" if choice.finish_reason == "length" else "stop"
        unread = next((one for one in given if isinstance(one, str)), "")
        calls = tuple(one for one in given if isinstance(one, ToolCall))
        if len(calls) > MOST_CALLS:
            unread = f"it has {len(calls)} calls; expected at most {MOST_CALLS}"
        return ChatAnswer(text, stop, _counted(completion.usage), () if unread else calls, unread)


def _row(message: Message) -> dict[str, Any]:
    """Return a message as OpenAI's API has it."""
    said = {
        "name": message.name if message.role != "tool" else None,
        "tool_calls": [call.row(as_text=True) for call in message.calls] or None,
        "tool_call_id": message.call_id or None,
    }
    given = {key: value for key, value in said.items() if value}
    return {"role": message.role, "content": message.content, **given}


def _counted(said: Any) -> Usage:
    """Return the tokens that a server says it counted; none of them if it does not."""
    try:
        found = _Usage.model_validate(said)
    except ValidationError:
        return Usage()
    return Usage(found.prompt_tokens, found.completion_tokens)
