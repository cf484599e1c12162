"""The server's connections: their number, which one gives its place to a new one, and time limits.

uvicorn has no time limit for the head of a request and no limit per address. Its accept loop spins
if no file can be opened.
"""

import asyncio
import ipaddress
import json
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from motet_serve.http.limits import ServingLimits
from motet_serve.http.refusals import ErrorBody, Refusal, plain_error

SWEEP_SECONDS = 0.5
RETRY_SECONDS = 1.0
"""Seconds until the next attempt after the system had no file or memory for a connection."""
MOST_PIECES, SMALL_PIECE = 1000, 64
"""A body of more than MOST_PIECES pieces is refused if its pieces have fewer than SMALL_PIECE bytes
on average, because a small piece costs as much as a large one.
"""
REASONS = {400: b"Bad Request", 408: b"Request Timeout"}
log = logging.getLogger(__name__)


class Connections:
    """All connections, grouped by client address.

    A connection waits for its client before and within a request, and while the client does not
    read its response. If a limit is reached, a new connection replaces the one that has waited for
    its client the longest. Connections whose requests are being computed are never replaced.
    """

    def __init__(
        self, limits: ServingLimits, files: int, error_body: ErrorBody = plain_error
    ) -> None:
        """`files` is the number of connections for which the process may open files."""
        self.error_body = error_body
        self.most = min(limits.max_connections, files)
        share = limits.max_connections_per_address * self.most // limits.max_connections
        self.most_per_address = max(1, min(share, self.most))
        self.client_seconds = limits.client_seconds
        self._by_address: dict[str, set[Connection]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def make_room(self, address: str) -> bool:
        """Test whether this address may open one more connection.

        This may drop another connection.
        """
        own = self._by_address.get(address, set())
        if len(own) >= self.most_per_address:
            return self._drop_one_of([own])
        if len(self) >= self.most:
            return self._drop_one_of(sorted(self._by_address.values(), key=len, reverse=True))
        return True

    def _drop_one_of(self, groups: Iterable[set["Connection"]]) -> bool:
        for group in groups:
            waiting = [one for one in group if one.waits_for_client]
            if waiting:
                log.warning(
                    "a waiting connection was closed to make room for a new one: the limit of %d "
                    "is reached",
                    len(self),
                )
                min(waiting, key=lambda one: one.waiting_since).drop()
                return True
        return False

    def add(self, connection: "Connection") -> None:
        self._by_address.setdefault(connection.address, set()).add(connection)

    def remove(self, connection: "Connection") -> None:
        """Remove a connection. Does nothing if it is not there."""
        group = self._by_address.get(connection.address, set())
        group.discard(connection)
        if not group:
            self._by_address.pop(connection.address, None)

    def drop_late(self, now: float) -> None:
        for one in self._all():
            if one.is_late(now):
                one.drop(408)

    def drop_all(self) -> None:
        for one in self._all():
            one.drop()

    def _all(self) -> list["Connection"]:
        return [one for group in self._by_address.values() for one in group]


class Connection(H11Protocol):
    """uvicorn's protocol, with limits on the time that a client may take.

    It knows since when it has waited for its client, and answers an invalid head in JSON.
    """

    def __init__(self, *settings: Any, connections: Connections, address: str, **more: Any) -> None:
        super().__init__(*settings, **more)
        self._http = self.conn = _Http(h11.SERVER)
        self.address, self._connections = address, connections
        self.waiting_since = self.loop.time()
        """In seconds of the loop's clock."""
        self._head_began = False

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def waits_for_client(self) -> bool:
        return self._between_requests or self.cycle.more_body or self.flow.write_paused

    def is_late(self, now: float) -> bool:
        """Test whether the client began a request, sent its head or read its response too late.

        `Bodies` limits the time of a body.
        """
        waits = self._between_requests or self.flow.write_paused
        return waits and now - self.waiting_since > self._connections.client_seconds

    def drop(self, status: int | None = None) -> None:
        """Close the connection at once; unsent data is lost.

        A client that is sending a head gets the response `status`.
        """
        if status is not None and self._head_began and self._between_requests:
            log.warning("a connection was closed: its client did not send a request head in time")
            self._refuse(
                status,
                f"the request head did not arrive within {self._connections.client_seconds:g} s",
            )
        self._connections.remove(self)
        self.transport.abort()

    def _refuse(self, status: int, why: str) -> None:
        # In other states a response has begun, and this one would become part of it.
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            said = self._connections.error_body(Refusal(status, "no_http", why))
            body = json.dumps(said, separators=(",", ":")).encode()
            headers = [
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
                ("connection", "close"),
            ]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=REASONS[status]),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
            if not self._between_requests:  # the application has begun; its response is too late
                self.cycle.disconnected = True
                self.cycle.message_event.set()

    def _answer_no_more(self) -> None:
        """Close the connection after the current response.

        The client sends more before it has its response. A client that never reads would otherwise
        get responses without end.
        """
        if not self.cycle.response_started:
            # These are the headers of the request; uvicorn repeats this one in the response.
            self.headers.append(CLOSE_HEADER)
        self.cycle.keep_alive = False

    # ---------------------------------------------------------------------------- called by uvicorn

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._between_requests and not self._head_began:
            self._head_began, self.waiting_since = True, self.loop.time()
        cycle = self.cycle
        super().data_received(data)
        if self.cycle is not cycle:
            self.waiting_since = self.loop.time()
        if not self._between_requests and self.conn.trailing_data[0]:
            self._answer_no_more()

    def on_response_complete(self) -> None:
        self._head_began, self.waiting_since = False, self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.waiting_since = self.loop.time()
        super().pause_writing()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, self._http.refused or f"{msg.rstrip('.')}; expected HTTP/1.1")
        self.transport.close()

    def shutdown(self) -> None:
        """Stop with the server: finish the current response, but wait for no client."""
        if self.waits_for_client:
            self.drop()
        else:
            super().shutdown()


class _Http(h11.Connection):
    """An HTTP connection that refuses bodies in tiny pieces. `refused` is then the reason."""

    refused = ""
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
                self.refused = (
                    f"the body has many chunks of fewer than {SMALL_PIECE} bytes: send larger ones"
                )
                raise h11.RemoteProtocolError(self.refused)
        return event


async def accept(
    listener: socket.socket, connections: Connections, make: Callable[[str], Connection]
) -> None:
    """Accept connections one at a time, for ever. `make` gets the address of each client."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            client, where = await loop.sock_accept(listener)
        except ConnectionError:
            continue
        except OSError as error:  # no file, or no memory
            log.warning("a connection could not be accepted: %s", error.strerror)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        address = network(where[0])
        if connections.make_room(address):
            await _open(client, make(address))
        else:
            log.warning(
                "a connection was refused: the limit of --max-connections is reached, and all "
                "wait for an answer"
            )
            client.close()
            # Without this, refusing continues while new connections come, and no request is served.
            await asyncio.sleep(0)


async def _open(client: socket.socket, connection: Connection) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
    except OSError:  # the client is gone already
        client.close()


async def sweep(connections: Connections) -> None:
    """Drop late connections, for ever."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        connections.drop_late(asyncio.get_running_loop().time())


def network(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or an IPv6 network of 64 bits.

    A household is given one such network.
    """
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.IPv6Network((address, 64), strict=False))
