"""uvicorn, with the few limits that it lacks: on the time of a client, and on connections."""

import asyncio
import logging
import resource
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from motet.errors import ConfigError
from motet.user_code.blocking import TOGETHER_SECONDS

ACCEPTED_AT_ONCE = 16
"""Number of connections that asyncio accepts before the server works on those it has."""
BACKLOG = 2048
"""Number of connections that the system queues until they are accepted."""
SPARE_FILES = 200
"""Number of files for all but connections. asyncio accepts a few rounds of connections before one
that is closed gives back its file, and it loops if it finds no file.
"""
MOST_PIECES, SMALL_PIECE = 1000, 64
"""A body of more than MOST_PIECES pieces is refused if its pieces have fewer than SMALL_PIECE bytes
on average. A piece takes 9 microseconds, so the 40,000 pieces that one read may bring would keep
all other clients waiting.
"""
log = logging.getLogger(__name__)


class Connection(H11Protocol):
    """uvicorn's connection, which ends if its client is late or its place is needed.

    A client has `timeout_keep_alive` seconds to send the head of a request, from the start of the
    connection or the last response, and to go on reading a response. If there would be
    `limit_concurrency` connections, a new one replaces the one that has waited for its client the
    longest. uvicorn would wait for a head for ever, and would refuse all requests.
    """

    def __init__(self, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self.conn = _Http(h11.SERVER)

    @property
    def waits_for_client(self) -> bool:
        return self._between_requests or self.cycle.more_body or self.flow.write_paused

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self._end_if_late)

    def _end_if_late(self) -> None:
        if self._between_requests or self.flow.write_paused:
            self.transport.abort()

    # ---------------------------------------------------------------------------- called by uvicorn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            here: set[Any] = self.connections  # this one waits for its client, too
            waiting = [one for one in here if one.waits_for_client]
            oldest = min(waiting, key=lambda one: one._deadline.when())
            self.connections.discard(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._deadline.cancel()
        self._wait()
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in self.headers}:
            self.transport.close()  # a proxy may see more requests in its body than we do
        super().on_response_complete()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deadline.cancel()
        self._wait()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.close()  # its request has a response, and this would be a second one
            return
        super().send_400_response(msg)
        if self.cycle is not None:
            self.cycle.disconnected = True  # the response of the application comes too late

    def shutdown(self) -> None:
        """Stop with the server: finish the current response, but wait for no client."""
        if self.waits_for_client:
            self.transport.abort()
        else:
            super().shutdown()


class _Http(h11.Connection):
    """An HTTP connection that refuses bodies in tiny pieces."""

    _pieces = _bytes = 0

    def next_event(self) -> Any:
        event: Any = super().next_event()
        # isinstance takes several times as long, because these classes are abstract base classes.
        kind = type(event)
        if kind is h11.Request:
            self._pieces = self._bytes = 0
        elif kind is h11.Data:
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > MOST_PIECES and self._bytes < self._pieces * SMALL_PIECE:
                raise h11.RemoteProtocolError("the body comes in tiny pieces")
        return event


class Server(uvicorn.Server):
    """uvicorn's server. The first signal shuts it down, a second one ends the process, unless it
    comes within `TOGETHER_SECONDS`."""

    def __init__(
        self, config: uvicorn.Config, grace_seconds: float, listening: Callable[[], None]
    ) -> None:
        """`listening` is called once connections are accepted."""
        super().__init__(config)
        self._grace_seconds, self._listening = grace_seconds, listening
        self._signalled: float | None = None

    def stop(self) -> None:
        """Shut down. Any thread may call it."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._signalled is not None and now > self._signalled + TOGETHER_SECONDS:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        self._signalled = self._signalled or now
        self.stop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)  # asyncio took the number that it accepts at once for this one, too
        self._listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # uvicorn's own limit cancels the requests, and logs a traceback for each.
        giving_up = asyncio.get_running_loop().call_later(self._grace_seconds, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _give_up(self) -> None:
        open_: list[Any] = list(self.server_state.connections)
        log.warning(
            "%d requests were not answered within %g s and are dropped",
            len(open_),
            self._grace_seconds,
        )
        for one in open_:
            one.transport.abort()


def allow_files(connections: int) -> None:
    """Let the process open enough files for so many connections. Raises: ConfigError."""
    needed = connections + SPARE_FILES
    may, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if may == resource.RLIM_INFINITY or may >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, most))
    except (ValueError, OSError) as error:
        raise ConfigError(
            f"the process may open {may} files; expected {needed}: raise ulimit -n, or lower "
            "--max-connections"
        ) from error
