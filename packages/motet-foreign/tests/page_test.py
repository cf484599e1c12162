"""The examples of docs/bring_your_environment.md train one step as they are written."""

import sys
from pathlib import Path

import pytest

import motet
from tests.small_runs import all_outcomes, episodes, steps


def trained(config: str, folder: Path) -> Path:
    """Train an example, and return its run, in which no episode has a fault."""
    file = folder / "example.yaml"
    file.write_text(config)
    overrides = ["report.tensorboard=false", "threads=1"]
    motet.train(file, overrides, runs=folder / "runs", show="silent")
    (run,) = (folder / "runs").iterdir()
    assert len(steps(run)) == 1
    assert not [one for one in episodes(run) if one.fault is not None]
    assert not [outcome.fault for outcome in all_outcomes(run) if outcome.fault is not None]
    return run


def test_the_game_of_textarena_trains(page_block, tmp_path):
    pytest.importorskip("textarena", reason="textarena is not installed")
    run = trained(page_block("yaml", "TextArena"), tmp_path)
    ended = [outcome for outcome in all_outcomes(run) if outcome.end == "done"]
    assert ended
    assert {tuple(sorted(outcome.rewards)) for outcome in ended} == {("player_0", "player_1")}


def test_the_taskset_of_verifiers_trains(page_block, tmp_path, monkeypatch):
    pytest.importorskip("verifiers", reason="verifiers is not installed")
    (tmp_path / "sums.py").write_text(page_block("python", "verifiers"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    run = trained(page_block("yaml", "verifiers"), tmp_path)
    assert {outcome.end for outcome in all_outcomes(run)} == {"done"}


def test_two_roles_of_verifiers_train_on_the_same_taskset(page_block, tmp_path, monkeypatch):
    pytest.importorskip("verifiers", reason="verifiers is not installed")
    (tmp_path / "sums.py").write_text(page_block("python", "verifiers"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sums", raising=False)
    config = page_block("yaml", "verifiers")
    for one, other in (
        ("taskset: sums", "taskset: sums, env: user-sim, config: {user: {max_turns: 1}}"),
        ("{agent: solver}", "{assistant: solver, user: solver}"),
        ("samples: [8]", "samples: [4, 2]"),
    ):
        assert one in config
        config = config.replace(one, other)
    run = trained(config, tmp_path)
    assert {frozenset(one.root.prompts) for one in episodes(run)} == {frozenset({"user"})}
    second = [outcome.next for one in episodes(run) for outcome in one.root.outcomes]
    assert {frozenset(round_.prompts) for round_ in second} == {frozenset({"assistant"})}


def test_the_server_of_openenv_trains(page_block, twins_server, tmp_path):
    config = page_block("yaml", "OpenEnv")
    assert "http://127.0.0.1:8000" in config
    run = trained(config.replace("http://127.0.0.1:8000", twins_server), tmp_path)
    acted = [one.root.prompts for one in episodes(run)]
    assert {frozenset(prompts) for prompts in acted} == {frozenset({"a"})}
    assert {outcome.end for outcome in all_outcomes(run)} == {"done", None}


def test_the_game_of_pettingzoo_trains(page_block, tmp_path):
    pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    (tmp_path / "nearer.py").write_text(page_block("python", "PettingZoo"))
    run = trained(page_block("yaml", "PettingZoo"), tmp_path)
    ended = [outcome for outcome in all_outcomes(run) if outcome.end == "done"]
    assert len(ended) == 2 * 4 * 2  # tasks, and the samples of the two turns
    assert all(0.0 <= outcome.rewards[agent] <= 1.0 for outcome in ended for agent in ("left",))
