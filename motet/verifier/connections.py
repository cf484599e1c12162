"""The server's connections: how many there may be, whose place a new one takes, and how long a
client may keep one waiting.

uvicorn has no limit on the time of a head and none per address, and its loop of accepting spins
where no file may be opened.
"""

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from motet.verifier.limits import Limits
from motet.verifier.protocol import Wrong

SWEEP_SECONDS = 0.5
RETRY_SECONDS = 1.0
"""After the system had no file or memory for a connection."""
MOST_PIECES, SMALL_PIECE = 1000, 64
"""A body of more pieces than this, of fewer bytes each on average, is refused: each one costs as
much as a large one."""
REASONS = {400: b"Bad Request", 408: b"Request Timeout"}
log = logging.getLogger(__name__)


class Connections:
    """All connections, by client address.

    A connection waits for its client before and within a request, and while the client does not
    take its answer. Where a limit is reached, a new connection takes the place of the one that has
    waited for its client the longest. Connections whose requests are being answered keep their
    places.
    """

    def __init__(self, limits: Limits, files: int) -> None:
        """`files` is how many connections may be open as far as the system is concerned."""
        self.most = min(limits.max_connections, files)
        share = limits.max_connections_per_address * self.most // limits.max_connections
        self.most_per_address = max(1, min(share, self.most))
        self.client_seconds = limits.client_seconds
        self._by_address: dict[str, set[Connection]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_address.values()))

    def make_room(self, address: str) -> bool:
        """Whether one more connection of this address may be opened; for it another one may have
        been dropped."""
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
                log.warning("a connection was closed to make room: as many are open as may be (%d)", len(self))
                min(waiting, key=lambda one: one.waiting_since).drop()
                return True
        return False

    def add(self, connection: "Connection") -> None:
        self._by_address.setdefault(connection.address, set()).add(connection)

    def remove(self, connection: "Connection") -> None:
        """Also one that is not there any more."""
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
    """uvicorn's protocol. It knows since when it has waited for its client, and says in JSON what
    is wrong with a head."""

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
        """Whether the client did not begin a request, send its head or take its answer in time;
        `Bodies` times a body."""
        waits = self._between_requests or self.flow.write_paused
        return waits and now - self.waiting_since > self._connections.client_seconds

    def drop(self, status: int | None = None) -> None:
        """Closes the connection at once; what is not sent yet is lost. A client within a head is
        told `status`."""
        if status is not None and self._head_began and self._between_requests:
            log.warning("a connection was closed: its client did not send the head of a request in time")
            self._refuse(status, f"the head did not come within {self._connections.client_seconds:g} s")
        self._connections.remove(self)
        self.transport.abort()

    def _refuse(self, status: int, why: str) -> None:
        if self.conn.our_state in (
            h11.IDLE,
            h11.SEND_RESPONSE,
        ):  # else an answer has begun, and this would be part of it
            headers = [("content-type", "application/json"), ("connection", "close")]
            for event in (
                h11.Response(status_code=status, headers=headers, reason=REASONS[status]),
                h11.Data(data=Wrong(error=why).model_dump_json().encode()),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")

    def _answer_no_more(self) -> None:
        """The client sends more before it has its answer. One that never reads would be answered
        without end."""
        if not self.cycle.response_started:
            self.headers.append(CLOSE_HEADER)  # these are the request's, and uvicorn repeats this one in the answer
        self.cycle.keep_alive = False

    # ------------------------------------------------------------------------------------------------ called by uvicorn

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
        self._refuse(400, self._http.refused or f"{msg.rstrip('.')}: this is no HTTP/1.1")
        self.transport.close()

    def shutdown(self) -> None:
        """The server is about to end: who is being answered gets the answer, and nobody is waited
        for."""
        if self.waits_for_client:
            self.drop()
        else:
            super().shutdown()


class _Http(h11.Connection):
    """Refuses bodies in tiny pieces. `refused` says so."""

    refused = ""
    _pieces = _bytes = 0

    def next_event(self) -> Any:
        event: Any = super().next_event()
        kind = type(event)  # isinstance takes several times as long: these classes are abstract ones of Python's
        if kind is h11.Request:
            self._pieces = self._bytes = 0
        elif kind is h11.Data:
            self._pieces += 1
            self._bytes += len(event.data)
            if self._pieces > MOST_PIECES and self._bytes < self._pieces * SMALL_PIECE:
                self.refused = f"the body comes in pieces of fewer than {SMALL_PIECE} bytes: send larger ones"
                raise h11.RemoteProtocolError(self.refused)
        return event


async def accept(listener: socket.socket, connections: Connections, make: Callable[[str], Connection]) -> None:
    """Takes connections one at a time, for ever. `make` is told the address they come from."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            client, where = await loop.sock_accept(listener)
        except ConnectionError:
            continue
        except OSError as error:  # no file, or no memory
            log.warning("no connection could be taken: %s", error.strerror)
            await asyncio.sleep(RETRY_SECONDS)
            continue
        address = network(where[0])
        if connections.make_room(address):
            await _open(client, make(address))
        else:
            log.warning("a connection was refused: as many are being answered as may be (--max-connections)")
            client.close()
            await asyncio.sleep(0)  # or refusing goes on for as long as more come, and nobody is answered


async def _open(client: socket.socket, connection: Connection) -> None:
    try:
        await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, client)
    except OSError:  # it is gone already
        client.close()


async def sweep(connections: Connections) -> None:
    """Drops who is late, for ever."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        connections.drop_late(asyncio.get_running_loop().time())


def network(host: str) -> str:
    """What counts as one address: an IPv4 address, or the 64 bits of IPv6 that one household is
    given."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.IPv6Network((address, 64), strict=False))
