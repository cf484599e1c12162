"""The application and OpenAI's own client, without a socket and without a model."""

import asyncio
import gc
import json
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import openai
import pytest

from motet.errors import EnginesLost
from motet.settings import Decode, Thinking
from motet_serve.app import create_app
from motet_serve.http.metrics import ServerMetrics
from motet_serve.http.refusals import Refusal
from motet_serve.protocol import WRONG, read_request
from motet_serve.settings import TeamServerSettings
from motet_serve.sharing import SharedSampler
from tests.fixtures.asked_teams import CONTEXT, Saying, saying_team
from tests.fixtures.messages import facts, says

QUESTION = [{"role": "user", "content": "12+39"}]
KEY = "sk-secret-0123456789"
NAMES = ("team", "team/a")


class Talk:
    """A served team: its sampler, OpenAI's client, and a plain client."""

    def __init__(self, saying, app, plain, team):
        self.saying, self.app, self.plain, self.team = saying, app, plain, team

    def client(self, key="any"):
        transport = httpx2.ASGITransport(self.app, raise_app_exceptions=False)
        return openai.AsyncOpenAI(
            api_key=key, base_url="http://localhost/v1", max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(transport=transport),
        )  # fmt: skip

    async def ask(self, key="any", **what):
        extra = {name: what.pop(name) for name in ("show_messages", "foo") if name in what}
        what = {"model": "team", "messages": QUESTION, "extra_body": extra, **what}
        return await self.client(key).chat.completions.create(**what)

    async def refused(self, key="any", **what):
        with pytest.raises(openai.APIStatusError) as caught:
            await self.ask(key, **what)
        return caught.value


@asynccontextmanager
async def talking(key=None, **limits):
    saying, chosen = Saying(), TeamServerSettings(**limits)
    metrics = ServerMetrics("motet_team_")
    shared = SharedSampler(saying, chosen.max_batch, metrics.batch)
    team = saying_team(shared)
    app = create_app(team, "1.2.3", key, chosen, metrics)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    try:
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as plain,
        ):
            yield Talk(saying, app, plain, team)
    finally:
        saying.release.set()
        shared.close()


def run(work, **settings):
    async def go():
        async with talking(**settings) as talk:
            return await work(talk)

    return asyncio.run(asyncio.wait_for(go(), 60))


def test_the_team_answers_a_question_and_tells_its_messages_if_asked():
    async def work(talk):
        plain = await talk.ask(seed=7)
        shown = await talk.ask(seed=7, show_messages=True)
        return plain, shown

    plain, shown = run(work)
    choice = plain.choices[0]
    assert (choice.finish_reason, choice.message.role, plain.model) == ("stop", "assistant", "team")
    assert plain.usage.completion_tokens == 8
    assert plain.usage.total_tokens == plain.usage.prompt_tokens + 8
    assert choice.message.model_extra == {}
    assert choice.message.content == shown.choices[0].message.content
    assert plain.id != shown.id
    told = shown.choices[0].message.model_extra["agent_messages"]
    assert [(one["agent"], one["turn"]) for one in told] == [
        ("a", 1), ("b", 1), ("a", 2), ("b", 2)
    ]  # fmt: skip
    assert told[-1]["content"] in choice.message.content


def test_a_stream_is_the_same_answer_in_pieces():
    async def work(talk):
        whole = await talk.ask(seed=7, n=2, show_messages=True)
        chunks = [
            chunk
            async for chunk in await talk.ask(
                seed=7, n=2, stream=True, stream_options={"include_usage": True},
                show_messages=True,
            )
        ]  # fmt: skip
        return whole, chunks

    whole, chunks = run(work)
    last = chunks.pop()
    assert (last.choices, last.usage) == ([], whole.usage)
    assert {chunk.id for chunk in chunks} == {last.id}
    for choice in whole.choices:
        own = [c.choices[0] for c in chunks if c.choices[0].index == choice.index]
        assert "".join(one.delta.content or "" for one in own) == choice.message.content
        assert [one.finish_reason for one in own if one.finish_reason] == [choice.finish_reason]
        assert own[0].delta.role == "assistant"
        told = [m for one in own for m in (one.delta.model_extra or {}).get("agent_messages", [])]
        assert told == choice.message.model_extra["agent_messages"]


def test_what_an_agent_thought_and_called_stands_beside_its_answer():
    async def work(talk):
        thinks = Decode(thinking=Thinking())
        talk.team.team = replace(talk.team.team, decode={"a": Decode(), "b": thinks})
        answers = [await talk.ask(model=f"team/{agent}", show_messages=True) for agent in "ab"]
        chunks = [one async for one in await talk.ask(model="team/b", stream=True)]
        return answers, chunks

    async def call(talk):
        asked = [{"role": "user", "content": "call"}]
        return await talk.ask(model="team/a", messages=asked, show_messages=True)

    (told,) = run(call).choices[0].message.model_extra["agent_messages"]
    assert told["calls"] == ["add(a=3)"]
    (plain, thought), chunks = run(work)
    assert "reasoning_content" not in plain.choices[0].message.model_extra
    said = thought.choices[0].message.model_extra
    assert said["reasoning_content"] == said["agent_messages"][0]["reasoning_content"] == "hm"
    deltas = [one.choices[0].delta for one in chunks]
    assert [one.model_extra for one in deltas if one.model_extra] == [{"reasoning_content": "hm"}]
    assert "hm" not in "".join(one.content or "" for one in deltas)


def test_the_agents_are_models_of_their_own():
    async def work(talk):
        models = [model.id async for model in talk.client().models.list()]
        one = await talk.client().models.retrieve("team/b")
        chat = [{"role": "developer", "content": "Add."}, *QUESTION]
        answer = await talk.ask(model="team/b", messages=chat, max_completion_tokens=1)
        return models, one, answer, talk.saying.asked

    models, one, answer, asked = run(work)
    assert models == ["team", "team/a", "team/b"]
    assert (one.id, one.owned_by) == ("team/b", "motet")
    assert answer.choices[0].finish_reason == "length"
    assert [(m.role, m.content) for m in asked[0].prompt] == [("system", "Add."), ("user", "12+39")]


def test_an_agent_reads_the_whole_conversation_also_its_own_answers():
    """As in OpenAI's examples: the client appends the message object that it got."""

    async def work(talk):
        messages = [*QUESTION]
        for shown in (False, True, False):
            more = await talk.ask(model="team/a", messages=messages, seed=1, show_messages=shown)
            messages += [more.choices[0].message, {"role": "user", "content": "and 1 more?"}]
        return messages, talk.saying.asked

    messages, asked = run(work)
    told = [(one.role, one.content) for one in asked[-1].prompt]
    assert told == [
        (one["role"], one["content"]) if isinstance(one, dict) else (one.role, one.content)
        for one in messages[:-2]
    ]
    assert [role for role, _ in told] == ["user", "assistant", "user", "assistant", "user"]


def test_a_team_that_cannot_be_asked_is_served_as_its_agents():
    body = json.dumps({"model": "team", "messages": [{"role": "user", "content": "hi"}]}).encode()
    with pytest.raises(Refusal, match=facts("chat_task … chat_answer … team/a, team/b")):
        read_request(body, ("team/a", "team/b"))
    one = body.replace(b'"team"', b'"team/b"')
    assert read_request(one, ("team/a", "team/b")).model == "team/b"


def test_seed_temperature_and_stop_are_honoured():
    async def work(talk):
        first, again, other = [
            (await talk.ask(seed=seed, n=3)).choices for seed in (1, 1, 2)
        ]  # fmt: skip
        await talk.ask(temperature=0, top_p=0.5, stop=["\n"], max_tokens=9)
        return first, again, other, talk.saying.asked[-1]

    first, again, other, request = run(work)
    assert first == again != other
    assert len({choice.message.content for choice in first}) > 1
    assert (request.greedy, request.decode.top_p) == (True, 0.5)
    assert (request.decode.stop, request.decode.max_new_tokens) == (("\n",), 9)


@pytest.mark.parametrize(
    ("what", "status", "code", "param", "said"),
    [
        ({"model": "gpt"}, 404, "model_not_found", "model", "model `gpt` does not exist"),
        ({"temperature": 3}, 400, "invalid_value", "temperature", "temperature … less … 2"),
        ({"temperature": 1e-38}, 400, "invalid_value", "temperature", "expected 1e-30"),
        ({"temperature": 1e-300}, 400, "invalid_value", "temperature", "temperature … 1e-30"),
        ({"temperature": -1e-300}, 400, "invalid_value", "temperature", "temperature … greater"),
        ({"max_tokens": 0}, 400, "invalid_value", "max_tokens", "max_tokens … 1"),
        ({"n": 99}, 400, "invalid_value", "n", "n … 16"),
        ({"messages": []}, 400, "invalid_value", "messages", "messages … at least 1"),
        ({"tools": [{}]}, 400, "invalid_value", "tools", "tools … at most 0"),
        ({"logprobs": True}, 400, "invalid_value", "logprobs", "logprobs … False"),
        ({"presence_penalty": 1}, 400, "invalid_value", "presence_penalty", "presence_penalty … 0"),
        ({"foo": 1}, 400, "invalid_value", "foo", "foo … not permitted"),
        (
            {"messages": [{"role": "user", "content": "hello"}]},
            400, "invalid_value", "messages", "expected two numbers … two digits",
        ),
        (
            {"messages": [{"role": "system", "content": "Hi"}, *QUESTION]},
            400, "unsupported_value", "messages", "one question … system",
        ),
        (
            {"messages": [*QUESTION, {"role": "assistant", "content": "51"}, *QUESTION]},
            400, "unsupported_value", "messages", "only the last … team/a",
        ),
        (
            {"model": "team/a", "messages": [{"role": "user", "content": "x" * (CONTEXT + 1)}]},
            400, "context_length_exceeded", "messages", f"{CONTEXT + 1} tokens",
        ),
        (
            {"max_tokens": 3, "max_completion_tokens": 3},
            400, "unsupported_value", "max_completion_tokens", "max_tokens … one of them",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_worded_as_openais(what, status, code, param, said, stream):
    error = run(lambda talk: talk.refused(stream=stream, **what))
    assert (error.status_code, error.code, error.param) == (status, code, param)
    assert says(error.message, said)
    assert error.type == "invalid_request_error"


@pytest.mark.parametrize("key", [None, "wrong"])
def test_a_wrong_key_is_refused(key):
    async def work(talk):
        answer = await talk.ask(KEY)
        head = {} if key is None else {"Authorization": f"Bearer {key}"}
        body = {"model": "team", "messages": QUESTION}
        refused = await talk.plain.post("/v1/chat/completions", json=body, headers=head)
        error = await talk.refused(key or "other")
        return answer, refused, error, (await talk.plain.get("/health")).json()

    answer, refused, error, health = run(work, key=KEY)
    assert answer.choices[0].message.content
    assert refused.status_code == 401
    assert refused.json()["error"]["code"] == "invalid_api_key"
    assert isinstance(error, openai.AuthenticationError)
    assert health == {"status": "ok"}


@pytest.mark.parametrize(
    ("host", "settings", "status"),
    [
        ("127.0.0.1:8000", {}, 200),
        ("[::1]:8000", {}, 200),
        ("attacker.example:8000", {}, 403),
        ("attacker.example:8000", {"without_key": True}, 200),
        ("team.example.org", {"key": "k"}, 200),
    ],
)
def test_without_a_key_only_requests_to_localhost_are_answered(host, settings, status):
    """A page of another site may have got its name the address of this machine."""

    async def work(talk):
        headers = {"Host": host, "Authorization": "Bearer k"}
        asked = {"model": "team", "messages": QUESTION}
        said = await talk.plain.post("/v1/chat/completions", json=asked, headers=headers)
        listed = await talk.plain.get("/v1/models", headers=headers)
        return said, listed

    said, listed = run(work, **settings)
    assert (said.status_code, listed.status_code) == (status, status)
    if status == 403:
        error = said.json()["error"]
        assert error["code"] == "host"
        assert says(error["message"], f"localhost … {host} … --key-variable … --without-key")


def test_an_error_of_ours_is_a_500_that_says_nothing_more_and_the_next_request_is_answered():
    async def work(talk):
        broken = [{"role": "user", "content": "broken"}]
        error = await talk.refused(model="team/a", messages=broken)
        streamed = await talk.refused(model="team/a", messages=broken, stream=True)
        return error, streamed, await talk.ask()

    error, streamed, after = run(work)
    assert (error.status_code, error.type) == (500, "server_error")
    assert "internal error (TypeError)" in error.message
    assert "a mistake" not in error.message
    assert streamed.status_code == 500
    assert after.choices[0].message.content


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_whose_engines_are_lost_is_not_healthy(stream):
    async def work(talk):
        talk.saying.error = EnginesLost("engine 0 of home h was lost")
        before = await talk.plain.get("/health")
        broken = [{"role": "user", "content": "broken"}]
        error = await talk.refused(model="team/a", messages=broken, stream=stream)
        return before, error, await talk.plain.get("/health")

    before, error, after = run(work)
    assert before.status_code == 200
    assert (error.status_code, error.code) == (503, "no_answer")
    assert after.status_code == 503
    assert after.json()["error"]["code"] == "lost"
    assert says(after.json()["error"]["message"], "start … again … engine 0 of home h … lost")


def test_too_many_too_slow_and_closing_are_said():
    async def work(talk):
        talk.saying.hold()
        first = asyncio.create_task(talk.refused())
        assert await asyncio.to_thread(talk.saying.began.wait, 30)
        full = await talk.refused(n=2)
        late = await first
        return full, late

    full, late = run(work, max_queue=2, request_seconds=0.5)
    assert (full.status_code, full.code) == (429, "rate_limit_exceeded")
    assert full.response.headers["retry-after"] == "1"
    assert (late.status_code, late.code) == (503, "late")


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_client_that_left_had_asked_is_not_sampled_and_its_place_is_free(stream, caplog):
    body = {"model": "team", "messages": QUESTION, "stream": stream}

    async def work(talk):
        talk.saying.hold()
        first = asyncio.create_task(talk.ask(seed=1))
        assert await asyncio.to_thread(talk.saying.began.wait, 30)
        await leave_after_asking(talk.app, body)
        talk.saying.release.set()
        await first
        return talk.saying.batches, (await talk.plain.get("/metrics")).text

    batches, metrics = run(work)
    assert batches == [2, 2]
    assert "motet_team_queue_answers 0.0" in metrics.splitlines()
    gc.collect()  # asyncio logs an exception that nobody asked for when its future is freed
    assert caplog.text == ""


async def leave_after_asking(app, what):
    news = [
        {"type": "http.request", "body": json.dumps(what).encode(), "more_body": False},
        *[{"type": "http.disconnect"}] * 9,
    ]

    async def receive():
        return news.pop(0)

    async def send(message):
        """No client reads it."""

    await app(
        {
            "type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"1")],
            "scheme": "http", "http_version": "1.1", "server": ("x", 80), "client": ("y", 1),
            "root_path": "",
        },
        receive,
        send,
    )  # fmt: skip


def test_concurrent_questions_share_batches_and_answer_as_alone():
    async def work(talk):
        questions = [[{"role": "user", "content": f"{10 + k}+39"}] for k in range(40)]
        alone = [await talk.ask(messages=one, temperature=0) for one in questions]
        talk.saying.batches.clear()
        many = await asyncio.gather(*(talk.ask(messages=one, temperature=0) for one in questions))
        same = [a.choices == b.choices for a, b in zip(alone, many, strict=True)]
        return same, talk.saying.batches, len({answer.id for answer in many})

    same, batches, ids = run(work)
    assert all(same)
    assert ids == 40
    assert sum(batches) == 160
    assert len(batches) < 40


def test_the_schema_names_the_routes_and_every_status():
    async def work(talk):
        return (await talk.plain.get("/openapi.json")).json(), await talk.plain.get("/v1/none")

    schema, missing = run(work)
    assert set(schema["paths"]) == {
        "/v1/chat/completions", "/v1/models", "/v1/models/{name}", "/health", "/metrics"
    }  # fmt: skip
    route = schema["paths"]["/v1/chat/completions"]["post"]
    assert set(route["responses"]) == {"200", *(str(one) for one in WRONG if one != 401)}
    body = route["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["model", "messages"]
    parts = schema["components"]["schemas"]
    assert "AskedMessage" in parts
    for reference in json.dumps(body).split("#/components/schemas/")[1:]:
        assert reference.split('"')[0] in parts
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "unknown_url"


@pytest.mark.parametrize(
    ("field", "value", "named", "said"),
    [
        ("stop", ["a"] * 5, "stop", "stop … at most 4"),
        ("stop", "", "stop", "stop … at least 1 character"),
        ("stop", ["a", None], "stop[1]", "stop[1] … string"),
        ("stop", 5, "stop", "stop … string … at most 4"),
        ("content", None, "messages[0].content", "messages[0].content … string … list of parts"),
        (
            "content",
            [{"type": "image_url"}],
            "messages[0].content[0].type",
            "messages[0].content[0].type … 'text'",
        ),
    ],
)
def test_a_field_of_two_forms_is_named_with_what_is_wrong_in_its_own(field, value, named, said):
    message = {"role": "user", "content": "hi"} | ({field: value} if field == "content" else {})
    more = {} if field == "content" else {field: value}
    with pytest.raises(Refusal) as refused:
        read_request(json.dumps({"model": "team", "messages": [message], **more}).encode(), NAMES)
    assert refused.value.field == named
    assert says(refused.value, said)
