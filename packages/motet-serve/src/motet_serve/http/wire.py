"""HTTP rules around the routes: which bodies are accepted, and when a connection is closed.

uvicorn keeps reading after the response is sent, for as long as the client sends.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from motet_serve.http.refusals import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request

LINGER_SECONDS = 1.0
"""How long the server keeps reading from a client that still sends after its response. If a
connection is closed while the client sends, the client may lose the response.
"""
Event: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Event]]
Awaited = TypeVar("Awaited")
Send: TypeAlias = Callable[[Event], Awaitable[None]]


def check_head(request: "Request", most: int) -> None:
    """Check the head of a request; nothing of the body is read.

    Raises: Refusal if the head declares a body that is not JSON, that is compressed, or that has
    more than `most` bytes.
    """
    headers = request.headers
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Refusal(
            400,
            "two_lengths",
            "the request has both Content-Length and Transfer-Encoding: send only one of them",
        )
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        got = f"the Content-Type is {kind!r}" if kind else "there is no Content-Type"
        raise Refusal(415, "no_json_type", f"{got}; expected application/json")
    packed = headers.get("content-encoding", "identity")
    if packed.strip().lower() != "identity":
        raise Refusal(
            415, "packed", f"the Content-Encoding is {packed!r}; expected an uncompressed body"
        )
    said = headers.get("content-length", "")
    if said.isdecimal() and int(said) > most:
        raise too_large(most)


def too_large(most: int) -> Refusal:
    return Refusal(
        413, "too_large", f"the body has more than {most:,} bytes: ask for fewer answers at a time"
    )


async def unless_client_leaves(answer: asyncio.Future[Awaited], request: "Request") -> Awaited:
    """Wait for the answer. The caller cancels it if this raises.

    The request's body must have been read. Raises: Refusal if the client leaves first; what
    `answer` raises.
    """
    left = asyncio.create_task(_left(request))
    either: set[asyncio.Future[Any]] = {answer, left}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Refusal(400, "left", "the client closed the connection before its answer")
        return answer.result()
    finally:
        left.cancel()


async def _left(request: "Request") -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class LetGo:
    """ASGI middleware that closes a connection if it responds before it has read the whole body.

    The client gets `Connection: close`, and the server soon stops reading.
    """

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _has_body(scope):
            await self._app(scope, receive, send)
            return
        unread = True

        async def noted() -> Event:
            nonlocal unread
            event = await receive()
            unread = unread and event["type"] == "http.request" and event.get("more_body", False)
            return event

        async def closing(event: Event) -> None:
            if not unread:
                await send(event)
            elif event["type"] == "http.response.start":
                await send(
                    {**event, "headers": [*event.get("headers", ()), (b"connection", b"close")]}
                )
            elif event.get("more_body", False):
                await send(event)
            else:
                await send({**event, "more_body": True})
                try:
                    async with asyncio.timeout(LINGER_SECONDS):
                        while unread:
                            await noted()
                            # without this, a client that sends fast enough is read for ever
                            await asyncio.sleep(0)
                except TimeoutError:
                    pass
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(scope, noted, closing)


def _has_body(scope: Event) -> bool:
    said = dict(scope["headers"])
    return b"transfer-encoding" in said or said.get(b"content-length", b"0") != b"0"
