"""Attack a verifier server that has few files with many connections.

An honest client gets its scores. The server's CPU time, files, memory and log stay bounded.
"""

import asyncio
import json
import random
import select
import signal
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from motet.clients.reward_server import VerifierFault
from motet.user_code.blocking import TOGETHER_SECONDS
from motet_verifier.model import Verifier
from tests.fixtures.messages import says
from tests.fixtures.wide import widely
from tests.verifier_serving import CHATS, body, client, serving

FILES, CONNECTIONS, ATTACKERS = 300, 100, 400
POST = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
GET = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts files in /proc"),
]


@pytest.fixture(scope="module")
def known(verifier_folder):
    """The scores of the first of CHATS."""
    verifier = Verifier.load(verifier_folder, device="cpu")
    return [verifier.scores([verifier.encode(one)])[0] for one in CHATS[:4]]


def few_places(folder, *options):
    return serving(folder, "--max-connections", str(CONNECTIONS), *options, files=FILES)


@pytest.fixture(scope="module")
def patient(verifier_folder):
    """A server that waits for clients longer than any test takes."""
    with few_places(verifier_folder, "--client-seconds", "600") as one:
        yield one
        assert one.stop() == (0, "")  # what a client does wrong is not logged


@pytest.fixture(scope="module")
def strict(verifier_folder):
    """A server that waits one second for clients."""
    with few_places(verifier_folder, "--client-seconds", "1") as one:
        yield one
        assert one.stop() == (0, "")


@contextmanager
def attackers(server, count, payload, source="127.0.0.1"):
    """Open connections that each send `payload` once; the server may have closed them since."""
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.settimeout(20)
            one.bind((source, 0))
            one.connect(("127.0.0.1", server.port))
            one.setblocking(False)
            with suppress(OSError):
                one.send(payload)
            sockets.append(one)
        yield sockets


def answer_of(server, *parts):
    """Send these bytes one part after the other; return all that the server sends until it
    closes."""
    said = b""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        for part in parts:
            connection.sendall(part)
            if select.select([connection], [], [], 0.05 if len(parts) > 1 else 0)[0]:
                break
        with suppress(ConnectionResetError):
            while more := connection.recv(65_536):
                said += more
    return said


def files_of(server):
    return psutil.Process(server.process.pid).num_fds()


def processor_seconds(server):
    times = psutil.Process(server.process.pid).cpu_times()
    return times.user + times.system


def rests(server):
    begun, spent = time.monotonic(), processor_seconds(server)
    time.sleep(0.5)
    return processor_seconds(server) - spent < 0.3 * (time.monotonic() - begun)


def megabytes_of(server):
    return psutil.Process(server.process.pid).memory_info().rss / 2**20


def wait_until(true, seconds=60.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it did not happen within {seconds} s"
        time.sleep(0.02)


def ask(server, known):
    """Ask as an honest client, on a new connection."""
    scores = asyncio.run(client(server.url).score(CHATS[: len(known)]))
    assert scores == pytest.approx(known, abs=1e-5)


ATTACKS = {
    "silent": b"",
    "half a head": POST + b"X-Slow: ",
    "half a body": POST + b'Content-Length: 1000\r\n\r\n{"query',
    "half a chunk": POST + b'Transfer-Encoding: chunked\r\n\r\nff\r\n{"query',
    "half a head of HTTP/1.0": b"POST /predict HTTP/1.0\r\n",
    "asked to go on": POST + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    "idle after an answer": GET,
    "answers that nobody reads": GET * 60,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "a head without end": POST + b"X-Long: " + b"x" * 100_000,
}


@pytest.mark.parametrize(
    "name",
    widely(ATTACKS, keep=["silent", "half a body", "answers that nobody reads"]),
)
def test_more_connections_than_files_keep_nobody_out(patient, known, name):
    ask(patient, known)
    wait_until(lambda: files_of(patient) <= 40)
    files, memory = files_of(patient), megabytes_of(patient)
    with attackers(patient, ATTACKERS, ATTACKS[name]):
        for _ in range(5):
            ask(patient, known)
        assert files_of(patient) < FILES
        wait_until(lambda: rests(patient))
        ask(patient, known)
        assert megabytes_of(patient) - memory < 200
    wait_until(lambda: files_of(patient) <= files)
    assert megabytes_of(patient) - memory < 150
    ask(patient, known)


def test_connections_that_come_and_go_keep_nobody_out(patient, known):
    for _ in range(10):
        with attackers(patient, 150, b""):
            pass
        ask(patient, known)


def test_a_request_that_is_computed_keeps_its_connection(verifier_folder):
    with (
        few_places(verifier_folder, "--token-budget", "1") as one,
        long_work(one, 3) as connection,
        attackers(one, ATTACKERS, b""),
    ):
        assert httpx2.get(f"{one.url}/health").status_code == 200
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_there_are_no_more_connections_than_there_may_be(verifier_folder, known):
    with (
        serving(verifier_folder, "--max-connections", "8", "--client-seconds", "600") as one,
        attackers(one, 100, b"") as sockets,
    ):
        ask(one, known)
        # The last one connected before the client did, so all surplus connections are closed by
        # now.
        closed = [each for each in sockets if select.select([each], [], [], 0)[0]]
        assert 100 - 8 <= len(closed) < 100


def test_64_connections_of_one_address_are_served_at_a_time(patient, known):
    async def all_at_once():
        asks = client(patient.url, batch_size=1)
        return await asyncio.gather(*(asks.score(CHATS[:4]) for _ in range(64)))

    for scores in asyncio.run(all_at_once()):
        assert scores == pytest.approx(known, abs=1e-5)


# --------------------------------------------------------------------------------------------- time


def in_bytes(head):
    return [head, *[b"x"] * 1000]


@pytest.mark.parametrize(
    "sent",
    [
        [POST + b"Content-Length: 2000\r\n\r\n{"],
        pytest.param(in_bytes(POST + b"Content-Length: 2000\r\n\r\n"), marks=pytest.mark.wide),
        pytest.param([POST + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{"], marks=pytest.mark.wide),
        [POST + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n"] * 1000],
    ],
)
def test_a_body_that_comes_slowly_is_refused_with_the_reason_and_closed(strict, sent):
    head, _, content = answer_of(strict, *sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    ((key, said),) = json.loads(content).items()
    assert key == "error"
    assert says(said, "body … within 1 s")


@pytest.mark.parametrize(
    ("sent", "answers"),
    [
        ([b""], 0),
        ([POST + b"X-Slow: "], 0),
        (in_bytes(POST + b"X-Slow: "), 0),
        ([GET], 1),
        ([GET * 3], 3),
    ],
)
def test_a_connection_without_a_whole_request_is_closed(strict, sent, answers):
    assert answer_of(strict, *sent).count(b"HTTP/1.1 200 ") == answers


def test_a_client_that_takes_no_answers_is_given_up(strict):
    """Each request was answered or given up before the files are counted."""
    wait_until(lambda: files_of(strict) <= 40)
    files = files_of(strict)
    with attackers(strict, 10, GET * 2000) as sockets:
        for one in sockets:
            assert select.select([one], [], [], 60)[0], "nothing came"
        wait_until(lambda: files_of(strict) <= files)


# ------------------------------------------------------------------------------------------- bodies


def test_bodies_in_tiny_pieces_are_refused_and_keep_nobody_waiting(patient, known):
    pieces = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000
    spent = processor_seconds(patient)
    with attackers(patient, 20, pieces) as sockets:
        ask(patient, known)
        for one in sockets:
            one.settimeout(60)
            with suppress(ConnectionResetError):
                assert one.recv(65_536).startswith(b"HTTP/1.1 400 ")
    assert processor_seconds(patient) - spent < 3  # to read all of them takes 7 s


def test_half_sent_bodies_keep_no_other_body_out(patient, known):
    half = POST + b"Content-Length: 8000000\r\n\r\n" + b" " * 7_000_000
    memory = megabytes_of(patient)
    with ExitStack() as stack:
        for _ in range(8):
            each = socket.create_connection(("127.0.0.1", patient.port), timeout=60)
            stack.enter_context(each).sendall(half)
        for _ in range(3):
            ask(patient, known)
        assert megabytes_of(patient) - memory < 150


# ------------------------------------------------------------------------------------------ the end


def long_work(server, batches=None):
    """Open a connection with a request of many batches, of which some are computed."""
    sent = json.dumps(body(*[CHATS[k % 400] for k in range(1024)])).encode()
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(POST + f"Content-Length: {len(sent)}\r\n\r\n".encode() + sent)
    if batches is not None:
        wait_until(lambda: count_of(server) > batches)
    return connection


def count_of(server):
    """Return the number of batches computed. The request comes from another address than the
    attackers'."""
    with httpx2.Client(transport=httpx2.HTTPTransport(local_address="127.0.0.2")) as other:
        lines = other.get(f"{server.url}/metrics", timeout=60).text.splitlines()
    return next(
        int(float(line.split()[1]))
        for line in lines
        if line.startswith("motet_verifier_batch_answers_count")
    )


def test_nobody_who_keeps_it_waiting_delays_the_end(verifier_folder):
    payloads = (b"", POST, POST + b'Content-Length: 1000\r\n\r\n{"query', GET, GET * 2000)
    with (
        serving(verifier_folder, "--client-seconds", "600", "--grace-seconds", "600") as one,
        ExitStack() as stack,
    ):
        for payload in payloads:
            stack.enter_context(attackers(one, 10, payload))
        assert httpx2.get(f"{one.url}/health").status_code == 200
        assert one.stop() == (0, "")


@pytest.mark.wide
def test_what_is_not_answered_in_the_grace_period_is_given_up(verifier_folder):
    with serving(verifier_folder, "--token-budget", "1", "--grace-seconds", "1") as one:
        with long_work(one, 3) as connection:
            code, complaints = one.stop()
            with suppress(ConnectionResetError):
                assert connection.recv(1000) == b""
        assert code == 0
        assert says(complaints, "1 requests … within 1 s … dropped")
        assert complaints.count("\n") == 1


def test_a_second_signal_ends_it_at_once(verifier_folder):
    with (
        serving(verifier_folder, "--token-budget", "1", "--grace-seconds", "600") as one,
        long_work(one, 3),
    ):
        one.process.send_signal(signal.SIGTERM)
        one.process.send_signal(signal.SIGTERM)  # the same one again, as by `timeout`
        wait_until(lambda: not listens(one))
        time.sleep(2 * TOGETHER_SECONDS)
        assert one.process.poll() is None
        assert one.stop()[0] == -signal.SIGTERM


def listens(server):
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=60).close()
    except OSError:
        return False
    return True


def test_a_client_that_leaves_frees_the_model(verifier_folder, known):
    """Most of the request's 1,024 batches are not computed."""
    with serving(verifier_folder, "--token-budget", "1") as one:
        long_work(one, 3).close()
        ask(one, known)
        assert count_of(one) < 1024
        wait_until(
            lambda: "motet_verifier_queue_answers 0" in httpx2.get(f"{one.url}/metrics").text
        )


def test_random_bytes_keep_nobody_out(patient, known):
    draw = random.Random(0)
    for _ in range(100):
        with attackers(
            patient, 1, draw.choice([b"", POST, GET]) + draw.randbytes(draw.randrange(1, 3000))
        ):
            pass
    ask(patient, known)


def test_http_1_0_is_answered_and_closed(patient):
    said = answer_of(patient, b"GET /health HTTP/1.0\r\n\r\n")
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.endswith(b'{"status":"ok"}')


def test_a_process_that_may_open_too_few_files_is_told_how_to_mend_it(verifier_folder):
    with pytest.raises(AssertionError, match="raise ulimit -n"), serving(verifier_folder, files=36):
        """The server does not start."""


@pytest.mark.wide
def test_a_connection_that_finds_no_place_is_a_fault_that_may_pass(verifier_folder):
    """All connections have requests being computed."""
    with (
        serving(verifier_folder, "--max-connections", "1", "--token-budget", "1") as one,
        long_work(one),
    ):
        begun = processor_seconds(one)
        wait_until(lambda: processor_seconds(one) > begun + 0.3)
        with pytest.raises(VerifierFault) as caught:
            asyncio.run(client(one.url).score(CHATS[:1]))
        assert caught.value.cause == "verifier_unreachable"
