"""`motet serve` and `motet chat` as processes: OpenAI's client, a killed server, fuzzing."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import httpx2
import openai
import pytest
import yaml

import motet_serve
from benchmarks import serve as load
from motet.errors import ConfigError
from motet_cluster import vllm_checks
from tests.fixtures.http_servers import conform
from tests.fixtures.messages import facts, says
from tests.fixtures.model_folders import make_model_folder
from tests.fork_server import ForkedProcess
from tests.served_team import KEY, Command
from tests.small_runs import ROOT, TINY

CONFIG = f"""\
name: served
threads: 1
environment: {{name: debate_tiny}}
models: {{tiny: {{embedded: {TINY}, device: cpu}}}}
policies: {{p: {{model: tiny}}, q: {{model: tiny}}}}
team: {{a: p, b: q}}
decode: {{max_new_tokens: 3}}
rollout: {{samples: [2, 1]}}
train: {{steps: 1}}
"""
SETTINGS = """\
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 404]
"""
"""No schema says which models there are, and which questions the environment reads."""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "served.yaml"
    path.write_text(CONFIG)
    return str(path)


@pytest.fixture
def server(config) -> Iterator[Command]:
    one = Command("serve", config, "--port", "0")
    yield one
    one.process.kill()
    one.process.communicate()


def ask(client, text="12+39", **more):
    messages = [{"role": "user", "content": text}]
    return client.chat.completions.create(model="team", messages=messages, **more)


def test_openais_client_chats_streams_and_hears_errors_and_the_server_ends_orderly(server):
    client = server.client()
    whole = ask(client, seed=1)
    pieces = [chunk.choices[0].delta.content or "" for chunk in ask(client, seed=1, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    assert whole.usage.prompt_tokens > 0
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "1"}])
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(
            model="team/a", messages=[{"role": "user", "content": "long " * 2000}]
        )
    assert long.value.code == "context_length_exceeded"
    code, complaints = server.stop()
    assert code == 0
    assert "Traceback" not in complaints


def test_a_head_that_is_no_http_gets_an_error_of_the_same_form(server):
    with httpx2.Client() as client:
        found = client.post(
            f"{server.url}/v1/chat/completions",
            content=b"{}",
            headers={"Content-Type": "text/plain"},
        )
    assert found.status_code == 415
    assert set(found.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.wide
def test_a_server_that_is_killed_and_started_again_answers_every_request_once(config, monkeypatch):
    forks = SimpleNamespace(Popen=ForkedProcess, PIPE=subprocess.PIPE)
    monkeypatch.setattr(load, "subprocess", forks)
    row = asyncio.run(load.measure(Path(config), 150, distinct=20))
    assert (row["lost"], row["doubled"], row["wrong"], row["exit_code"]) == (0, 0, 0, 0)
    assert row["different_answers"] > 10
    assert row["faults_reported"] > 0
    assert row["requests_per_batch"] > 2


@pytest.mark.wide
@pytest.mark.parametrize("examples", [20, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_schema_says_what_the_server_does(config, tmp_path, examples):
    one = Command("serve", config, "--port", "0", "--key-variable", "SERVER_KEY")
    try:
        assert conform(one.url, tmp_path, KEY, examples, SETTINGS) >= examples
        with pytest.raises(openai.AuthenticationError) as wrong:
            ask(one.client("wrong"))
        assert wrong.value.code == "invalid_api_key"
        assert ask(one.client(KEY)).choices
        code, complaints = one.stop()
        assert (code, "Traceback" in complaints) == (0, False), complaints
    finally:
        one.process.kill()
        one.process.communicate()


def test_questions_can_be_piped_into_chat(config):
    def talk(*options):
        one = Command("chat", config, "--seed", "1", *options, serves=False)
        said, complaints = one.process.communicate("12+39\n\nhello\n12+39\n", timeout=120)
        return one.process.returncode, said, complaints

    code, said, complaints = talk("--show")
    assert code == 1
    assert "got 'hello'; expected two numbers" in complaints
    assert "Traceback" not in complaints
    assert said.count("[a, turn 1] ") == said.count("[b, turn 2] ") == said.count("[team] ") == 2
    assert talk("--show")[1] == said


def test_ask_returns_the_answer_that_chat_prints_first(config):
    said = []
    motet_serve.chat(config, lines=["12+39"], seed=3, write=said.append, show="silent")
    answer = motet_serve.ask(config, "12+39", seed=3, show="silent")
    assert isinstance(answer, motet_serve.TeamAnswer)
    assert [answer.text.rstrip()] == said
    assert [(one.agent, one.turn) for one in answer.messages] == [
        ("a", 0), ("b", 0), ("a", 1), ("b", 1)
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="got 'hello'; expected two numbers"):
        motet_serve.ask(config, "hello", show="silent")
    with pytest.raises(ConfigError, match="temperature"):
        motet_serve.ask(config, "12+39", temperature=1e-40)


def test_every_public_name_is_found_and_no_other():
    assert all(hasattr(motet_serve, name) for name in motet_serve.__all__)
    assert not hasattr(motet_serve, "answer")


def test_a_team_that_cannot_be_asked_is_refused_in_one_line(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(CONFIG.replace("debate_tiny", f"{ROOT}/tests/games.py:Coded"))
    one = Command("chat", str(path), serves=False)
    _, complaints = one.process.communicate("", timeout=120)
    assert one.process.returncode == 2
    assert says(complaints, "Coded … does not define chat_task and chat_answer")
    assert len(complaints.strip().splitlines()) <= 3


def test_without_vllm_the_engine_vllm_is_refused_with_what_to_install(config, monkeypatch):
    monkeypatch.setattr(vllm_checks, "find_spec", lambda name: name == "ray" or None)
    expected = facts('vLLM … not installed … pip install "motet[cluster]" … --engine')
    with pytest.raises(ConfigError, match=expected):
        motet_serve.chat(config, engine="vllm")
    settings = motet_serve.TeamServerSettings(engine="vllm", port=0)
    with pytest.raises(ConfigError, match=expected):
        motet_serve.serve(config, settings=settings)
    with pytest.raises(ConfigError, match=facts("engine … 'vlm' … own or vllm")):
        motet_serve.chat(config, engine="vlm")


def test_a_team_whose_data_is_gone_can_still_be_asked(tmp_path):
    functions = ROOT / "packages/motet/src/motet/environments/chat_texts_test.py"
    config = yaml.safe_load(CONFIG) | {
        "environment": {
            "name": "functions",
            "agents": dict.fromkeys("ab", f"{functions}:prompt"),
            "reward": f"{functions}:reward",
        },
        "data": {"eval": {"path": str(tmp_path / "gone.jsonl")}},
        "rollout": {"samples": [1]},
    }
    (model,) = config["models"].values()
    model.pop("embedded")
    model["path"] = str(make_model_folder(tmp_path / "m", "llama"))
    said = []
    asked = ['{"topic": "snow"}', "snow"]
    assert (
        motet_serve.chat(config, lines=asked, seed=1, write=said.append, complain=said.append) == 1
    )
    assert says(said[1], "row … team's data")
