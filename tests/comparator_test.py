"""Whole runs whose second half of answers comes from a comparator: the team earlier, another team,
a chat endpoint."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

import motet
import motet_compare
from motet.core import Round
from motet.errors import ConfigError
from motet.models.loading import load_tokenizer
from motet.trainer import checkpoint
from tests.fixtures.http_servers import running
from tests.fixtures.messages import facts
from tests.fixtures.wide import widely
from tests.preferences_test import AGENTS, BETA, RATE, PublishedTeam, sequence_logp
from tests.small_runs import LORA, TINY, contents, episodes, rows, run_config, steps, weights

MADPO: dict[str, Any] = {
    "algorithm": {
        "name": "madpo",
        "preference": {"compare": "halves", "select": "all", "beta": BETA},
    },
    "optimizer": {"learning_rate": RATE, "clip_norm": 1e9},
    "rollout": {"samples": [6]},
    "train": {"steps": 1, "tasks_per_step": 3},
}
OTHER = {
    "models": {
        "tiny": {"embedded": TINY, "device": "cpu"},
        "large": {"embedded": {**TINY, "layers": 2, "vocabulary": 270}, "device": "cpu"},
    },
    "policies": {
        "p": {"model": "tiny"},
        "q": {"model": "tiny"},
        "other": {"model": "large", "train": "frozen"},
    },
}


def halves(played: tuple[motet.Episode, ...]) -> list[tuple[Round, Any, Any]]:
    """Return (Round, chosen picks, rejected picks) of the g-th joint actions of both halves."""
    found = []
    for episode in played:
        outcomes = episode.root.outcomes
        half = len(outcomes) // 2
        for one, other in zip(outcomes[:half], outcomes[half:], strict=True):
            worse, better = sorted((one, other), key=lambda outcome: sum(outcome.rewards.values()))
            if sum(better.rewards.values()) > sum(worse.rewards.values()):
                found.append((episode.root, better.picks, worse.picks))
    return found


def encoded_again(round_: Round, tokenizer: Any) -> Round:
    """Return the Round with the comparator's texts as tokens of the team's tokenizer."""
    samples = {}
    for agent, completions in round_.samples.items():
        half = len(completions) // 2
        tokens = [
            (*tokenizer(one.text)["input_ids"], *[tokenizer.eos_token_id] * (one.stop == "stop"))
            for one in completions[half:]
        ]
        theirs = [
            replace(one, tokens=each, logprobs=(0.0,) * len(each))
            for one, each in zip(completions[half:], tokens, strict=True)
        ]
        samples[agent] = (*completions[:half], *theirs)
    return replace(round_, samples=samples)


def check_published_step(run: Path) -> None:
    """Check that step 1 is that of the published loss, on texts that are encoded again."""
    tokenizer, _ = load_tokenizer(run / "models" / "tiny")
    pairs = [
        (encoded_again(round_, tokenizer), chosen, rejected)
        for round_, chosen, rejected in halves(episodes(run))
    ]
    assert len(pairs) > 2
    team = PublishedTeam(run / "models" / "tiny")
    team.learn(pairs)
    team.check(run)
    assert steps(run)[0]["credit/pairs"] == len(pairs)


def test_another_team_plays_the_second_half_and_its_texts_are_learned_from(train) -> None:
    team = {"a": "other", "b": "other"}
    run = train(run_config(**MADPO, **OTHER, comparator={"team": team}))
    large = AutoModelForCausalLM.from_pretrained(run / "models" / "large")
    with torch.no_grad():
        for episode in episodes(run):
            for agent, completions in episode.root.samples.items():
                assert [one.policy for one in completions] == [AGENTS[agent]] * 3 + ["other"] * 3
    assert large.config.num_hidden_layers == 2
    assert load_tokenizer(run / "models" / "large")[0].get_vocab().keys() != (
        load_tokenizer(run / "models" / "tiny")[0].get_vocab().keys()
    )
    check_published_step(run)


def test_the_evaluation_and_a_run_without_halves_have_no_comparator(train) -> None:
    team = {"a": "other", "b": "other"}
    run = train(run_config(**MADPO, **OTHER, comparator={"team": team}))
    for episode in episodes(run, "evaluate-000001"):
        players = {one.policy for each in episode.root.samples.values() for one in each}
        assert players == {"p", "q"}


def policy_at(run: Path, step: int, policy: str) -> Any:
    """Return the model of a policy with the weights of a checkpoint."""
    model = AutoModelForCausalLM.from_pretrained(run / "models" / "tiny", dtype=torch.float32)
    saved, _ = checkpoint.newest(run / "checkpoints", before=step + 1)
    assert saved.step == step
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.copy_(saved.tensors[f"weights.{policy}.{index}"])
    return model


def test_the_teams_own_tokens_are_kept(train) -> None:
    """In the first iteration the earlier team is the present one."""
    run = train(run_config(**MADPO, comparator={"history": 1}))
    team = PublishedTeam(run / "models" / "tiny")
    team.learn(halves(episodes(run)))
    team.check(run)


def test_a_run_that_recorded_the_class_of_its_comparator_is_resumed(train) -> None:
    config = run_config(**MADPO, comparator={"history": 1})
    run = train(config)
    (entry,) = json.loads((run / "code.json").read_text())["loaded"]
    assert entry["versions"]["motet-published"] == version("motet-published")
    now = (run / "config.yaml").read_text()
    then = now.replace("name: comlrl", "name: motet_published.comparator:PublishedComparator")
    assert then != now
    (run / "config.yaml").write_text(then)
    assert train(config, resume=True) == run
    assert motet.load_run(run).config.comparator.name == "comlrl"
    own = yaml.safe_load(then) | {"name": "own"}  # written today, as a reference
    assert motet.read_config(own).comparator.name == own["comparator"]["name"]


EVERY = {"checkpoint_every": 1, "keep_checkpoints": 9}
HISTORY: dict[str, Any] = {
    **MADPO,
    "comparator": {"history": 2},
    "train": {"steps": 5, "tasks_per_step": 2, **EVERY},
    "optimizer": {"learning_rate": 0.05},
}


def test_history_plays_with_the_weights_of_two_iterations_ago(train) -> None:
    run = train(run_config(**HISTORY))
    for step, weights_of in ((1, 0), (2, 0), (3, 0), (4, 1), (5, 2)):
        model = policy_at(run, weights_of, "p")
        for episode in episodes(run, f"train-{step:06d}"):
            prompt = episode.root.prompt_tokens["a"]
            for one in episode.root.samples["a"][3:]:
                assert one.policy == "p (earlier)"
                with torch.no_grad():
                    logp = sequence_logp(model, prompt, one).item()
                assert sum(one.logprobs) == pytest.approx(logp, abs=1e-4)
    saved, _ = checkpoint.newest(run / "checkpoints", before=6)
    assert {key.split(".")[1] for key in saved.tensors if key.startswith("past.")} == {
        "3",
        "4",
        "5",
    }


@pytest.mark.parametrize("adapters", widely([False, True], keep=[False]))
def test_a_resumed_run_with_history_writes_the_same_bytes(train, tmp_path, adapters) -> None:
    policies = {"policies": LORA} if adapters else {}
    whole = train(run_config(**HISTORY, **policies), runs=tmp_path / "whole")
    part = shutil.copytree(whole, tmp_path / "part" / "run")
    for folder in (part / "checkpoints").iterdir():
        if checkpoint.step_of(folder) > 3:
            folder.rename(tmp_path / folder.name)
    motet.train(part / "config.yaml", runs=tmp_path / "part", resume=True, show="silent")
    assert weights(part) == weights(whole)
    assert json.dumps(rows(part)) == json.dumps(rows(whole))
    assert contents(part / "episodes") == contents(whole / "episodes")
    again = motet_compare.replay(part, step=5, show="silent")
    assert again.same
    assert again.compared > 10


def test_the_reward_model_learns_from_pairs_with_the_comparator(train) -> None:
    """The comparator plays for the pairs of an iteration, not in training."""
    run = train(
        run_config(
            reward_model={"tasks": 3, "samples": 4, "compare": "halves", "iterations": 2},
            comparator={"history": 1},
            rollout={"samples": [2]},
            optimizer={"learning_rate": 0.05},
            train={"steps": 4, "tasks_per_step": 2, **EVERY},
        )
    )
    for step, weights_of in ((1, 0), (3, 0)):
        model = policy_at(run, weights_of, "q")
        for episode in episodes(run, f"pairs-{step:06d}"):
            prompt = episode.root.prompt_tokens["b"]
            for one in episode.root.samples["b"][2:]:
                assert one.policy == "q (earlier)"
                with torch.no_grad():
                    logp = sequence_logp(model, prompt, one).item()
                assert sum(one.logprobs) == pytest.approx(logp, abs=1e-4)
    trained = episodes(run, "train-000003")
    assert {one.policy for episode in trained for one in episode.root.samples["b"]} == {"q"}


class ChatServer(ThreadingHTTPServer):
    """Answers `yes`, `no`, `yes`, ...; every third answer is cut off."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.asked: list[dict[str, Any]] = []


class ChatHandler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(request)
        count = len(self.server.asked)
        choice = {
            "message": {"role": "assistant", "content": "no" if count % 2 else "zzz"},
            "finish_reason": "length" if count % 3 == 0 else "stop",
        }
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log."""


@pytest.fixture
def chat() -> Iterator[ChatServer]:
    with running(ChatServer()) as server:
        yield server


def address(server: ChatServer) -> str:
    return f"http://127.0.0.1:{server.server_port}/v1"


def test_a_chat_endpoint_plays_the_second_half(train, chat) -> None:
    endpoint = {"base_url": address(chat), "model": "big", "concurrency": 1, "temperature": 0.5}
    run = train(
        run_config(
            **MADPO, comparator={"endpoint": endpoint}, decode={"top_p": 0.9, "max_new_tokens": 3}
        )
    )
    assert len(chat.asked) == 2 * 3 * 3, "agents x samples x tasks"
    first = chat.asked[0]
    assert first["messages"][0]["role"] == "user"
    settings = {key: first[key] for key in ("model", "temperature", "top_p", "max_tokens")}
    assert settings == {"model": "big", "temperature": 0.5, "top_p": 0.9, "max_tokens": 3}
    for episode in episodes(run):
        for completions in episode.root.samples.values():
            theirs = completions[3:]
            assert {one.policy for one in theirs} == {"endpoint (big)"}
            assert {one.tokens for one in theirs} == {None}
            assert {one.text for one in theirs} <= {"no", "zzz"}
    check_published_step(run)


def test_the_key_of_an_endpoint_must_be_there_before_anything_is_loaded(chat, monkeypatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    endpoint = {"base_url": address(chat), "model": "big", "key_variable": "NO_SUCH_KEY"}
    with pytest.raises(ConfigError, match=r"comparator\.endpoint\.key_variable names NO_SUCH_KEY"):
        motet.dry_run(run_config(**MADPO, comparator={"endpoint": endpoint}))


def test_check_plays_the_comparator(chat) -> None:
    team = {"a": "other", "b": "other"}
    for comparator, others in (({"history": 1}, {}), ({"team": team}, OTHER)):
        assert motet.check(run_config(**MADPO, **others, comparator=comparator)).summary.finished


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"comparator": {"history": 1}, "cluster": {}},
            "comparator … models in processes … drop cluster",
        ),
        ({"comparator": {}}, "none of history, team and endpoint … exactly one"),
        (
            {"comparator": {"history": 1, "team": {"a": "p", "b": "q"}}},
            "history and team … history, team and endpoint … exactly one",
        ),
        (
            {"comparator": {"name": "comrl", "history": 1}},
            "comparator.name … 'comrl' … 'comlrl' … comlrl, package",
        ),
        (
            {"comparator": {"name": "motet.rollout.play:play", "history": 1}},
            "no comparator … class … class Options",
        ),
        (
            {"comparator": {"history": 1}, "algorithm": {"name": "magrpo"}},
            "compares halves … compare: halves",
        ),
        (
            {"comparator": {"history": 1}, "rollout": {"samples": [2, 2]}},
            "rollout.samples … 2 turns … one turn",
        ),
        (
            {"comparator": {"team": {"a": "other"}}, **OTHER},
            "comparator.team … a … policy … a, b",
        ),
        (
            {"comparator": {"team": {"a": "p", "b": "othr"}}},
            "comparator.team.a … 'p' … trained",
        ),
        (
            {"comparator": {"team": {"a": "othr", "b": "othr"}}},
            "comparator.team.a names policy 'othr'; policies are: p, q",
        ),
        (
            {
                "comparator": {"history": 1},
                "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny", "train": "frozen"}},
            },
            "policy q … frozen … comparator … no log-probabilities",
        ),
    ],
)
def test_what_does_not_fit_a_comparator_is_refused(changes, message) -> None:
    with pytest.raises(ConfigError, match=facts(message)):
        motet.dry_run(run_config(**{**MADPO, **changes}))
