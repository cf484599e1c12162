"""Whole runs in which one agent is played by a model behind an endpoint."""

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import motet
import motet_compare
import motet_serve
from motet.commands import main as cli
from motet.core import walk
from motet.errors import ConfigError, MotetError
from tests import fork_server
from tests.fixtures.chat_server import Answer, ChatServer, completion
from tests.fixtures.http_servers import running
from tests.fixtures.messages import facts, says
from tests.fixtures.wide import widely
from tests.served_team import Command
from tests.small_runs import (
    GAMES,
    ROOT,
    contents,
    episodes,
    rows,
    run_config,
    steps,
    summary,
    weights,
)

KEY = "sk-partner-0123456789"


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with running(ChatServer()) as server:
        yield server


def partner(server: ChatServer, **keys: Any) -> dict[str, Any]:
    """Return the policies of a team whose agent b is behind an endpoint."""
    endpoint = {"base_url": server.url, "model": "big", "timeout_seconds": 20.0, **keys}
    return {"p": {"model": "tiny"}, "q": {"endpoint": endpoint}}


def config(server: ChatServer, endpoint: dict[str, Any] | None = None, **sections: Any) -> Any:
    return run_config(policies=partner(server, **(endpoint or {})), **sections)


def completions(run: Path, agent: str, name: str = "train-000001") -> list[motet.Completion]:
    return [
        one
        for episode in episodes(run, name)
        if episode.root is not None
        for _, round_ in walk(episode.root)
        for one in round_.samples[agent]
    ]


# ----------------------------------------------------------------------------------------- training


def test_a_policy_learns_beside_a_partner_behind_an_endpoint(train, chat) -> None:
    run = train(config(chat, decode={"max_new_tokens": 3, "top_p": 1.0, "stop": ["!"]}))
    evaluated = 2 * 4  # tasks held out, before and after
    assert len(chat.asked) == evaluated + 2 * 2 * 2, "and steps x tasks x samples"
    first = chat.asked[0]
    assert first["messages"][0]["role"] == "user"
    sent = {name: value for name, value in first.items() if name not in ("messages", "seed")}
    assert sent == {
        "model": "big", "temperature": 1.0, "top_p": 1.0, "max_tokens": 3, "stop": ["!"]
    }  # fmt: skip
    assert len({request["seed"] for request in chat.asked}) == len(chat.asked)
    assert all(0 <= request["seed"] < 2**31 for request in chat.asked)
    for one in completions(run, "b"):
        assert (one.policy, one.tokens, one.logprobs) == ("q", None, None)
        assert one.text in ("no", "zzz")
    mine = [one for name in ("train-000001", "train-000002") for one in completions(run, "a", name)]
    assert sum(row["play/tokens"] for row in steps(run)) == sum(len(one.tokens) for one in mine)
    assert [path.name for path in (run / "team").iterdir()] == ["p"]
    assert all("learn/loss/q" not in row and "learn/loss/p" in row for row in steps(run))
    assert rows(run)[-1]["evaluate/reward"] is not None


def test_the_quickstart_is_learnt_with_a_frozen_partner(train) -> None:
    server = ChatServer(lambda request: completion("def aux(x):\n    return x > 2"))
    with running(server):
        url = f"policies.aux.endpoint.base_url={server.url}"
        run = train(
            "quickstart",
            [url, "policies.aux.endpoint.model=big", "warmup.steps=3", "train.steps=2",
             "train.tasks_per_step=2", "evaluation.tasks=2", "models.tiny.embedded.layers=1",
             "rollout.samples=[2]", "report.tensorboard=false"],
        )  # fmt: skip
    assert len(steps(run)) == 2
    assert {message["role"] for one in server.asked for message in one["messages"]} == {"user"}
    assert {one.text for one in completions(run, "aux")} == {"def aux(x):\n    return x > 2"}
    assert [path.name for path in (run / "team").iterdir()] == ["main"]
    assert summary(run)["endpoints"]["aux"]["answers"] == len(server.asked)


TEAMS: dict[str, dict[str, Any]] = {
    "a critic of each agent": {"algorithm": {"name": "ippo"}, "critic": {"train": "lora"}},
    "one critic of all agents": {"algorithm": {"name": "mappo"}},
    "a critic of tokens": {"algorithm": {"name": "maporl"}, "critic": {"train": "policy"}},
    "a reference": {"algorithm": {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1}},
    "a KL in the reward": {
        "algorithm": {"name": "magrpo", "kl_in": "reward", "kl_coefficient": 0.1}
    },
    "pairs": {"algorithm": {"name": "madpo"}, "rollout": {"samples": [4]}},
    "a reward model": {
        "algorithm": {"name": "magrpo"},
        "reward_model": {"tasks": 2, "samples": 4, "iterations": 1},
    },
    "the partner first": {"team": {"a": "q", "b": "p"}, "algorithm": {"name": "mappo"}},
    "a reward model, the partner first": {
        "team": {"a": "q", "b": "p"},
        "reward_model": {"tasks": 2, "samples": 4, "iterations": 1},
    },
    "the partner at the first turn only": {
        "game": {"turns": 2},
        "rollout": {"samples": [2, 2]},
        "team": {"a": "p", "b": ["q", "p"]},
        "algorithm": {"name": "ippo"},
    },
    "a greedy path": {"algorithm": {"name": "remax"}},
    "crossed answers": {"rollout": {"samples": [2], "pairing": "crossed"}},
    "games ahead": {"train": {"steps": 2, "tasks_per_step": 2, "max_lag": 1}},
    "a bound on the step": {"train": {"steps": 2, "tasks_per_step": 2, "max_step_kl": 0.1}},
    "two models": {
        "models": {
            "tiny": run_config()["models"]["tiny"],
            "other": {"embedded": {"hidden_size": 32, "layers": 1}, "device": "cpu"},
        },
        "game": {"players": ["a", "b", "c"]},
        "team": {"a": "p", "b": "q", "c": "r"},
    },
}


@pytest.mark.parametrize("kind", widely(TEAMS, keep=["one critic of all agents", "a reward model",
    "the partner at the first turn only", "a KL in the reward", "two models"]))  # fmt: skip
def test_everything_that_learns_leaves_the_partner_out(kind, train, chat) -> None:
    said = config(chat, **TEAMS[kind])
    if kind == "two models":
        said["policies"]["r"] = {"model": "other"}
    run = train(said)
    own = {"p", "r"} & said["policies"].keys()
    for row in steps(run):
        assert row["play/faults"] == 0
        learnt = {name.rpartition("/")[2] for name in row if name.startswith("learn/loss/")}
        assert learnt & said["policies"].keys() == own
    assert {path.name for path in (run / "team").iterdir()} == own


def test_a_greedy_game_sends_temperature_0(chat) -> None:
    played = config(chat, endpoint={"temperature": 0.7})
    motet.evaluate(played, greedy=True, show="silent")
    assert {request["temperature"] for request in chat.asked} == {0.0}
    chat.asked.clear()
    motet.evaluate(played, show="silent")
    assert {request["temperature"] for request in chat.asked} == {0.7}


def test_fields_that_are_null_are_not_sent(chat) -> None:
    extra = {"max_tokens": None, "seed": None, "max_completion_tokens": 5}
    motet.evaluate(config(chat, endpoint={"extra": extra}), show="silent")
    assert not chat.asked[0].keys() & {"max_tokens", "seed", "stop"}
    assert chat.asked[0]["max_completion_tokens"] == 5


def test_an_agent_of_a_served_team_is_a_partner(train, tmp_path) -> None:
    other = run_config(environment={"name": "debate_tiny"}, rollout={"samples": [2, 1]})
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    served = Command("serve", str(tmp_path / "other.yaml"), "--port", "0")
    try:
        endpoint = {"base_url": f"{served.url}/v1", "model": "team/a"}
        team = {"p": {"model": "tiny"}, "q": {"endpoint": endpoint}}
        run = train(run_config(policies=team))
    finally:
        served.stop()
    use = summary(run)["endpoints"]["q"]
    assert (use["answers"], use["uncounted"]) == (2 * 4 + 2 * 2 * 2, 0)
    assert use["answers"] <= use["completion_tokens"] <= 3 * use["answers"]
    assert len({one.text for one in completions(run, "b")}) > 1


def test_the_examples_of_the_page_are_configs(chat) -> None:
    page = (ROOT / "docs" / "endpoints.md").read_text()
    team, more = map(
        yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    )
    endpoint = team["policies"]["helper"]["endpoint"]
    assert endpoint.pop("key_variable") == "HELPER_KEY"
    said = {**endpoint, **more, "base_url": chat.url}
    motet.evaluate(
        run_config(
            policies={**team["policies"], "helper": {"endpoint": said}},
            team=team["team"],
            game={"players": ["main", "aux"]},
        ),
        show="silent",
    )
    assert chat.asked[0]["max_completion_tokens"] == more["extra"]["max_completion_tokens"]


# ------------------------------------------------------------------------------ servers with faults


def test_a_server_that_fails_twice_is_asked_a_third_time(train) -> None:
    tries: dict[str, int] = {}

    def behave(request: dict[str, Any]) -> Answer:
        name = json.dumps(request)
        tries[name] = tries.get(name, 0) + 1
        return completion("no") if tries[name] > 2 else (500, b"busy")

    with running(ChatServer(behave)) as server:
        run = train(config(server, evaluation={"tasks": 1}, train={"steps": 1, "tasks_per_step": 2},
                           endpoint={"retries": 2}))  # fmt: skip
    assert set(tries.values()) == {3}
    assert [row["play/faults"] for row in steps(run)] == [0]


GARBLED = {
    "no JSON": (200, b"<html>"),
    "half of it": (200, completion("no")[1][:30]),
    "no choices": (200, b'{"choices": []}'),
    "no text": (200, completion("no")[1].replace(b'"no"', b"null")),
    "half of a character": (200, completion("no")[1].replace(b'"no"', b'"\\ud83d"')),
    "a number": (200, completion("no")[1].replace(b'"no"', b"7")),
}


@pytest.mark.parametrize("kind", widely(GARBLED, keep=["half of it", "half of a character"]))
def test_a_garbled_answer_is_a_counted_fault(kind, train) -> None:
    short = {"steps": 1, "tasks_per_step": 2, "max_fault_share": 1.0}
    with running(ChatServer(lambda request: GARBLED[kind])) as server:
        run = train(config(server, train=short, evaluation={"tasks": 1}))
    (row,) = steps(run)
    assert row["play/faults"] > 0
    assert "play/endpoint_answers/q" not in row
    assert summary(run)["heldout"]["before"]["causes"] == {"sampler/garbled": 1}
    assert {episode.fault.cause for episode in episodes(run)} == {"garbled"}
    assert not (run / "answers.jsonl").exists()


def test_a_server_that_never_answers_stops_the_run_with_its_address(train, tmp_path) -> None:
    over = threading.Event()

    def behave(request: dict[str, Any]) -> Answer:
        over.wait(30)
        return completion("late")

    with running(ChatServer(behave)) as server:
        try:
            with pytest.raises(MotetError) as stopped:
                train(config(server, endpoint={"timeout_seconds": 0.2}, evaluation={"tasks": 2}))
        finally:
            over.set()
    assert says(stopped.value, f"sampler/timeout … {server.url} … 0.2 s")


def test_a_server_that_is_gone_stops_the_run_after_sixteen_answers(train) -> None:
    server = ChatServer()
    server.server_close()
    many = {"steps": 1, "tasks_per_step": 4, "max_fault_share": 1.0}
    with pytest.raises(MotetError, match=facts("failed in 16 calls in a row … connection failed")):
        train(config(server, endpoint={"retries": 0}, train=many, rollout={"samples": [4]},
                     evaluation={"tasks": 4}))  # fmt: skip


def test_one_failed_answer_leaves_the_other_games(train) -> None:
    def behave(request: dict[str, Any]) -> Answer:
        refused = request["messages"][0]["content"].startswith("b1 ")
        return (
            (400, b"not this one") if refused else completion("no" if request["seed"] % 2 else "z")
        )

    with running(ChatServer(behave)) as server:
        run = train(config(server, train={"steps": 2, "tasks_per_step": 4}))
    for row in steps(run):
        assert row["play/faults"] == 1
        assert row["learn/loss/p"] is not None
    faults = [episode.fault for episode in episodes(run) if episode.fault is not None]
    assert {(fault.where, fault.cause) for fault in faults} == {("sampler", "refused")}
    assert says(faults[0].message, f"policy q … {server.url} … 400 … not this one")


# ------------------------------------------------------------------------------------------ the key


def test_the_key_is_sent_and_written_nowhere(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("PARTNER_KEY", KEY)

    def behave(request: dict[str, Any]) -> Answer:
        if "b0 " in request["messages"][0]["content"]:
            return 401, f"wrong key {KEY}".encode()
        return completion(f"my key is {KEY}")

    tolerant = {"steps": 2, "tasks_per_step": 4, "max_fault_share": 1.0}
    with running(ChatServer(behave)) as server:
        secret = {"key_variable": "PARTNER_KEY"}
        motet.train(config(server, endpoint=secret, train=tolerant), runs=tmp_path)
    run = tmp_path / "run"
    assert server.keys == {f"Bearer {KEY}"}
    assert {one.text for one in completions(run, "b")} == {"my key is [hidden]"}
    assert "wrong key" in (run / "episodes" / "train-000001.jsonl").read_text()
    for name, content in contents(run).items():
        assert KEY.encode() not in content, name
    said = capsys.readouterr()
    assert KEY not in said.out + said.err


# ----------------------------------------------------------------------------------------- the cost


def test_the_tokens_that_the_server_counts_are_counted(train, chat) -> None:
    run = train(config(chat))
    for row in steps(run):
        assert row["play/endpoint_answers/q"] == 4
        assert row["play/endpoint_prompt_tokens/q"] == 4 * 7
        assert row["play/endpoint_completion_tokens/q"] == 4 * 2
        assert row["play/endpoint_uncounted/q"] == 0
    asked = len(chat.asked)
    whole = {"answers": asked, "prompt_tokens": 7 * asked, "completion_tokens": 2 * asked}
    assert summary(run)["endpoints"] == {"q": {**whole, "uncounted": 0}}
    found = motet.evaluate(run, show="silent").endpoints
    assert found["q"].prompt_tokens == 7 * found["q"].answers
    assert rows(run)[0]["evaluate/endpoint_prompt_tokens/q"] == 7 * 4


def test_answers_without_usage_are_uncounted_and_not_0(train) -> None:
    with running(ChatServer(lambda request: completion("no", usage=None))) as server:
        run = train(config(server))
    for row in steps(run):
        assert row["play/endpoint_uncounted/q"] == row["play/endpoint_answers/q"] == 4
        assert "play/endpoint_prompt_tokens/q" not in row
    found = summary(run)["endpoints"]["q"]
    assert found["uncounted"] == found["answers"]
    assert found["prompt_tokens"] is None


# ------------------------------------------------------------------ the same answers without server


def test_a_run_resumes_and_replays_to_the_same_bits_without_its_server(train, tmp_path) -> None:
    counted = iter(range(10**6))
    course = {"steps": 4, "tasks_per_step": 2, "checkpoint_every": 1, "keep_checkpoints": 9}
    with running(ChatServer(lambda request: completion(f"answer {next(counted)}"))) as server:
        said = config(server, train=course, evaluation={"every": 2})
        whole = train(said)
    killed = tmp_path / "killed" / whole.name
    shutil.copytree(whole, killed)
    for left in ("checkpoints/step-000002", "checkpoints/step-000003", "checkpoints/step-000004",
                 "team"):  # fmt: skip
        shutil.rmtree(killed / left)
    (killed / "summary.json").unlink()
    with (killed / "answers.jsonl").open("ab") as file:
        file.write(b'{"key": "cut off by a ki')
    again = train(said, resume=True, runs=killed.parent)
    assert json.dumps(rows(again)) == json.dumps(rows(whole))
    assert contents(again / "episodes") == contents(whole / "episodes")
    assert weights(again) == weights(whole)
    assert summary(again)["endpoints"] == summary(whole)["endpoints"]
    replayed = motet_compare.replay(whole, step=3, show="silent")
    assert replayed.same_episodes is True
    assert replayed.same
    evaluated = motet.evaluate(whole, show="silent")
    assert evaluated.faults == 0
    assert evaluated.reward == summary(whole)["heldout"]["after"]["reward"]


def test_a_killed_run_asks_nothing_twice_and_ends_with_the_same_bits(train, chat, tmp_path) -> None:
    said = config(chat, train={"steps": 4, "tasks_per_step": 2, "checkpoint_every": 3})
    done = fork_server.run(
        [sys.executable, str(GAMES), str(tmp_path / "killed")],
        input=json.dumps([(said, 3)]),
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout) == [9], done.stderr
    before = len(chat.asked)
    killed = train(said, resume=True, runs=tmp_path / "killed")
    assert 0 < before < len(chat.asked)
    assert len({json.dumps(request) for request in chat.asked}) == len(chat.asked)
    assert (killed / "answers.jsonl").read_bytes().count(b"\n") == len(chat.asked)
    whole = train(said, runs=tmp_path / "whole")
    assert json.dumps(rows(killed)) == json.dumps(rows(whole))
    assert contents(killed / "episodes") == contents(whole / "episodes")
    assert weights(killed) == weights(whole)


def test_a_replay_needs_the_key_only_if_it_has_to_ask(train, chat, monkeypatch) -> None:
    monkeypatch.setenv("PARTNER_KEY", KEY)
    run = train(
        config(chat, endpoint={"key_variable": "PARTNER_KEY"}),
        ["train.keep_best=evaluate/reward", "evaluation.every=1"],
    )
    asked = len(chat.asked)
    monkeypatch.delenv("PARTNER_KEY")
    assert motet_compare.replay(run, step=2, show="silent").same
    assert motet.evaluate(run, show="silent").faults == 0
    assert motet.evaluate(run / "best", show="silent").faults == 0
    for needs in (lambda: motet.evaluate(run, ["evaluation.samples=2"], show="silent"),
                  lambda: motet.evaluate(run / "config.yaml", show="silent")):  # fmt: skip
        with pytest.raises(ConfigError, match=facts("key_variable … PARTNER_KEY … not set")):
            needs()
    assert len(chat.asked) == asked


def test_a_run_resumes_with_another_address_but_not_with_another_model(train, chat) -> None:
    run = train(config(chat))
    asked = len(chat.asked)
    with running(ChatServer()) as moved:
        train(config(moved), resume=True)
        assert moved.asked == []
        with pytest.raises(ConfigError, match=facts("policies.q.endpoint.model … big … other")):
            train(config(moved, endpoint={"model": "other"}), resume=True)
    assert len(chat.asked) == asked
    assert run.is_dir()


# ----------------------------------------------------------------------------------- other commands


def alone(server: ChatServer) -> dict[str, Any]:
    """Return a config whose policies are all behind an endpoint."""
    said = config(server)
    said["policies"]["p"] = said["policies"]["q"]
    del said["models"]
    return said


def test_a_team_behind_endpoints_is_evaluated_and_not_trained(chat, tmp_path) -> None:
    found = motet.evaluate(alone(chat), show="silent")
    assert (found.faults, found.tokens, found.completion_length) == (0, 0, None)
    assert {name: use.answers for name, use in found.endpoints.items()} == {"p": 4, "q": 4}
    for refusing in (motet.dry_run, motet.check, motet.train):
        with pytest.raises(ConfigError, match=facts("frozen or behind an endpoint … p, q … motet "
                                                    "evaluate")):  # fmt: skip
            refusing(alone(chat))


def test_a_loaded_team_asks_and_plays(train, chat) -> None:
    run = train(config(chat))
    with motet.load_run(run).team() as team:
        assert team.ask("b", "Why?") in ("no", "zzz")
        assert chat.asked[-1]["messages"] == [{"role": "user", "content": "Why?"}]
        game = team.play(0)
    assert {one.policy for one in game.root.samples["b"]} == {"q"}
    with pytest.raises(ConfigError, match=facts(f"policy q … behind … {chat.url}")):
        motet.load_run(run).model("q")
    table = motet.load_run(run).samples(step=1)
    assert set(table[table.agent == "b"].text) <= {"no", "zzz"}


def test_every_command_before_a_run_names_the_address(chat, tmp_path, capsys) -> None:
    said = config(chat, endpoint={"extra": {"top_k": None}}, decode={"max_new_tokens": 3})
    note = f"policy q is model big at {chat.url}, an address of this machine"
    assert note in motet.dry_run(said).notes
    assert note in motet.check(said).notes
    motet.train(said, runs=tmp_path)
    told = capsys.readouterr()
    assert note in " ".join((told.out + told.err).split())
    away = config(chat, endpoint={"base_url": "https://models.example/v1"})
    (told,) = [line for line in motet.dry_run(away).notes if "policy q" in line]
    assert says(told, "policy q … big … https://models.example/v1 … leave this machine")


def test_top_k_of_an_agent_behind_an_endpoint_is_a_warning(chat) -> None:
    said = config(chat, decode={"top_k": 5})
    warnings = motet.dry_run(said).warnings
    assert any(says(line, "top_k … b … policies.q.endpoint.extra") for line in warnings)
    assert not any(says(line, "restricts the tokens of a, b") for line in warnings)


def test_other_settings_that_an_endpoint_is_not_told_are_warnings(chat) -> None:
    own = {"format": {"choices": ["x"]}, "template": {"mood": "!"}, "thinking": {"max_tokens": 2}}
    said = config(chat, team={"a": "p", "b": {"policy": "q", "decode": own}})
    warnings = motet.dry_run(said).warnings
    for facts_of in (
        "format … b … extra={response_format",
        "template … b … extra={chat_template_kwargs",
        "thinking.max_tokens … b … extra={thinking_token_budget",
    ):
        assert any(says(line, facts_of) for line in warnings), facts_of


def test_an_export_keeps_the_endpoint_and_plays_with_it(train, chat, tmp_path) -> None:
    run, place = train(config(chat)), tmp_path / "team"
    found = motet_serve.export_team(run, place, show="silent")
    assert found.policies.keys() == {"p", "q"}
    assert found.policies["q"] is None
    team = motet.read_config(place)
    assert team.endpoints["q"].base_url == chat.url
    assert f"`big` behind the endpoint {chat.url}" in (place / "README.md").read_text()
    before = len(chat.asked)
    again = motet.evaluate(place, show="silent")
    assert again.reward == summary(run)["heldout"]["after"]["reward"]
    assert len(chat.asked) == before + 4, "an export has no answers of the run"


def test_its_answers_are_shown_in_the_terminal_and_in_the_viewer(train, chat) -> None:
    chat.behave = lambda request: completion("a rare answer")
    run = train(config(chat))
    place = run.parent / "page"
    said = {}
    for command in (
        ["episodes", str(run), "--step", "1"],
        ["view", str(run), "--export", str(place)],
        ["show", str(run)],
        ["evaluate", str(run)],
    ):
        shown = CliRunner().invoke(cli.whole_app(), command)
        assert shown.exit_code == 0, shown.output
        said[command[0]] = shown.output
    assert "a rare answer" in said["episodes"]
    assert "a rare answer" in "".join(file.read_text() for file in (place / "data").iterdir())
    assert chat.url in said["show"]
    assert "endpoint of q: 4 answers; 28 tokens read, 8 written" in said["evaluate"]


# -------------------------------------------------------------------------------------- error lines


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"train": "full"}, "policies.q … train full … endpoint … never trained … drop train"),
        ({"train": "frozen"}, "policies.q … train frozen … endpoint … drop train"),
        ({"lora": {"rank": 4}}, "policies.q.lora … endpoint … drop lora"),
        ({"adapter": "x"}, "policies.q.adapter … endpoint … drop adapter"),
        ({"optimizer": {"learning_rate": 1.0}}, "policies.q.optimizer … endpoint … drop optimizer"),
        ({"model": "tiny"}, "policies.q … model and endpoint … exactly one"),
        ({"adress": "x"}, "policies.q.adress … unknown key"),
    ],
)
def test_keys_of_a_model_are_refused_in_one_line(policy, message, chat) -> None:
    said = config(chat)
    said["policies"]["q"] |= policy
    with pytest.raises(ConfigError, match=facts(message)) as refused:
        motet.dry_run(said)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        ({"modle": "x"}, "policies.q.endpoint.modle … unknown key … model"),
        ({"base_url": "here"}, "policies.q.endpoint.base_url … 'here' … http://"),
        (
            {"key_variable": "NO_SUCH_KEY"},
            "policies.q.endpoint.key_variable … NO_SUCH_KEY … not set",
        ),
        ({"extra": {"messages": []}}, "policies.q.endpoint … extra sets messages"),
    ],
)
def test_a_wrong_key_of_an_endpoint_is_one_line(endpoint, message, chat, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    for refusing in (motet.dry_run, motet.evaluate):
        with pytest.raises(ConfigError, match=facts(message)) as refused:
            refusing(config(chat, endpoint=endpoint))
        assert len(str(refused.value).splitlines()) == 1
