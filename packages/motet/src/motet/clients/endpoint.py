"""A client for chat endpoints with the OpenAI protocol.

The server is a hosted model, or a local vLLM, llama.cpp, Ollama or similar.

    endpoint = Endpoint("http://localhost:8000/v1", "qwen3-coder",
                        timeout_seconds=60, retries=3, concurrency=8, jitter=draw)
    text = await endpoint.ask((Message("user", "..."),))

Each request is one `POST BASE_URL/chat/completions`.
"""

import json
from collections.abc import Mapping
from typing import Any

from motet.clients.http_client import JsonClient
from motet.core import Chat, Reply


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
        try:
            choice = json.loads(body)["choices"][0]
            content = choice["message"]["content"]
        except (ValueError, RecursionError) as error:
            raise self.server.garbled(
                f"a body that is not JSON: {self.server.shown(body)}"
            ) from error
        except (KeyError, IndexError, TypeError) as error:
            raise self.server.garbled(
                f"JSON without choices[0].message.content: {self.server.shown(body)}"
            ) from error
        if not isinstance(content, str) or not content.strip():
            raise self.server.garbled(f"a message without text: {self.server.shown(body)}")
        whole = self.server.without_key(content)  # completions are written to files
        # JSON can contain unpaired surrogates, which no tokenizer accepts.
        text = whole.encode("utf-8", "replace").decode()
        cut = "finish_reason" in choice and choice["finish_reason"] == "length"
        return Reply(text, "length" if cut else "stop")
