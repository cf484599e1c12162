"""Which connection a new one replaces; verifier_attacks_test.py uses real connections."""

import asyncio
import resource
import socket
from contextlib import ExitStack, suppress

import pytest
import uvicorn
from uvicorn.server import ServerState

from motet_serve.http.connections import Connection, Connections, accept, network
from motet_serve.http.http_server import _files
from motet_serve.http.limits import ServingLimits


class Fake:
    """A connection that has waited for its client since `since`, or whose request is being
    computed."""

    def __init__(self, connections, address, since=None):
        self.address, self.waiting_since, self.waits_for_client = address, since, since is not None
        self._connections = connections
        connections.add(self)

    def drop(self):
        self._connections.remove(self)


def opened(most, per_address, *addresses):
    """Create connections. Those named earlier have waited for their client longer."""
    found = Connections(
        ServingLimits(max_connections=most, max_connections_per_address=per_address), files=1000
    )
    return found, [Fake(found, address, since) for since, address in enumerate(addresses)]


def left(connections, fakes):
    return [number for number, one in enumerate(fakes) if one in connections._all()]


def test_there_is_room_up_to_both_limits():
    connections, fakes = opened(4, 3, "a", "a", "b")
    assert connections.make_room("a")
    assert connections.make_room("c")
    assert left(connections, fakes) == [0, 1, 2]


def test_an_address_at_its_limit_gives_a_place_of_its_own():
    connections, fakes = opened(10, 3, "b", "a", "a", "a")
    assert connections.make_room("a")
    assert left(connections, fakes) == [0, 2, 3]


def test_a_full_server_takes_the_place_from_the_address_that_has_the_most():
    connections, fakes = opened(5, 4, "b", "b", "a", "a", "a")
    assert connections.make_room("c")
    assert left(connections, fakes) == [0, 1, 3, 4]


def test_connections_that_are_being_answered_keep_their_places():
    connections, fakes = opened(3, 2, "b", "a", "a")
    for one in fakes[1:]:
        one.waits_for_client = False
    assert not connections.make_room("a")
    assert left(connections, fakes) == [0, 1, 2]
    assert connections.make_room("c")
    assert left(connections, fakes) == [1, 2]


def test_few_files_lower_both_limits_alike():
    limits = ServingLimits(max_connections=800, max_connections_per_address=400)
    found = Connections(limits, files=200)
    assert (found.most, found.most_per_address) == (200, 100)
    assert (
        Connections(limits, files=1).most_per_address,
        Connections(limits, files=9999).most,
    ) == (1, 800)


def test_a_process_that_may_open_any_number_of_files_has_the_limits_it_was_told(monkeypatch):
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    )
    assert Connections(ServingLimits(), _files()).most == ServingLimits.max_connections


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
    ],
)
def test_an_ipv6_network_counts_as_one_address(host, expected):
    assert network(host) == expected


def test_refusing_connections_does_not_keep_others_waiting():
    """Each turn of the event loop refuses one connection, however many there are."""
    connections, (fake,) = opened(1, 1, "127.0.0.1")
    fake.waits_for_client = False

    async def turns_while_refused(count):
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=count))
            listener.setblocking(False)
            clients = [
                stack.enter_context(socket.create_connection(listener.getsockname()))
                for _ in range(count)
            ]
            work = asyncio.create_task(
                accept(listener, connections, lambda address: pytest.fail("it was taken"))
            )
            clients[-1].setblocking(False)
            turns = 0
            while True:
                await asyncio.sleep(0)
                turns += 1
                with suppress(BlockingIOError):
                    assert clients[-1].recv(1) == b""
                    break
            work.cancel()
            return turns

    assert asyncio.run(turns_while_refused(50)) >= 50


# ------------------------------------------------------------------------------------------ uvicorn


class Wire(asyncio.Transport):
    """Records what is written."""

    def __init__(self):
        super().__init__()
        self.said, self.closed = b"", False

    def write(self, data):
        self.said += data

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close

    def pause_reading(self):
        """The test delivers the data itself."""

    resume_reading = pause_reading


def test_a_connection_follows_a_request_from_its_head_to_its_answer():
    """Test the attributes of uvicorn's class that we rely on.

    uvicorn may change them. pyproject.toml names the versions that pass here and in
    verifier_attacks_test.py.
    """

    async def go():
        begin, end = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            while (await receive())["more_body"]:
                begin.set()
            await end.wait()
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-length", b"2")],
                }
            )
            await send({"type": "http.response.body", "body": b"ok"})

        config = uvicorn.Config(app, http="h11", ws="none", lifespan="off", log_config=None)
        connections, _ = opened(9, 9)
        connection = Connection(
            config=config,
            server_state=ServerState(),
            app_state={},
            connections=connections,
            address="a",
        )
        wire = Wire()
        connection.connection_made(wire)
        late = connection.waiting_since + 31
        assert (len(connections), connection.waits_for_client, connection.is_late(late)) == (
            1,
            True,
            True,
        )
        connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1")
        await begin.wait()
        # Not late: `Bodies` limits the time of a body.
        assert (connection.waits_for_client, connection.is_late(late)) == (True, False)
        connection.data_received(b"2")
        assert not connection.waits_for_client
        connection.pause_writing()
        assert connection.waits_for_client
        connection.resume_writing()
        end.set()
        while not wire.said.endswith(b"\r\n\r\nok"):
            await asyncio.sleep(0)
        assert connection.waits_for_client
        connection.shutdown()
        assert (len(connections), wire.closed) == (0, True)

    asyncio.run(go())
