"""Tests the client against local reward servers with correct and faulty behaviour, over real
sockets."""

import asyncio
import json
import re
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from motet.clients.reward_server import (
    ConstantScores,
    Ensemble,
    RewardServer,
    VerifierFault,
)
from motet.core import Message
from motet.errors import RewardFault
from tests.fixtures.http_servers import running
from tests.fixtures.messages import facts

KEY = "sk-secret-0123456789"


def chat(text):
    return (Message("user", "6 * 7?"), Message("assistant", text))


CHATS = [chat("41"), chat("42"), chat("43")]


def scores(handler, asked):
    """A behaviour: score 1 for a chat that ends with 42, else 0.25."""
    result = [1 if one[-1]["content"] == "42" else 0.25 for one in asked["query_responses"]]
    sends(handler, 200, json.dumps({"result": result}).encode())


def sends(handler, status, body):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def says(body, status=200):
    return lambda handler, asked: sends(handler, status, body)


def hangs(handler, asked):
    handler.server.released.wait(10)


def drops(handler, asked):
    """A behaviour: send half a response."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"result": [')


class Server(ThreadingHTTPServer):
    """A server with one behaviour per request. The last behaviour repeats."""

    daemon_threads = True

    def __init__(self, *behaviours):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behaviours, self.requests, self.released = list(behaviours), [], threading.Event()

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect."""


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, dict(self.headers.items()), asked))
        turn = min(len(self.server.requests), len(self.server.behaviours)) - 1
        self.server.behaviours[turn](self, asked)

    def log_message(self, *_):
        """Log nothing."""


@contextmanager
def serving(*behaviours):
    with running(Server(*behaviours)) as server:
        try:
            yield server
        finally:
            server.released.set()


def verifier(port, **settings):
    async def sleep(seconds):
        """Do not wait."""

    chosen = {
        "timeout_seconds": 5.0,
        "retries": 2,
        "concurrency": 4,
        "jitter": lambda: 0.0,
        "sleep": sleep,
        **settings,
    }
    return RewardServer(f"http://127.0.0.1:{port}/", **{"batch_size": 64, **chosen})


def score(*behaviours, chats=CHATS, **settings):
    """Send one request to a server with these behaviours. Return (scores or fault, requests)."""
    with serving(*behaviours) as server:
        try:
            found = asyncio.run(verifier(server.server_port, **settings).score(chats))
        except VerifierFault as fault:
            found = fault
        return found, server.requests


def test_chats_are_asked_in_the_published_protocol():
    found, ((path, headers, asked),) = score(scores, key=KEY)
    assert found == [0.25, 1.0, 0.25]
    assert all(type(one) is float for one in found)
    assert path == "/predict"
    assert headers["Authorization"] == f"Bearer {KEY}"
    question = {"role": "user", "content": "6 * 7?"}
    answers = [{"role": "assistant", "content": text} for text in ("41", "42", "43")]
    assert asked == {"query_responses": [[question, answer] for answer in answers]}


def test_without_a_key_none_is_sent():
    _, ((_, headers, _),) = score(scores)
    assert "Authorization" not in headers


def test_many_chats_go_in_batches_and_their_scores_come_back_in_order():
    chats = [chat("42" if k in (1, 4) else "0") for k in range(5)]
    found, requests = score(scores, chats=chats, batch_size=2)
    assert found == [0.25, 1.0, 0.25, 0.25, 1.0]
    assert sorted(len(asked["query_responses"]) for _, _, asked in requests) == [1, 2, 2]
    assert score(scores, chats=[]) == ([], [])


def test_what_may_pass_is_asked_again():
    found, requests = score(says(b"busy", 503), drops, scores)
    assert (found, len(requests)) == ([0.25, 1.0, 0.25], 3)


@pytest.mark.parametrize(
    ("behaviour", "cause", "requests", "said"),
    [
        (says(b"no such model", 404), "refused", 1, "answered with status 404: no such model"),
        (says(b"busy", 503), "refused", 3, "status 503: busy (3 tries)"),
        (drops, "unreachable", 3, "the connection failed"),
        (hangs, "timeout", 1, "did not answer within 0.4 s"),
    ],
)
def test_a_server_that_gives_no_answer_is_a_fault(behaviour, cause, requests, said):
    fault, asked = score(behaviour, timeout_seconds=0.4)
    assert isinstance(fault, RewardFault)
    assert (fault.cause, len(asked)) == (f"verifier_{cause}", requests)
    assert said in str(fault)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"<html>", "the body … Invalid JSON"),
        (b"", "the body … Invalid JSON"),
        (b"[" * 100_000, "the body … Invalid JSON"),
        (b"[]", "the body … object"),
        (b'{"results": [1, 1, 1]}', "result … required"),
        (b'{"result": 1}', "result … array"),
        (b'{"result": [1, 1]}', "2 scores for 3 chats"),
        (b'{"result": [1, 1, 1, 1]}', "4 scores for 3 chats"),
        (b'{"result": [1, 1, 1.01]}', "result.2 … less … 1"),
        (b'{"result": [1, 1, -0.5]}', "result.2 … greater … 0"),
        (b'{"result": [1, 1, NaN]}', "result.2"),
        (b'{"result": [1, 1, Infinity]}', "result.2"),
        (b'{"result": [1, 1, null]}', "result.2 … number"),
        (b'{"result": [1, 1, true]}', "result.2 … number"),
        (b'{"result": [1, 1, "1"]}', "result.2 … number"),
        (b'{"result": [[1], [1], [1]]}', "result.0 … number"),
    ],
)
def test_what_are_no_scores_is_a_fault_and_no_zero(body, what):
    fault, requests = score(says(body))
    assert (fault.cause, len(requests)) == ("verifier_garbled", 1)
    assert re.search(facts(what), str(fault))
    assert 'expected {"result": [a score in [0, 1] for every chat]}' in str(fault)
    assert len(str(fault)) < 700


def test_one_batch_without_scores_is_a_fault_of_the_whole():
    fault, _ = score(scores, says(b"{}"), batch_size=2)
    assert fault.cause == "verifier_garbled"


def test_a_key_stands_in_no_fault():
    fault, _ = score(says(b"wrong key %s" % KEY.encode(), 401), key=KEY)
    assert KEY not in str(fault)
    assert "[hidden]" in str(fault)


def test_nobody_at_the_address_is_a_fault():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(VerifierFault, match="the connection failed") as caught:
            asyncio.run(verifier(unused.getsockname()[1]).score(CHATS))
    assert caught.value.cause == "verifier_unreachable"


def test_only_so_many_requests_are_open_at_a_time():
    open_now, most, lock, pairs = 0, 0, threading.Lock(), threading.Barrier(2)

    def counts(handler, asked):
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        pairs.wait(60)  # wait for the second open request
        time.sleep(0.05)  # time for a third request, which must not come
        with lock:
            open_now -= 1
        scores(handler, asked)

    found, requests = score(counts, chats=CHATS * 2, batch_size=1, concurrency=2)
    assert (len(found), len(requests), most) == (6, 6, 2)


def test_a_constant_scores_every_chat_alike():
    assert asyncio.run(ConstantScores(0.5).score(CHATS)) == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(("combine", "expected"), [("mean", [0.5, 0.35]), ("minimum", [0.2, 0.3])])
def test_an_ensemble_is_the_mean_of_its_scores_or_the_lowest(combine, expected):
    class Fixed:
        def __init__(self, *scores):
            self.scores = list(scores)

        async def score(self, chats):
            return self.scores[: len(chats)]

    both = Ensemble([Fixed(0.2, 0.4), Fixed(0.8, 0.3)], combine)
    assert asyncio.run(both.score(CHATS[:2])) == pytest.approx(expected)


def test_an_ensemble_gives_no_score_where_one_of_it_gives_none():
    class Broken:
        async def score(self, chats):
            raise VerifierFault("refused", "no")

    with pytest.raises(VerifierFault, match="no"):
        asyncio.run(Ensemble([ConstantScores(1.0), Broken()], "mean").score(CHATS))


@pytest.mark.parametrize(
    ("status", "said_no"),
    [
        (400, True),
        (401, False),
        (404, False),
        (413, True),
        (415, False),
        (422, True),
        (429, False),
        (500, False),
        (503, False),
    ],
)
def test_a_fault_knows_whether_the_question_was_refused_or_nobody_is_served(status, said_no):
    fault, _ = score(says(b"no", status), retries=1)
    assert (fault.cause, fault.said_no) == ("verifier_refused", said_no)
