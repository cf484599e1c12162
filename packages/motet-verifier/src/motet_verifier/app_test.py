"""The application without a socket and without a model.

verifier_server_test.py and verifier_input_test.py use both.
"""

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import httpx2
import pytest

from motet_verifier.app import create_app
from motet_verifier.protocol import WRONG
from motet_verifier.server_settings import VerifierServerSettings
from tests.fixtures.messages import says
from tests.fixtures.verifiers import Saying

KEY = "sk-secret-0123456789"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def saying():
    one = Saying()
    yield one
    one.release.set()


@asynccontextmanager
async def speaking(saying, key=None, **limits):
    app = create_app(saying, "gsm8k", "1.2.3", key, VerifierServerSettings(**limits))
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def asked(*said):
    return {
        "query_responses": [
            [{"role": "user", "content": "?"}, {"role": "assistant", "content": s}] for s in said
        ]
    }


def ask(saying, *requests, **settings):
    """Return the responses to several requests (method, path, and options), sent in order."""

    async def go():
        async with speaking(saying, **settings) as client:
            return [await client.request(method, path, **more) for method, path, more in requests]

    return asyncio.run(go())


def predict(*said, **more):
    return ("POST", "/predict", {"json": asked(*said), **more})


def test_the_published_protocol(saying):
    (answer,) = ask(saying, predict("0.25", "1", "0.5"))
    assert (answer.status_code, answer.json()) == (200, {"result": [0.25, 1.0, 0.5]})
    assert answer.headers["content-type"] == "application/json"


def test_it_says_what_it_serves_and_how_it_went(saying):
    health, model, _, _, metrics = ask(
        saying,
        ("GET", "/health", {}),
        ("GET", "/model", {}),
        predict("1", "0"),
        predict("poison"),
        ("GET", "/metrics", {}),
    )
    assert health.json() == {"status": "ok"}
    assert model.json() == {
        "name": "gsm8k",
        "base": None,
        "context_length": 96,
        "device": "cpu",
        "dtype": "float32",
        "reads": "end",
        "version": "1.2.3",
        "facts": {"made_for": "tests"},
    }
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert {
        'motet_verifier_requests_total{status="200"} 1.0',
        'motet_verifier_faults_total{cause="RewardFault"} 1.0',
        "motet_verifier_answers_total 2.0",
        'motet_verifier_batch_answers_bucket{le="2.0"} 1.0',
        "motet_verifier_queue_answers 0.0",
    } <= set(metrics.text.splitlines())


def test_faults_of_an_answer_are_its_askers_and_those_of_the_model_pass(saying):
    answers = ask(
        saying, predict("poison"), predict("1", "unreadable"), predict("memory"), predict("1")
    )
    assert [one.status_code for one in answers] == [422, 422, 503, 200]
    for one, said in zip(
        answers,
        ("finite number", "answer 2 of 2 … nobody can read that", "compute … out of memory"),
        strict=False,
    ):
        assert says(one.json()["error"], said)
    assert answers[-1].json() == {"result": [1.0]}


def test_a_mistake_of_ours_is_said_without_its_words_and_the_next_request_is_served(saying):
    mistaken, after = ask(saying, predict("mistake"), predict("1"))
    assert mistaken.status_code == 500
    assert mistaken.json().keys() == {"error"}
    assert says(mistaken.json()["error"], "internal error … TypeError … log")
    assert after.json() == {"result": [1.0]}


@pytest.mark.parametrize("path", ["/predict", "/model", "/metrics"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "no key"),
        ("", "no key"),
        (KEY, "no key"),
        (f"Basic {KEY}", "no key"),
        (f"Bearer {KEY[:-1]}", "key is wrong"),
        (f"Bearer {KEY}x", "key is wrong"),
        ("Bearer Schlüssel".encode(), "key is wrong"),
    ],
)
def test_without_the_key_nothing_is_told(saying, path, given, said):
    headers = {} if given is None else {"Authorization": given}
    method = "POST" if path == "/predict" else "GET"
    (answer,) = ask(saying, (method, path, {"headers": headers}), key=KEY)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert says(answer.json()["error"], said)
    assert saying.batches == []


def test_with_the_key_all_is_told(saying):
    more = {"headers": {"Authorization": f"Bearer {KEY}"}}
    found = ask(
        saying,
        predict("1", **more),
        ("GET", "/model", more),
        ("GET", "/metrics", more),
        ("GET", "/health", {}),
        key=KEY,
    )
    assert [one.status_code for one in found] == [200] * 4


def test_a_full_queue_asks_to_come_again(saying):
    async def go():
        async with speaking(saying, max_queue=2) as client:
            saying.hold()
            first = asyncio.create_task(client.post("/predict", json=asked("0.5", "0.5")))
            assert await asyncio.to_thread(saying.began.wait, 5)
            refused = await client.post("/predict", json=asked("0.1"))
            saying.release.set()
            return await first, refused, await client.post("/predict", json=asked("0.1"))

    first, refused, after = asyncio.run(go())
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert says(refused.json()["error"], "2 answers … waiting … at most 2")
    assert (first.json(), after.json()) == ({"result": [0.5, 0.5]}, {"result": [0.1]})


def test_a_request_has_only_so_much_time_and_what_is_late_is_not_computed(saying):
    async def go():
        async with speaking(saying, request_seconds=0.2) as client:
            saying.hold()
            late = await asyncio.gather(
                *(client.post("/predict", json=asked(said)) for said in ("0.5", "0.4"))
            )
            saying.release.set()
            return late, await client.post("/predict", json=asked("0.1"))

    late, after = asyncio.run(go())
    assert [one.status_code for one in late] == [503] * 2
    assert all(says(one.json()["error"], "not answered within 0.2 s … again") for one in late)
    assert after.json() == {"result": [0.1]}
    assert sorted(said for batch in saying.batches for said in batch) in (
        ["0.1", "0.4"],
        ["0.1", "0.5"],
    )


def test_what_a_client_that_left_had_asked_is_not_computed(saying):
    async def go():
        async with speaking(saying) as client:
            saying.hold()
            first = asyncio.create_task(client.post("/predict", json=asked("0.5")))
            assert await asyncio.to_thread(saying.began.wait, 5)
            app = client._transport.app
            await leave_after_asking(app, asked("0.9"))
            saying.release.set()
            return await first

    assert asyncio.run(go()).json() == {"result": [0.5]}
    assert saying.batches == [["0.5"]]


async def leave_after_asking(app, what):
    news = [
        {"type": "http.request", "body": json.dumps(what).encode(), "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive():
        return news.pop(0)

    async def send(message):
        """No client reads it."""

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "headers": [],
        "query_string": b"",
        "scheme": "http",
    }
    await app(
        {**scope, "http_version": "1.1", "server": ("x", 80), "client": ("y", 1), "root_path": ""},
        receive,
        send,
    )


def test_a_body_is_counted_as_it_comes_and_never_read_to_its_end(saying):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1
            yield b" " * 1024

    (answer,) = ask(
        saying, ("POST", "/predict", {"content": endless(), "headers": JSON}), max_body_mb=1 / 64
    )
    assert answer.status_code == 413
    assert "more than 16,384 bytes" in answer.json()["error"]
    assert sent <= 18


def test_a_reason_is_short_and_repeats_nothing_of_the_text(saying):
    more = asked("1")["query_responses"]
    body = {"query_responses": [*more, [{"role": "user", "content": "x" * 5000, "a" * 5000: 1}]]}
    (answer,) = ask(saying, ("POST", "/predict", {"json": body}))
    assert answer.status_code == 422
    assert len(answer.json()["error"]) < 320
    assert "xxx" not in answer.text


def test_what_ends_is_answered_before_it_does(saying):
    async def go():
        app = create_app(saying, "gsm8k", "1", None, VerifierServerSettings())
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://localhost"
        ) as client:
            async with app.router.lifespan_context(app):
                saying.hold()
                first = asyncio.create_task(client.post("/predict", json=asked("0.5")))
                assert await asyncio.to_thread(saying.began.wait, 5)
                threading.Timer(0.1, saying.release.set).start()
            return (
                await first,
                await client.get("/health"),
                await client.post("/predict", json=asked("0.5")),
            )

    first, health, after = asyncio.run(go())
    assert first.json() == {"result": [0.5]}
    assert [one.status_code for one in (health, after)] == [503] * 2
    assert all(says(one.json()["error"], "shutting down") for one in (health, after))


def test_the_schema_names_every_status_and_the_words_of_the_protocol(saying):
    (told,) = ask(saying, ("GET", "/openapi.json", {}), key=KEY)
    schema = told.json()
    assert set(schema["paths"]) == {"/predict", "/health", "/model", "/metrics"}
    route = schema["paths"]["/predict"]["post"]
    assert set(route["responses"]) == {"200", *(str(one) for one in WRONG if one != 403)}
    assert route["security"] == [{"HTTPBearer": []}]
    body = route["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["query_responses"]
    message = body["properties"]["query_responses"]["items"]["items"]
    assert message["properties"]["role"]["enum"] == ["system", "user", "assistant"]
    assert message["additionalProperties"] is body["additionalProperties"] is False
    (told,) = ask(saying, ("GET", "/openapi.json", {}))
    assert "security" not in told.json()["paths"]["/predict"]["post"]
    assert "401" not in told.json()["paths"]["/predict"]["post"]["responses"]
