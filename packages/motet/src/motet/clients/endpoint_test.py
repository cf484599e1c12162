"""Tests the client against local servers with correct and faulty behaviour, over real sockets."""

import asyncio
import base64
import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote

import pytest

from motet.clients.endpoint import Endpoint
from motet.clients.http_client import EndpointFault, is_loopback
from motet.core import Message
from tests.fixtures.http_servers import running
from tests.fixtures.messages import facts

ASKED = (Message("system", "Be brief."), Message("user", "Why?", name="ann"))
KEY = "sk-secret-0123456789"


def completion(text):
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": text}}]}).encode()


def says(status, body=b"", **headers):
    """A behaviour: send one complete response."""

    def behave(handler):
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return behave


OK = says(200, completion("Because."))


def hangs(handler):
    handler.server.released.wait(10)


def dribbles(handler):
    """A behaviour: send bytes forever with short pauses, so that only the total time can exceed a
    timeout."""
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.released.wait(0.02):
        handler.wfile.write(b" ")


def drops(handler):
    """A behaviour: send half a response."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(completion("Because.")[:20])


def floods(handler):
    handler.send_response(200)
    handler.end_headers()
    while not handler.server.released.is_set():
        handler.wfile.write(b"x" * 65_536)


class Server(ThreadingHTTPServer):
    """A server with one behaviour per request. The last behaviour repeats."""

    daemon_threads = True

    def __init__(self, *behaviours):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours, self.requests, self.released = list(behaviours), [], threading.Event()

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect."""

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    close_connection = True

    def end_headers(self):
        self.send_header("Connection", "close")
        super().end_headers()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers.items()), body))
        turn = min(len(self.server.requests), len(self.server.behaviours)) - 1
        self.server.behaviours[turn](self)
        self.close_connection = True

    def log_message(self, *_):
        """Log nothing."""


@contextmanager
def serving(*behaviours):
    with running(Server(*behaviours)) as server:
        try:
            yield server
        finally:
            server.released.set()


def endpoint(base_url, waits=None, **settings):
    """Return an Endpoint that records its waiting times instead of waiting."""

    async def sleep(seconds):
        (waits if waits is not None else []).append(seconds)

    chosen = {
        "timeout_seconds": 5.0,
        "retries": 2,
        "concurrency": 4,
        "jitter": lambda: 0.0,
        "sleep": sleep,
        **settings,
    }
    return Endpoint(base_url, "tiny", **chosen)


def ask(*behaviours, waits=None, **settings):
    """Send one request to a server with these behaviours. Return (completion or fault,
    requests)."""
    with serving(*behaviours) as server:
        try:
            answer = asyncio.run(endpoint(server.base_url, waits, **settings).ask(ASKED))
        except EndpointFault as fault:
            answer = fault
        return answer, server.requests


# ------------------------------------------------------------ requests


def test_a_question_is_one_chat_completion():
    answer, requests = ask(OK, key=KEY, parameters={"temperature": 0.2, "max_completion_tokens": 9})
    assert answer == "Because."
    ((path, headers, body),) = requests
    assert path == "/v1/chat/completions"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Why?", "name": "ann"},
        ],
        "temperature": 0.2,
        "max_completion_tokens": 9,
    }


def test_without_a_key_none_is_sent():
    _, ((_, headers, _),) = ask(OK)
    assert "Authorization" not in headers


# ------------------------------------------------------------ retries


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_what_may_pass_is_asked_again(status):
    answer, requests = ask(says(status, b"busy"), OK)
    assert (answer, len(requests)) == ("Because.", 2)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
def test_what_will_not_pass_is_not_asked_again(status):
    fault, requests = ask(says(status, b"no such model", Location="http://127.0.0.1:9/"), OK)
    assert (fault.cause, len(requests)) == ("refused", 1)
    assert str(fault).endswith(f"answered with status {status}: no such model")


def test_tries_are_bounded_and_counted():
    fault, requests = ask(says(503, b"busy"))
    assert (fault.cause, len(requests)) == ("refused", 3)
    assert str(fault).endswith("answered with status 503: busy (3 tries)")
    fault, requests = ask(says(503, b"busy"), retries=0)
    assert (fault.cause, len(requests)) == ("refused", 1)
    assert str(fault).endswith("status 503: busy")


@pytest.mark.parametrize(("drawn", "expected"), [(0.0, [0.5, 1.0, 2.0]), (0.5, [0.75, 1.5, 3.0])])
def test_the_time_between_tries_doubles_and_is_drawn(drawn, expected):
    waits = []
    ask(says(500), says(500), says(500), OK, waits=waits, retries=3, jitter=lambda: drawn)
    assert waits == expected


def test_nobody_waits_longer_between_tries_than_a_try_may_take():
    waits = []
    ask(*[says(500)] * 60, OK, waits=waits, retries=60, timeout_seconds=5.0, jitter=lambda: 1.0)
    assert waits == [1.0, 2.0, 4.0, *[5.0] * 57]


def test_a_server_says_how_long_to_wait():
    waits = []
    behaviours = [says(429, Retry_After="4"), says(503, Retry_After="soon"), OK]
    answer, _ = ask(*behaviours, waits=waits, retries=3)
    assert (answer, waits) == ("Because.", [4.0, 1.0])


def test_a_wait_that_is_longer_than_the_time_limit_is_a_refusal():
    waits = []
    fault, requests = ask(says(429, b"quota", Retry_After="3600"), OK, waits=waits)
    assert (fault.cause, len(requests), waits) == ("refused", 1, [])
    assert re.search(facts("status 429 … quota … 3600 s … timeout_seconds … 5 s"), str(fault))


def test_a_question_that_no_json_can_hold_is_not_sent():
    halves = (Message("user", "half \ud83d of an emoji"),)
    with serving(OK) as server, pytest.raises(EndpointFault) as fault:
        asyncio.run(endpoint(server.base_url).ask(halves))
    assert (fault.value.cause, fault.value.said_no, server.requests) == ("refused", True, [])
    assert re.search(facts("character '\\ud83d' … whole characters"), str(fault.value))
    refused, requests = ask(OK, parameters={"temperature": float("nan")})
    assert (refused.cause, refused.said_no, requests) == ("refused", False, [])
    assert re.search(facts("whole characters … finite numbers"), str(refused))


def test_a_connection_that_breaks_in_the_middle_of_an_answer_is_asked_again():
    answer, requests = ask(drops, OK)
    assert (answer, len(requests)) == ("Because.", 2)
    fault, requests = ask(drops)
    assert (fault.cause, len(requests)) == ("unreachable", 3)
    assert "the connection failed" in str(fault)


def test_nobody_at_the_address_is_unreachable():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        waits = []
        with pytest.raises(
            EndpointFault, match=r"chat/completions: the connection failed: .*\(3 tries\)"
        ) as caught:
            asyncio.run(endpoint(address, waits).ask(ASKED))
    assert (caught.value.cause, waits) == ("unreachable", [0.5, 1.0])


# ------------------------------------------------------------ timeouts and invalid responses


@pytest.mark.parametrize("behaviour", [hangs, dribbles])
def test_a_server_that_does_not_come_to_an_end_is_a_timeout(behaviour):
    begun = time.monotonic()
    fault, requests = ask(behaviour, timeout_seconds=0.4)
    assert (fault.cause, len(requests)) == ("timeout", 1)
    assert "did not answer within 0.4 s" in str(fault)
    assert time.monotonic() - begun > 0.3


def test_an_endless_answer_is_cut_off():
    fault, requests = ask(floods)
    assert (fault.cause, len(requests)) == ("garbled", 1)
    assert "answered with more than 1,048,576 bytes" in str(fault)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"<html><body>Sign in</body></html>", "the body … Invalid JSON"),
        (b"", "the body … Invalid JSON"),
        (b"\xff\xfe\x00", "the body … Invalid JSON"),
        (b"[" * 100_000, "the body … Invalid JSON"),
        (b"[]", "the body … object"),
        (b"null", "the body … object"),
        (b'{"error": "overloaded"}', "choices … required"),
        (b'{"choices": []}', "choices … at least 1"),
        (b'{"choices": [{"text": "old protocol"}]}', "choices.0.message … required"),
        (b'{"choices": [{"message": {"content": null}}]}', "choices.0.message.content"),
        (b'{"choices": [{"message": {"content": 7}}]}', "choices.0.message.content"),
        (b'{"choices": [{"message": {"content": " "}}]}', "message without text"),
    ],
)
def test_what_is_no_chat_completion_is_garbled(body, what):
    fault, requests = ask(says(200, body))
    assert (fault.cause, len(requests)) == ("garbled", 1)
    assert re.search(facts(what), str(fault))
    assert body.decode(errors="replace")[:20].strip("\x00") in str(fault)
    assert re.search(facts("chat completion … address … model"), str(fault))
    assert len(str(fault)) < 700


def test_half_a_character_does_not_reach_a_tokenizer():
    fault, _ = ask(says(200, b'{"choices": [{"message": {"content": "a\\ud83cb"}}]}'))
    assert fault.cause == "garbled"


def test_a_key_stands_in_no_fault_even_if_the_server_repeats_it():
    said = f"Incorrect key: {KEY}.".encode()
    for behaviour in (
        says(401, said),
        says(500, said),
        says(200, said),
        says(200, b'{"key": "%s"}' % KEY.encode()),
    ):
        fault, _ = ask(behaviour, key=KEY)
        assert KEY not in str(fault)
        assert "[hidden]" in str(fault)
        assert KEY not in repr(fault)


@pytest.mark.parametrize("key", [KEY, 'sk/a"b\\c+d'])
def test_a_key_is_blacked_out_of_an_answer_and_however_it_is_spelt(key):
    answer, _ = ask(says(200, completion(f"Your key is {key}, is it not?")), key=key)
    assert answer == "Your key is [hidden], is it not?"
    packed = base64.b64encode(f"Bearer {key}".encode()).decode()
    spelt = (json.dumps(key), json.dumps(key).replace("/", "\\/"), quote(key, safe=""), packed)
    for spelling in spelt:
        fault, _ = ask(says(401, f"no entry for {spelling}!".encode()), key=key)
        assert "no entry for" in str(fault)
        assert "[hidden]" in str(fault)
        assert spelling.strip('"') not in str(fault)


def test_a_redirection_is_a_refusal_and_its_address_is_never_asked():
    with serving(OK) as other:
        fault, requests = ask(
            says(307, b"over there", Location=f"{other.base_url}/chat/completions"), key=KEY
        )
        assert other.requests == []
    assert (fault.cause, len(requests)) == ("refused", 1)


# ------------------------------------------------------------ concurrency and proxies


def test_only_so_many_questions_are_open_at_a_time_in_every_loop():
    open_now, most, lock, pairs = 0, 0, threading.Lock(), threading.Barrier(2)

    def counts(handler):
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        pairs.wait(60)  # wait for the second open request
        time.sleep(0.05)  # time for a third request, which must not come
        with lock:
            open_now -= 1
        OK(handler)

    async def many(asked):
        return await asyncio.gather(*(asked.ask(ASKED) for _ in range(6)))

    with serving(counts) as server:
        asked = endpoint(server.base_url, concurrency=2)
        for _ in range(2):
            assert asyncio.run(many(asked)) == ["Because."] * 6
    assert most == 2


def test_this_machine_is_reached_directly_and_everything_else_through_the_proxy_of_the_environment(
    monkeypatch,
):
    with serving(says(200, completion("from the proxy"))) as proxy, serving(OK) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        assert asyncio.run(endpoint(server.base_url).ask(ASKED)) == "Because."
        assert proxy.requests == []
        assert asyncio.run(endpoint("http://model.invalid/v1/").ask(ASKED)) == "from the proxy"
        assert [path for path, _, _ in proxy.requests] == [
            "http://model.invalid/v1/chat/completions"
        ]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1", "127.8.9.10:1", "[::1]:8000", "a.localhost"],
)
def test_addresses_of_this_machine(host):
    assert is_loopback(f"http://{host}/v1")


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "localhost.example.com",
        "10.0.0.1",
        "128.0.0.1",
        "[2001:db8::1]",
        "[::1",
        "[1]",
    ],
)
def test_addresses_elsewhere(host):
    assert not is_loopback(f"http://{host}/v1")


# ------------------------------------------------------------ connections


class Keeping(ThreadingHTTPServer):
    """A server that responds "Because." and keeps connections open.

    `connections` counts all connections so far, `open` the connections open now.
    """

    daemon_threads = True

    def __init__(self, *, drop=False, cookie=False):
        super().__init__(("127.0.0.1", 0), KeepingHandler)
        self.connections = self.open = 0
        self.drop, self.cookie, self.cookies = drop, cookie, []
        self.lock = threading.Lock()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class KeepingHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        with self.server.lock:
            self.server.connections += 1
            self.server.open += 1

    def finish(self):
        super().finish()
        with self.server.lock:
            self.server.open -= 1

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.cookies.append(self.headers["Cookie"])
        time.sleep(0.01)
        says(200, completion("Because."), **({"Set-Cookie": "id=7"} if self.server.cookie else {}))(
            self
        )
        # Close without notice, like a server that is short of connections.
        self.close_connection = self.server.drop

    def log_message(self, *_):
        """Log nothing."""


async def ask_often(asks, times, at_once):
    for _ in range(times):
        assert (
            await asyncio.gather(*(asks.ask(ASKED) for _ in range(at_once)))
            == ["Because."] * at_once
        )


def test_connections_are_kept_for_the_next_question():
    with running(Keeping()) as server:
        asyncio.run(ask_often(endpoint(server.base_url), times=10, at_once=1))
        assert server.connections == 1
        asyncio.run(ask_often(endpoint(server.base_url), times=10, at_once=8))
        assert server.connections <= 1 + 4  # `concurrency` is 4


def test_connections_close_with_their_loop():
    with running(Keeping()) as server:
        asks = endpoint(server.base_url)
        for number in range(1, 4):
            asyncio.run(ask_often(asks, times=3, at_once=3))
            deadline = time.monotonic() + 60
            while server.open and time.monotonic() < deadline:
                time.sleep(0.01)
            assert (server.open, server.connections) == (0, 3 * number)


def test_a_kept_connection_that_the_server_closes_meanwhile_is_tried_again():
    with running(Keeping(drop=True)) as server:

        async def ask_on():
            asks = endpoint(server.base_url)
            for pause in (0.0, 0.05, 0.0, 0.001, 0.0, 0.0):
                assert await asks.ask(ASKED) == "Because."
                await asyncio.sleep(pause)

        for _ in range(5):
            asyncio.run(ask_on())
        assert server.connections == 5 * 6


def test_a_new_connection_that_breaks_is_one():
    fault, requests = ask(drops_at_once, retries=0)
    assert (fault.cause, len(requests)) == ("unreachable", 1)


def drops_at_once(handler):
    """A behaviour: close the connection without sending a byte."""


def test_a_question_carries_nothing_of_the_one_before():
    with running(Keeping(cookie=True)) as server:
        asyncio.run(ask_often(endpoint(server.base_url), times=3, at_once=1))
        assert server.cookies == [None] * 3
