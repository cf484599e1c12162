"""A verifier behind a real socket, in its own process: many clients, termination and kills."""

import asyncio
import os
import random
import re
import signal
import sys
from pathlib import Path

import httpx2
import pytest

from motet.clients.reward_server import VerifierFault
from motet_verifier.model import Verifier
from motet_verifier.scorer import LocalScorer
from tests import fork_server
from tests.fixtures.messages import facts, says
from tests.fixtures.wide import widely
from tests.verifier_serving import CHATS, KEY, REPOSITORY, Served, body, client, figure, serving


@pytest.fixture(scope="module")
def known(verifier_folder):
    """The score of each of CHATS alone, computed in this process."""
    verifier = Verifier.load(verifier_folder, device="cpu")
    found = [verifier.scores([verifier.encode(one)])[0] for one in CHATS]
    assert max(found) - min(found) > 0.2
    assert len({round(score, 4) for score in found}) > 300
    return found


# --------------------------------------------------------------------------------------- the scores


def test_served_and_local_batched_and_single_are_the_same_scores_in_any_order(
    verifier_server, verifier_folder, known
):
    order = random.Random(0).sample(range(len(CHATS)), len(CHATS))
    chats, expected = [CHATS[place] for place in order], [known[place] for place in order]
    local = LocalScorer(Verifier.load(verifier_folder, device="cpu"))
    found = {
        "served": asyncio.run(client(verifier_server.url).score(chats)),
        "served in one request": asyncio.run(
            client(verifier_server.url, batch_size=400).score(chats)
        ),
        "local": asyncio.run(local.score(chats)),
    }
    for name, scores in found.items():
        assert scores == pytest.approx(expected, abs=1e-5), name


@pytest.mark.wide
def test_64_clients_at_once_lose_nothing_double_nothing_and_mix_up_nothing(verifier_server, known):
    before = figure(verifier_server.url, "answers_total")

    async def one_client(number):
        draw, asks, found = random.Random(number), client(verifier_server.url), []
        for _ in range(5):
            places = draw.sample(range(len(CHATS)), draw.randrange(1, 8))
            found.append((places, await asks.score([CHATS[place] for place in places])))
        return found

    async def all_clients():
        return await asyncio.gather(*(one_client(number) for number in range(64)))

    answers = [answer for found in asyncio.run(all_clients()) for answer in found]
    assert len(answers) == 64 * 5
    for places, scores in answers:
        assert scores == pytest.approx([known[place] for place in places], abs=1e-5)
    assert figure(verifier_server.url, "answers_total") - before == sum(
        len(places) for places, _ in answers
    )
    batches = figure(verifier_server.url, "batch_answers_count")
    assert figure(verifier_server.url, "batch_answers_sum") > 2 * batches  # requests were joined


# ---------------------------------------------------------------------------------- keys and queues


def test_a_server_with_a_key_answers_who_has_it(verifier_folder, known):
    with serving(verifier_folder, "--key-variable", "SERVER_KEY") as one:
        with pytest.raises(VerifierFault, match=facts("status 401 … no key")):
            asyncio.run(client(one.url).score(CHATS[:2]))
        with pytest.raises(VerifierFault, match=facts("status 401 … key is wrong")):
            asyncio.run(client(one.url, key="another").score(CHATS[:2]))
        assert asyncio.run(client(one.url, key=KEY).score(CHATS[:2])) == pytest.approx(
            known[:2], abs=1e-5
        )
        assert KEY not in Path(f"/proc/{one.process.pid}/cmdline").read_text()
        assert one.stop() == (0, "")


@pytest.mark.wide
def test_a_full_queue_says_429_and_whoever_comes_again_is_answered(verifier_folder, known):
    with serving(verifier_folder, "--max-queue", "1") as one:

        async def crowd():
            async with httpx2.AsyncClient(
                timeout=60, limits=httpx2.Limits(max_connections=None)
            ) as connections:
                asks = [
                    connections.post(f"{one.url}/predict", json=body(*CHATS)) for _ in range(16)
                ]
                return await asyncio.gather(*asks)

        answers = asyncio.run(crowd())
        refused = [answer for answer in answers if answer.status_code != 200]
        assert 0 < len(refused) < 16
        assert {(answer.status_code, answer.headers["retry-after"]) for answer in refused} == {
            (429, "1")
        }
        assert says(refused[0].json()["error"], "at most 1 … wait … again")
        for answer in answers:
            assert answer in refused or answer.json()["result"] == pytest.approx(known, abs=1e-5)

        async def patient():
            asks = client(one.url, retries=30, batch_size=100)
            return await asyncio.gather(*(asks.score(CHATS[:100]) for _ in range(3)))

        for scores in asyncio.run(patient()):
            assert scores == pytest.approx(known[:100], abs=1e-5)


# ------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("how", widely([signal.SIGTERM, signal.SIGINT], keep=[signal.SIGTERM]))
def test_a_server_that_is_told_to_end_answers_what_is_open(verifier_folder, known, how):
    with serving(verifier_folder, "--token-budget", "512") as one:

        async def ask_and_end():
            asks = client(one.url, batch_size=400)
            open_ = [asyncio.create_task(asks.score(CHATS)) for _ in range(3)]
            while not figure_of(
                await asyncio.to_thread(httpx2.get, f"{one.url}/metrics")
            ) >= 3 * len(CHATS):
                assert not any(one.done() for one in open_)
                await asyncio.sleep(0.01)
            one.process.send_signal(how)
            return await asyncio.gather(*open_)

        for scores in asyncio.run(ask_and_end()):
            assert scores == pytest.approx(known, abs=1e-5)
        _, complaints = one.process.communicate(timeout=30)
        assert (one.process.returncode, complaints) == (0, "")
        with pytest.raises(VerifierFault, match="the connection failed"):
            asyncio.run(client(one.url).score(CHATS[:1]))


def figure_of(answer):
    return float(re.search(r"^motet_verifier_queue_answers (\S+)$", answer.text, re.MULTILINE)[1])


@pytest.mark.wide
def test_a_server_that_is_killed_and_started_again_loses_no_call(verifier_folder, known):
    """Every call ends with its scores, or with a fault that states the cause."""
    with serving(verifier_folder) as first:
        port, calls = first.port, 0

        async def one_client(number):
            nonlocal calls
            draw, asks, found = (
                random.Random(number),
                client(first.url, retries=number % 2 * 8, first_wait_seconds=0.2),
                [],
            )
            while not done.is_set() or len(found) < 20:
                places = draw.sample(range(len(CHATS)), 4)
                try:
                    found.append((places, await asks.score([CHATS[place] for place in places])))
                except VerifierFault as fault:
                    found.append((places, fault))
                    await asyncio.sleep(0.05)
                calls += 1
            return found

        async def all_clients():
            asking = [asyncio.create_task(one_client(number)) for number in range(16)]
            while calls < 100 and not any(one.done() for one in asking):
                await asyncio.sleep(0.01)
            first.process.kill()
            await asyncio.to_thread(first.process.wait)
            second = await asyncio.to_thread(Served, verifier_folder, port=port)
            try:
                await asyncio.sleep(1.0)
                done.set()
                return await asyncio.gather(*asking), await asyncio.to_thread(second.stop)
            finally:
                second.process.kill()
                second.process.communicate()

        done = asyncio.Event()
        found, ended = asyncio.run(all_clients())
    assert ended == (0, "")
    faults = 0
    for places, scores in (answer for answers in found for answer in answers):
        if isinstance(scores, VerifierFault):
            faults += 1
            assert scores.cause == "verifier_unreachable"
        else:
            assert scores == pytest.approx([known[place] for place in places], abs=1e-5)
    assert faults > 0
    for number, answers in enumerate(found):
        assert not isinstance(answers[-1][1], VerifierFault), number  # every client is served again


def test_what_cannot_be_served_is_one_line(tmp_path):
    done = fork_server.run(
        [
            sys.executable,
            "-c",
            "from motet.commands.main import main; main()",
            "verifier",
            "serve",
            str(tmp_path),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert says(done.stderr, f"error: {tmp_path} … no verifier.json … folder of a verifier")
    assert done.stderr.count("\n") == 1
