"""Read the bodies of requests.

The size and time of each body and the memory of all bodies together are limited.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from motet_serve.http.limits import ServingLimits
from motet_serve.http.refusals import Refusal

if TYPE_CHECKING:
    from starlette.requests import Request


class Bodies:
    """The bodies of all open requests.

    If there is no memory for the next bytes, the body that has been arriving for the longest time
    is dropped. This way clients that send half a body cannot block others. Complete bodies are
    never dropped.
    """

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self.held = 0
        """Bytes held now."""
        self._arriving: dict[asyncio.Timeout, bytearray] = {}
        """Deadline -> its body that is still arriving, in the order in which they began."""

    @asynccontextmanager
    async def read(self, request: "Request") -> AsyncIterator[bytes]:
        """Read the whole body. Its bytes count as held until the context ends.

        Raises: Refusal 415 if it is not plain JSON, 413 if it is too large, 408 if it is late, 429
        if there is no memory for it, 400 if the client leaves or the head says two lengths.
        """
        _check_head(request, self._limits.max_body_bytes)
        body = bytearray()
        try:
            await self._read(request, body)
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _read(self, request: "Request", body: bytearray) -> None:
        from starlette.requests import ClientDisconnect

        deadline = asyncio.timeout(self._limits.client_seconds)
        try:
            async with deadline:
                self._arriving[deadline] = body
                async for chunk in request.stream():
                    body += chunk
                    self.held += len(chunk)
                    if len(body) > self._limits.max_body_bytes:
                        raise _too_large(self._limits.max_body_bytes)
                    while self.held > max(self._limits.max_held_bytes, len(body)):
                        self._drop_oldest(deadline)
            if deadline not in self._arriving:
                raise self._no_room()
        except ClientDisconnect as error:
            said = "the client closed the connection before the end of its request"
            raise Refusal(400, "left", said) from error
        except TimeoutError as error:
            if deadline not in self._arriving:
                raise self._no_room() from error
            seconds = self._limits.client_seconds
            raise Refusal(408, "slow", f"the body did not arrive within {seconds:g} s") from error
        finally:
            self._arriving.pop(deadline, None)

    def _drop_oldest(self, own: asyncio.Timeout) -> None:
        """Raises: Refusal if no other body is arriving for longer than that of `own`."""
        oldest = next(iter(self._arriving), own)
        if oldest is own:
            raise self._no_room()
        body = self._arriving.pop(oldest)
        self.held -= len(body)
        body.clear()
        if not oldest.expired():
            oldest.reschedule(0.0)

    def _no_room(self) -> Refusal:
        most = self._limits.max_held_mb
        said = f"the open requests need more memory than the limit of {most:g} MiB; ask again later"
        return Refusal(429, "full", said, {"Retry-After": "1"})


def _check_head(request: "Request", most: int) -> None:
    """Check the head of a request before anything of the body is read.

    A web page of another site may send any text, but it may not say that the text is JSON.
    """
    headers = request.headers
    if "transfer-encoding" in headers and "content-length" in headers:
        said = "the request has both Content-Length and Transfer-Encoding: send only one of them"
        raise Refusal(400, "two_lengths", said)
    kind = headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        got = f"the Content-Type is {kind!r}" if kind else "there is no Content-Type"
        raise Refusal(415, "no_json_type", f"{got}; expected application/json")
    packed = headers.get("content-encoding", "identity")
    if packed.strip().lower() != "identity":
        said = f"the Content-Encoding is {packed!r}; expected an uncompressed body"
        raise Refusal(415, "packed", said)
    length = headers.get("content-length", "")
    if length.isdecimal() and int(length) > most:
        raise _too_large(most)


def _too_large(most: int) -> Refusal:
    said = f"the body has more than {most:,} bytes: ask for fewer answers at a time"
    return Refusal(413, "too_large", said)
