"""A client for chat endpoints with the OpenAI protocol.

The server is a hosted model, or a local vLLM, llama.cpp, Ollama or similar.

    endpoint = Endpoint("http://localhost:8000/v1", "qwen3-coder",
                        timeout_seconds=60, retries=3, concurrency=8, jitter=draw)
    text = await endpoint.ask((Message("user", "..."),))

Each request is one `POST BASE_URL/chat/completions`.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field

from motet.clients.http_client import JsonClient
from motet.core import Chat, Reply


class _Message(BaseModel):
    content: str


class _Choice(BaseModel):
    message: _Message
    finish_reason: Any = None


class _ChatCompletion(BaseModel):
    choices: Annotated[list[_Choice], Field(min_length=1)]


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
            parameters: more fields of the request, such as temperature.
            settings: keyword arguments of `JsonClient`.
        """
        expected = "a chat completion: check the address and the model"
        self.server = JsonClient(f"{base_url.rstrip('/')}/chat/completions", expected, **settings)
        self._parameters = {**(parameters or {}), "model": model}

    async def ask(self, messages: Chat) -> str:
        """Return the model's completion, which is never empty. Raises: EndpointFault."""
        return (await self.reply(messages)).text

    async def reply(self, messages: Chat, usual: Mapping[str, Any] | None = None) -> Reply:
        """Return the model's completion, and whether the token limit ended it.

        `usual`: fields of the request, unless `parameters` sets them. Raises: EndpointFault.
        """
        sent = [
            {"role": message.role, "content": message.content}
            | ({"name": message.name} if message.name else {})
            for message in messages
        ]
        request = {**(usual or {}), **self._parameters, "messages": sent}
        return await self.server.post(request, self._read)

    def _read(self, body: bytes) -> Reply:
        choice = self.server.parsed(_ChatCompletion, body).choices[0]
        text = self.server.without_key(choice.message.content)  # completions are written to files
        if not text.strip():
            raise self.server.garbled(f"a message without text: {self.server.shown(body)}")
        return Reply(text, "length" if choice.finish_reason == "length" else "stop")
