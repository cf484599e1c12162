"""Whole runs whose agents call tools: records, figures, what is trained, and what commands say."""

import json
import sys

import pytest

import motet
from motet.commands.main import main
from motet.core import walk
from motet.rollout.record import read_episodes, write_episode
from tests.small_runs import TINY, rows, run_config, steps

GAME = '''
import random
import motet

CALL = motet.ToolCall("now", {})
QUESTION = motet.Message("user", "?")


def now() -> str:
    """Now."""
    return "12"


class Clock(motet.Environment):
    agents = ("a", "b")
    branches = True

    def tasks(self, split):
        return [motet.Task(f"{split} {k}", {}) for k in range(4)]

    def start(self, task, seed):
        return 0

    def observe(self, state):
        return {"a": (QUESTION,), "b": "b"}

    def step(self, state, replies, seed):
        right = float(replies["a"].text == "12")
        return motet.Transition(1, {"a": right, "b": 0.0}, True, success=right)

    def demonstrate(self, task, seed):
        if seed % 3 == 0:
            return motet.Demonstration("b", "b", "n")
        if seed % 3 == 1:
            return motet.Demonstration("a", (QUESTION,), CALL.written)
        read = (motet.Message("assistant", "", calls=(CALL,)), motet.Message("tool", "12", "now"))
        return motet.Demonstration("a", (QUESTION, *read), "12", turn=1)
'''


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tools")
    (folder / "game.py").write_text(GAME)
    model = {**TINY, "hidden_size": 32, "context": 512, "vocabulary": 500, "initializer_range": 0.1}
    config = run_config(
        environment={"name": f"{folder}/game.py:Clock"},
        models={"tiny": {"embedded": model, "device": "cpu"}},
        team={"a": {"policy": "p", "tools": [f"{folder}/game.py:now"]}, "b": "q"},
        warmup={"steps": 60, "batch_size": 12, "learning_rate": 1e-2},
        decode={"max_new_tokens": 24},
        rollout={"samples": [4, 1, 1]},
        train={"steps": 2, "tasks_per_step": 2, "checkpoint_every": 1},
    )
    summary = motet.train(config, runs=folder / "runs", show="silent")
    return config, folder / "runs" / "run", summary


def games(run):
    return read_episodes(next(iter(sorted((run / "episodes").glob("*.jsonl"))))).episodes


def test_the_calls_of_a_game_are_made_recorded_and_counted(made):
    _, run, summary = made
    assert summary.heldout["before"].success > 0.5, "the warm-up shows how to call"
    (first, *_) = [
        round_
        for episode in games(run)
        for _, round_ in walk(episode.root)
        if any(one.calls for one in round_.samples.get("a", ()))
    ]
    place = next(n for n, one in enumerate(first.samples["a"]) if one.calls)
    assert first.samples["a"][place].calls == (motet.ToolCall("now", {}),)
    below = first.outcomes[place].next
    assert list(below.prompts) == ["a"], "the other agent's reply waits"
    *_, said, result = below.prompts["a"]
    assert [call.name for call in said.calls] == ["now"]
    assert (result.role, result.name, result.content, result.failed) == ("tool", "now", "12", False)
    trained = [row for row in rows(run) if "play/tool_calls" in row]
    assert len(trained) == 2
    assert all(row["play/tool_calls/a"] == row["play/tool_calls"] > 0 for row in trained)
    assert all("play/tool_errors/a" in row and "play/tool_calls/b" not in row for row in trained)
    evaluated = [row for row in rows(run) if "evaluate/tool_calls/a" in row]
    assert len(evaluated) == 2


def test_results_are_parts_of_prompts_and_never_of_what_is_trained(made):
    _, run, _ = made
    for episode in games(run):
        for _, round_ in walk(episode.root):
            for agent, group in round_.samples.items():
                for one in group:
                    assert len(one.tokens) == len(one.logprobs)
                    assert "tool_response" not in one.text or agent != "a"


def test_records_with_calls_are_read_back_equal(made, tmp_path):
    _, run, _ = made
    for episode in games(run):
        with (tmp_path / "again.jsonl").open("w") as file:
            write_episode(file, episode)
        assert read_episodes(tmp_path / "again.jsonl").episodes == (episode,)


def test_a_game_without_tools_is_recorded_without_their_fields(tmp_path):
    config = run_config(train={"steps": 1, "tasks_per_step": 1})
    motet.train(config, runs=tmp_path, show="silent")
    text = next((tmp_path / "run" / "episodes").glob("*.jsonl")).read_text()
    for name in ("calls", "call_id", "failed", "tools", "unread"):
        assert f'"{name}"' not in text


def test_a_run_repeats_and_resumes_to_the_bit(made, tmp_path):
    config, run, _ = made
    motet.train({**config, "train": {**config["train"], "steps": 1}}, runs=tmp_path, show="silent")
    motet.train(config, ["train.steps=2"], runs=tmp_path, resume=True, show="silent")
    assert len(steps(run)) == 2
    assert steps(tmp_path / "run") == steps(run)


def said(monkeypatch, capsys, *words):
    """Return what a command prints, in one line."""
    monkeypatch.setattr(sys, "argv", ["motet", *words])
    with pytest.raises(SystemExit):
        main()
    return " ".join(capsys.readouterr().out.split())


def test_commands_say_which_agent_has_which_tools_and_show_calls(
    made, tmp_path, monkeypatch, capsys
):
    config, run, _ = made
    line = (
        "agent a may call now in at most 2 round(s) before an answer (tools.rounds 4, "
        "rollout.samples of 3 turns)"
    )
    assert line in motet.dry_run(config).notes
    assert line in motet.check(config).notes
    text = said(monkeypatch, capsys, "episodes", str(run), "--best", "1")
    assert "calls now()" in text
    assert "tool now to a: 12" in text
    some = said(monkeypatch, capsys, "episodes", str(run), "--evaluation")
    told = (
        "3 of the 4 episodes of step 2: --best N, --worst N, --task ID and --faults choose others"
    )
    assert told in some
    assert "of the 4" not in said(
        monkeypatch, capsys, "episodes", str(run), "--evaluation", "--best", "1"
    )
    config_file = tmp_path / "c.yaml"
    config_file.write_text(json.dumps(config))
    told = said(monkeypatch, capsys, "train", str(config_file), "--dry-run")
    assert "agent a may call now" in told


def test_the_viewer_has_the_calls_of_a_game(made):
    from motet_view.game import game_tree

    _, run, _ = made
    trees = [game_tree(episode, lambda one: None)["tree"] for episode in games(run)]
    samples = [one for tree in trees for one in tree["samples"]["a"]]
    assert ["now()"] in [one["calls"] for one in samples]
    after = [outcome["next"] for tree in trees for outcome in tree["outcomes"] if outcome["next"]]
    texts = [
        (message["speaker"], message["text"])
        for round_ in after
        for message in round_["prompts"].get("a", ())
    ]
    assert ("tool (now)", "12") in texts
    assert ("assistant", "calls now()") in texts


TWO = """
import motet
from game import now


async def talk(task, agents):
    await agents.a.ask("?")
    await agents.b.ask("!")
    return motet.Score(0.0, success=False)
"""


def dialogue(config, file, program, folder):
    """Return the config with a program, which is written to a file, as its game."""
    file.write_text(program)
    rows_ = folder / "rows.jsonl"
    rows_.write_text('{"x": 1}\n{"x": 2}\n')
    game = {"name": f"{file}:talk"}
    return {**config, "environment": game, "data": {"train": {"path": str(rows_)}}, "warmup": None}


def test_a_plan_without_turns_for_calls_is_warned_of(made, tmp_path):
    config, run, _ = made
    short = dialogue(config, run.parent.parent / "two.py", TWO, tmp_path)
    (said_,) = [
        line
        for line in motet.dry_run(short, ["rollout.samples=[4,1]"]).warnings
        if "call of a tool" in line
    ]
    assert said_ == (
        "rollout.samples [4, 1] has 2 turns, and a trial game takes 2 without any call of a tool, "
        "so a game in which an agent calls one is cut off: add an entry for each round of calls, "
        "such as [4, 1, 1, 1]"
    )
    enough = motet.dry_run(short, ["rollout.samples=[4,1,1,1]"]).warnings
    assert not [line for line in enough if "call of a tool" in line]


ASKING = """
import motet


@motet.tool
def later() -> str:
    \"\"\"Later.\"\"\"
    return "13"


async def talk(task, agents):
    reply = await agents.a.ask("?", tools=[later])
    await agents.b.ask("!")
    return motet.Score(0.0, success=False)
"""


def test_the_tools_of_a_dialogue_are_named_before_it_runs(made, tmp_path):
    config, _, _ = made
    short = {
        **dialogue(config, tmp_path / "asking.py", ASKING, tmp_path),
        "team": {"a": "p", "b": "q"},
        "rollout": {"samples": [4, 1]},
        "tools": {"rounds": 2},
    }
    note = (
        "agent a is asked with later, which it may call in at most 2 round(s) before an answer "
        "(tools.rounds)"
    )
    warning = (
        "rollout.samples [4, 1] has 2 turns, and a trial game takes 2 without any call of a tool"
    )
    found = motet.dry_run(short)
    assert note in found.notes
    assert [line for line in found.warnings if line.startswith(warning)]
    checked = motet.check(short)
    assert note in checked.notes
    assert [line for line in checked.warnings if line.startswith(warning)]
    enough = motet.dry_run(short, ["rollout.samples=[4,1,1]"]).warnings
    assert not [line for line in enough if "call of a tool" in line]


def test_a_check_reads_prompts_in_the_context_of_an_embedded_model(made):
    config, _, _ = made
    small = json.loads(json.dumps({**config, "warmup": None}))
    small["models"]["tiny"]["embedded"]["context"] = 64
    with pytest.raises(motet.ConfigError, match="has a context of 64 tokens; expected room"):
        motet.check(small)


def test_functions_of_the_program_are_tools(made, tmp_path):
    config, _, _ = made

    def later() -> str:
        """Later."""
        return "13"

    short = {**config, "warmup": None, "team": {"a": "p", "b": "q"}}
    short["train"] = {"steps": 1, "tasks_per_step": 1}
    motet.train(short, tools={"a": [later, "python"]}, runs=tmp_path, show="silent")
    recorded = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert recorded["finished"]
    (one, *_) = games(tmp_path / "run")
    assert [tool.name for tool in one.root.prompts["a"][0].tools] == ["later", "python"]
    again = motet.evaluate(tmp_path / "run", tools={"a": [later]}, show="silent")
    assert again.success is not None


def test_a_team_with_tools_is_evaluated_and_played(made, monkeypatch, capsys):
    _, run, _ = made
    found = motet.evaluate(run, show="silent")
    assert found.success is not None
    assert found.turns > 1, "it calls its tool"
    assert list(found.tools) == ["a"]
    counted = found.tools["a"]
    assert counted.calls > 0
    told = json.loads(said(monkeypatch, capsys, "evaluate", str(run), "--json"))
    assert told["tools"] == {"a": {"calls": counted.calls, "errors": counted.errors}}
    assert "tool calls a" in said(monkeypatch, capsys, "evaluate", str(run))
