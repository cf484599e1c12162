"""Invalid requests to a verifier server: each gets a status with a reason in JSON, and the server
lives."""

import asyncio
import json
import re
import select
import socket
import time
from contextlib import suppress

import httpx2
import pytest

from motet.clients.reward_server import VerifierFault
from motet_verifier.model import Verifier
from tests.fixtures.http_servers import conform
from tests.fixtures.messages import says
from tests.fixtures.verifiers import POISON, chat
from tests.verifier_serving import CHATS, KEY, body, client, serving

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def known(verifier_folder):
    """The score of the first of CHATS."""
    verifier = Verifier.load(verifier_folder, device="cpu")
    return verifier.scores([verifier.encode(CHATS[0])])


def asked(content, role="assistant", **more):
    return json.dumps(
        {
            "query_responses": [
                [{"role": "user", "content": "?"}, {"role": role, "content": content, **more}]
            ]
        }
    )


BAD = {
    "no body": (b"", 400, "the body is not JSON"),
    "half a body": (b'{"query_responses": [', 400, "the body is not JSON"),
    "a page": (b"<html></html>", 400, "the body is not JSON"),
    "no UTF-8": (asked("@").encode().replace(b"@", b"\xff\xfe"), 400, "the body is not JSON"),
    "UTF-16": (asked("1").encode("utf-16"), 400, "the body is not JSON"),
    "half a character": (
        asked("@").encode().replace(b"@", b"\\ud83d"),
        400,
        "the body is not JSON",
    ),
    "the other half": (asked("@").encode().replace(b"@", b"\\ude00"), 400, "the body is not JSON"),
    "a control character": (
        asked("@").encode().replace(b"@", b"\x00"),
        400,
        "the body is not JSON",
    ),
    "deep": (b"[" * 100_000, 400, "the body is not JSON"),
    "deep and closed": (
        b'{"query_responses": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        400,
        "the body is not JSON",
    ),
    "two values": (asked("1").encode() * 2, 400, "the body is not JSON"),
    "NaN": (b'{"query_responses": NaN}', 422, "query_responses"),
    "infinity": (
        asked("@").encode().replace(b'"@"', b"-Infinity"),
        422,
        "[0][1].content … string",
    ),
    "no object": (b"[]", 422, "the body"),
    "nothing": (b"null", 422, "the body"),
    "no key": (b"{}", 422, "query_responses … required"),
    "another key": (
        b'{"query_responses": [], "queries": []}',
        422,
        "query_responses … at least 1",
    ),
    "no chats": (
        b'{"query_responses": []}',
        422,
        "query_responses … at least 1",
    ),
    "an empty chat": (
        b'{"query_responses": [[]]}',
        422,
        "query_responses[0] … at least 2",
    ),
    "texts": (
        b'{"query_responses": ["What?"]}',
        422,
        "query_responses[0]",
    ),
    "too many chats": (json.dumps(body(*[chat("1")] * 1025)).encode(), 422, "at most 1024 items"),
    "an answer alone": (
        b'{"query_responses": [[{"role": "assistant", "content": "1"}]]}',
        422,
        "at least 2 items",
    ),
    "no answer": (
        asked("1", "user").encode(),
        422,
        "last message … role user … assistant's answer",
    ),
    "a role that is none": (
        asked("1", "judge").encode(),
        422,
        "query_responses[0][1].role … 'system'",
    ),
    "a role of another case": (asked("1", "Assistant").encode(), 422, "query_responses[0][1].role"),
    "a number": (
        asked(7).encode(),
        422,
        "query_responses[0][1].content … string",
    ),
    "no text": (
        asked(None).encode(),
        422,
        "query_responses[0][1].content … string",
    ),
    "a name": (
        asked("1", name="ann").encode(),
        422,
        "query_responses[0][1].name … not permitted",
    ),
    "longer than the context": (
        asked("so it is " * 100).encode(),
        422,
        "at most 96 … context",
    ),
    "a long text": (
        asked("x" * 1_000_000).encode(),
        422,
        "1,000,003 characters … at most 1,536 … 16",
    ),
    "many messages": (
        asked("1").replace("[[", "[[" + '{"role": "user", "content": ""},' * 9999).encode(),
        422,
        "characters",
    ),
    "many values": (
        b'{"query_responses": [[' + b"0," * 4_000_000 + b"0]]}",
        413,
        "more than 262,144 values",
    ),
    "many keys": (
        ("{" + ",".join(f'"{k}":0' for k in range(700_000)) + "}").encode(),
        413,
        "more than 262,144 values",
    ),
    "one string of quotes": (b'{"' + b'\\"' * 2_000_000, 400, "the body is not JSON"),
    "10 MB": (asked("x" * 10_000_000).encode(), 413, "body … more than 8,388,608 bytes"),
    "a score that is no number": (
        asked(f"4{POISON}2").encode(),
        422,
        "score … finite number",
    ),
}


@pytest.mark.parametrize(
    "content", [pytest.param(*one, id=name) for name, one in ((n, (c,)) for n, c in BAD.items())]
)
def test_what_is_no_request_gets_a_reason_and_the_next_one_its_scores(
    verifier_server, known, content
):
    sent, status, reason = content
    with httpx2.Client(base_url=verifier_server.url, timeout=60.0) as connection:
        answer = connection.post(
            "/predict", content=sent, headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, list(answer.json())) == (status, ["error"])
        assert says(answer.json()["error"], reason)
        after = connection.post("/predict", json=body(CHATS[0]))
    assert after.json()["result"] == pytest.approx([known[0]], abs=1e-5)
    assert verifier_server.process.poll() is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/predict/", 404),
        ("POST", "/v1/predict", 404),
        ("GET", "/docs", 404),
        ("GET", "/predict", 405),
        ("PUT", "/predict", 405),
        ("OPTIONS", "/predict", 405),
        ("POST", "/health", 405),
        ("GET", f"/{'%ff' * 3000}", 404),
        ("GET", "/%ed%a0%80", 404),
    ],
)
def test_what_is_not_served_is_said_in_json(verifier_server, method, path, status):
    answer = httpx2.request(method, verifier_server.url + path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])
    assert len(answer.json()["error"]) < 320
    assert status != 405 or answer.headers["allow"] in ("GET", "POST")


def speak(server, *parts, seconds=10.0):
    """Send these bytes one after the other on one connection; return all that the server sends.

    The server may close the connection before the end.
    """
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        try:
            for part in parts:
                connection.sendall(part)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            assert len(parts) > 2  # the server refused before it had everything
        said = b""
        while more := connection.recv(65_536):
            said += more
    return said


HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


def test_a_length_that_is_a_lie_neither_passes_the_limit_nor_stops_the_server(verifier_server):
    small = json.dumps(body(CHATS[0])).encode()
    assert (
        b" 400 "
        in speak(
            verifier_server, HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n" + small
        )[:20]
    )
    assert b" 400 " in speak(verifier_server, HEAD + b"Content-Length: -5\r\n\r\n" + small)[:20]
    assert b'"error"' in speak(
        verifier_server, HEAD + b"Content-Length: 9\r\n\r\n" + small
    )  # cut off: no JSON
    assert b"HTTP/1.1 200" not in speak(
        verifier_server, HEAD + f"Content-Length: {len(small) + 9}\r\n\r\n".encode() + small
    )
    assert httpx2.get(f"{verifier_server.url}/health").status_code == 200


def test_a_body_without_a_length_is_counted_as_it_comes(verifier_server):
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    said = speak(
        verifier_server, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 160, b"0\r\n\r\n"
    )
    assert said.startswith(b"HTTP/1.1 413")
    assert says(said.decode(), "body … more than 8,388,608 bytes")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "no Content-Type … application/json"),
        (
            {"Content-Type": "text/plain"},
            "Content-Type … 'text/plain' … application/json",
        ),
        ({"Content-Type": "application/x-www-form-urlencoded"}, "application/json"),
        ({"Content-Type": "multipart/form-data; boundary=x"}, "application/json"),
        ({"Content-Type": "application/jsonp"}, "application/json"),
        (
            {"Content-Type": "application/json", "Content-Encoding": "gzip"},
            "the Content-Encoding is 'gzip'",
        ),
    ],
)
def test_what_is_not_said_to_be_json_is_not_read(verifier_server, headers, reason):
    sent = json.dumps(body(CHATS[0])).encode()
    answer = httpx2.post(f"{verifier_server.url}/predict", content=sent, headers=headers)
    assert (answer.status_code, list(answer.json())) == (415, ["error"])
    assert says(answer.json()["error"], reason)


@pytest.mark.parametrize(
    "kind",
    ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=UTF-8"],
)
def test_json_is_json_however_it_is_spelt(verifier_server, kind):
    sent = json.dumps(body(CHATS[0])).encode()
    assert (
        httpx2.post(
            f"{verifier_server.url}/predict", content=sent, headers={"Content-Type": kind}
        ).status_code
        == 200
    )


@pytest.fixture(scope="module")
def impatient(verifier_folder):
    """A server that waits one second for clients."""
    with serving(verifier_folder, "--client-seconds", "1") as one:
        yield one
        assert one.stop() == (0, "")


def flood(server, head, chunk, seconds=30.0, wait=False):
    """Send without end; return the response, and the seconds until the server closed the
    connection. With `wait`, send the chunks once the response has begun."""
    begun, said = time.monotonic(), b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        connection.sendall(head)
        if wait:
            assert select.select([connection], [], [], seconds)[0]
        connection.settimeout(0.2)
        try:
            while time.monotonic() - begun < seconds:
                with suppress(TimeoutError):
                    connection.send(chunk)
        except OSError:
            closed = time.monotonic() - begun
            while more := connection.recv(65_536):
                said += more
            return said, closed
    pytest.fail(f"it was heard for {seconds} s")


@pytest.mark.parametrize(
    ("head", "chunk", "status"),
    [
        (
            b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
            b"10000\r\n" + b" " * 65_536 + b"\r\n",
            413,
        ),
        pytest.param(
            b"Content-Type: application/json\r\nContent-Length: 999999999999\r\n",
            b" " * 65_536,
            413,
            marks=pytest.mark.wide,
        ),
        pytest.param(
            b"Content-Type: text/plain\r\nContent-Length: 999999999999\r\n",
            b" " * 65_536,
            415,
            marks=pytest.mark.wide,
        ),
        (b"Content-Type: text/plain\r\nTransfer-Encoding: chunked\r\n", b"no chunk", 415),
    ],
)
def test_who_sends_on_behind_a_no_is_answered_and_let_go_of(impatient, head, chunk, status):
    request = b"POST /predict HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n"
    # 415 follows from the head alone; a wrong chunk that arrives with it would get 400
    said, closed = flood(impatient, request, chunk, wait=status == 415)
    assert said.startswith(f"HTTP/1.1 {status} ".encode())
    assert said.count(b"HTTP/1.1") == 1
    assert list(json.loads(said.partition(b"\r\n\r\n")[2])) == ["error"]
    assert closed < 15


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/nowhere", 404), pytest.param("DELETE", "/predict", 405, marks=pytest.mark.wide)],
)
def test_a_body_that_no_route_reads_is_not_read_to_its_end(impatient, method, path, status):
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n".encode()
    said, _ = flood(impatient, head, b" " * 65_536)
    assert said.startswith(f"HTTP/1.1 {status} ".encode())


def test_a_length_that_is_too_large_is_refused_before_the_body_is_sent(verifier_server):
    head = HEAD + b"Expect: 100-continue\r\nContent-Length: 9999999999\r\n\r\n"
    said = speak(verifier_server, head)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"100 Continue" not in said


def test_a_client_hears_why_although_it_had_not_sent_all(verifier_server):
    """The client must not see a broken connection, because it would then retry."""
    for _ in range(5):
        with pytest.raises(
            VerifierFault, match=r"status 413: .*has more than 8,388,608 bytes"
        ) as caught:
            asyncio.run(client(verifier_server.url).score([chat("x" * 40_000_000)]))
        assert caught.value.cause == "verifier_refused"


def test_two_lengths_are_one_too_many_and_nothing_behind_them_is_a_request(verifier_server):
    hidden = b"GET /model HTTP/1.1\r\nHost: x\r\n\r\n"
    both = (
        HEAD + f"Content-Length: {5 + len(hidden)}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    )
    said = speak(verifier_server, both + b"0\r\n\r\n" + hidden)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1") == 1


def test_what_is_no_http_gets_one_answer_and_does_not_stop_it(impatient):
    for noise in (
        b"\x16\x03\x01\x02\x00",
        b"POST /predict\r\n\r\n",
        b"\x00" * 1000,
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        HEAD + b"Transfer-Encoding: gzip\r\n\r\n12345",
        # the head is right, so the application begins before the chunk is refused
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nno chunk\r\n",
        b"POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n",
    ):
        said = speak(impatient, noise)
        assert said.startswith(b"HTTP/1.1 400 "), noise[:50]
        assert said.count(b"HTTP/1.1") == 1
    speak(impatient, b"\r\n" * 50)
    assert httpx2.get(f"{impatient.url}/health").json() == {"status": "ok"}


SETTINGS = '[checks]\npositive_data_acceptance.expected-statuses = ["2xx", 422]\n'
"""No schema can express that the last role is the assistant's, or how many tokens a text has."""


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(20, marks=pytest.mark.wide),
        pytest.param(2000, marks=[pytest.mark.wide, pytest.mark.slow]),
    ],
)
def test_the_schema_says_what_the_server_does(verifier_folder, tmp_path, examples):
    with serving(verifier_folder, "--key-variable", "SERVER_KEY") as one:
        assert conform(one.url, tmp_path, KEY, examples, SETTINGS) >= examples
        told = httpx2.get(f"{one.url}/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
        answered = {int(status) for status in re.findall(r'requests_total{status="(\d+)"}', told)}
        assert {200, 401, 422} <= answered <= {200, 400, 401, 404, 405, 413, 415, 422}
        code, complaints = one.stop()
        assert (code, "Traceback" in complaints) == (0, False), complaints
