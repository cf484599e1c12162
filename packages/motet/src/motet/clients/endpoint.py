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
from motet.core import Chat, StopReason, Usage


class _Message(BaseModel):
    content: str


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
        sent = [
            {"role": message.role, "content": message.content}
            | ({"name": message.name} if message.name else {})
            for message in messages
        ]
        said = {**(usual or {}), **self._parameters, "messages": sent}
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
        text = self.server.without_key(choice.message.content)  # completions are written to files
        stop: StopReason = "length" if choice.finish_reason == "length" else "stop"
        return ChatAnswer(text, stop, _counted(completion.usage))


def _counted(said: Any) -> Usage:
    """Return the tokens that a server says it counted; none of them if it does not."""
    try:
        found = _Usage.model_validate(said)
    except ValidationError:
        return Usage()
    return Usage(found.prompt_tokens, found.completion_tokens)
