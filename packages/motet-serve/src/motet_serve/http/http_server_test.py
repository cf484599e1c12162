"""Connections without a socket; tests/verifier_attacks_test.py uses real ones.

uvicorn may change the attributes of its class on which `Connection` relies. pyproject.toml names
the versions that pass here and there.
"""

import asyncio
import resource

import pytest
import uvicorn
from uvicorn.server import ServerState

from motet.errors import ConfigError
from motet_serve.http.http_server import SPARE_FILES, Connection, allow_files

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HALF = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1"


class Wire(asyncio.Transport):
    """Records what is written to the client of `connection`."""

    def __init__(self, connection):
        super().__init__()
        self.said, self.closed, self._connection = b"", False, connection

    def write(self, data):
        self.said += data

    def is_closing(self):
        return self.closed

    def close(self):
        if not self.closed:
            asyncio.get_running_loop().call_soon(self._connection.connection_lost, None)
        self.closed = True

    abort = close

    def pause_reading(self):
        """The test delivers the data itself."""

    resume_reading = pause_reading


class Clients:
    """Connections of one server, whose application reads a body and answers at `answer`."""

    def __init__(self, most=9, seconds=600):
        self.answer, self._state = asyncio.Event(), ServerState()
        self.config = uvicorn.Config(
            self._app, interface="asgi3", http="h11", ws="none", lifespan="off", log_config=None,
            limit_concurrency=most + 1, timeout_keep_alive=seconds,
        )  # fmt: skip

    async def _app(self, scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await self.answer.wait()
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})

    def open(self, data=b""):
        one = Connection(config=self.config, server_state=self._state, app_state={})
        one.connection_made(Wire(one))
        if data:
            one.data_received(data)
        return one


async def until(true):
    while not true():
        await asyncio.sleep(0)


def run(work):
    asyncio.run(asyncio.wait_for(work, 30))


def test_a_connection_waits_for_its_client_around_a_request_and_while_nobody_reads():
    async def go():
        clients = Clients()
        one = clients.open()
        assert one.waits_for_client
        one.data_received(HALF)
        assert one.waits_for_client
        one.data_received(b"2")
        assert not one.waits_for_client
        one.pause_writing()
        assert one.waits_for_client
        one.resume_writing()
        assert not one.waits_for_client
        clients.answer.set()
        await until(lambda: one.transport.said.endswith(b"\r\n\r\nok"))
        assert one.waits_for_client
        one.shutdown()
        assert one.transport.closed

    run(go())


def test_a_request_that_is_answered_ends_before_its_connection_shuts_down():
    async def go():
        clients = Clients()
        one = clients.open(GET)
        one.shutdown()
        assert not one.transport.closed
        clients.answer.set()
        await until(lambda: one.transport.closed)
        assert one.transport.said.endswith(b"\r\n\r\nok")

    run(go())


@pytest.mark.parametrize("data", [b"", GET[:-2], b"\r\n"])
def test_a_client_that_sends_no_whole_head_in_time_is_closed(data):
    async def go():
        one = Clients(seconds=0.01).open(data)
        await until(lambda: one.transport.closed)

    run(go())


def test_time_is_counted_anew_after_each_response_and_not_while_the_server_works():
    async def go():
        clients = Clients(seconds=0.01)
        one = clients.open(GET)
        await until(lambda: one.loop.time() > one._deadline.when())
        await asyncio.sleep(0)
        assert not one.transport.closed
        clients.answer.set()
        await until(lambda: one.transport.closed)
        assert one.transport.said.endswith(b"\r\n\r\nok")

    run(go())


def test_a_client_that_does_not_go_on_reading_is_closed():
    async def go():
        one = Clients(seconds=0.01).open(GET)
        one.pause_writing()
        await until(lambda: one.transport.closed)

    run(go())


def test_above_the_limit_a_new_connection_replaces_the_one_that_has_waited_the_longest():
    async def go():
        clients = Clients(most=4)
        computed, silent, half, head = [clients.open(data) for data in (GET, b"", HALF, GET[:-2])]
        for gone in (silent, half, head):
            assert not gone.transport.closed
            clients.open(GET)
            assert gone.transport.closed
        last = clients.open()
        assert last.transport.closed  # all others are being answered
        assert not computed.transport.closed

    run(go())


def test_who_has_just_been_answered_has_waited_less_long_than_an_older_connection():
    async def go():
        clients = Clients(most=2)
        answered, silent = clients.open(GET), clients.open()
        clients.answer.set()
        await until(lambda: answered.transport.said.endswith(b"ok"))
        clients.open()
        assert (silent.transport.closed, answered.transport.closed) == (True, False)

    run(go())


@pytest.mark.parametrize("begun", [False, True])
def test_a_broken_body_gets_one_answer(begun):
    """In uvicorn, the second answer would be an exception."""

    async def go():
        clients = Clients()
        clients.answer.set()
        one = clients.open(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        if begun:
            one.cycle.more_body = False  # as if the application did not read the body
            one.cycle.message_event.set()
            await until(lambda: one.transport.said.endswith(b"ok"))
        one.data_received(b"no chunk\r\n")
        await until(lambda: not one.tasks)
        assert one.transport.closed
        assert one.transport.said.startswith(b"HTTP/1.1 200 " if begun else b"HTTP/1.1 400 ")
        assert one.transport.said.count(b"HTTP/1.1") == 1

    run(go())


def test_a_request_with_two_lengths_is_the_last_of_its_connection():
    async def go():
        clients = Clients()
        clients.answer.set()
        two = b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
        one = clients.open(b"POST / HTTP/1.1\r\nHost: x\r\n" + two + GET)
        await until(lambda: one.transport.closed and not one.tasks)
        assert one.transport.said.count(b"HTTP/1.1") == 1

    run(go())


@pytest.mark.parametrize(
    ("may", "most", "set_to"),
    [
        (1024, 4096, None),
        (256, 4096, 800 + SPARE_FILES),
        (256, resource.RLIM_INFINITY, 800 + SPARE_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_process_may_open_a_file_for_each_connection(monkeypatch, may, most, set_to):
    limits = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (may, most))
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: limits.append(both))
    allow_files(800)
    assert limits == ([] if set_to is None else [(set_to, most)])


def test_more_connections_than_files_are_refused(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 256))
    with pytest.raises(ConfigError, match=r"256 .* raise ulimit -n, or lower --max-connections"):
        allow_files(10**9)
