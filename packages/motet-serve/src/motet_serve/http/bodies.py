"""Read the bodies of requests.

The size and time of each body and the memory of all bodies together are limited.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from motet_serve.http.limits import ServingLimits
from motet_serve.http.refusals import Refusal
from motet_serve.http.wire import too_large

if TYPE_CHECKING:
    from starlette.requests import Request


class _Body:
    """One body: its size so far, and the deadline of its reader."""

    def __init__(self, deadline: asyncio.Timeout) -> None:
        self.size, self.deadline, self.dropped = 0, deadline, False


class Bodies:
    """The bodies of all open requests.

    If there is no memory for the next bytes, the body that has been arriving for the longest time
    is dropped. This way clients that send half a body cannot block others. Complete bodies are
    never dropped.
    """

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._held = 0
        self._arriving: dict[_Body, None] = {}
        """Bodies that are still arriving, in the order in which they began."""

    @property
    def held(self) -> int:
        """Bytes held now."""
        return self._held

    @asynccontextmanager
    async def read(self, request: "Request") -> AsyncIterator[bytes]:
        """Read the whole body. Its bytes count as held until the context ends.

        Raises: Refusal 413 if the body is too large, 408 if it is late, 429 if there is no memory
        for it.
        """
        deadline = asyncio.timeout(self._limits.client_seconds)
        body = _Body(deadline)
        try:
            yield await self._read(request, body)
        finally:
            self._held -= body.size

    async def _read(self, request: "Request", body: _Body) -> bytes:
        from starlette.requests import ClientDisconnect

        content = bytearray()
        self._arriving[body] = None
        try:
            async with body.deadline:
                async for chunk in request.stream():
                    if len(content) + len(chunk) > self._limits.max_body_bytes:
                        raise too_large(self._limits.max_body_bytes)
                    self._hold(body, len(chunk))
                    content += chunk
        except ClientDisconnect as error:
            raise Refusal(
                400, "left", "the client closed the connection before the end of its request"
            ) from error
        except TimeoutError as error:
            if body.dropped:
                raise self._no_room() from error
            seconds = self._limits.client_seconds
            raise Refusal(408, "slow", f"the body did not arrive within {seconds:g} s") from error
        finally:
            self._arriving.pop(body, None)
        return bytes(content)

    def _hold(self, body: _Body, size: int) -> None:
        """Raises: Refusal if the memory is full of complete bodies."""
        while self._held > body.size and self._held + size > self._limits.max_held_bytes:
            oldest = next((one for one in self._arriving if one is not body and one.size), None)
            if oldest is None:
                raise self._no_room()
            self._drop(oldest)
        body.size += size
        self._held += size

    def _drop(self, body: _Body) -> None:
        del self._arriving[body]
        self._held -= body.size
        body.size, body.dropped = 0, True
        if not body.deadline.expired():
            body.deadline.reschedule(asyncio.get_running_loop().time())

    def _no_room(self) -> Refusal:
        most = self._limits.max_held_mb
        return Refusal(
            429,
            "full",
            f"the open requests need more memory than the limit of {most:g} MiB; ask again later",
            {"Retry-After": "1"},
        )
