"""What `motet evaluate` and `motet crossplay` find is kept in the run, where viewers read it."""

import json
import shlex
import sys

import pytest

import motet
import motet_serve
from motet.commands.main import main
from motet_view.team import team_figures
from tests.fixtures.messages import says
from tests.small_runs import contents, run_config


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = tmp_path_factory.mktemp("place") / "runs"
    config = run_config(
        environment={"name": "relay"},
        rollout={"samples": [2, 1]},
        algorithm={"name": "magrpo", "group_by": "task"},
        train={"steps": 1, "tasks_per_step": 2},
        evaluation={"tasks": 4},
    )
    for seed in (0, 1):
        motet.train({**config, "name": f"relay{seed}", "seed": seed}, runs=runs, show="silent")
    return runs


@pytest.fixture
def command(runs, monkeypatch, capsys):
    """Run a command line beside the runs, and return stdout and stderr."""

    def run(line):
        monkeypatch.chdir(runs.parent)
        monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return said

    return run


def test_the_team_page_has_every_evaluation_that_was_made(runs, command):
    before = contents(runs / "relay0")
    printed = {
        name: json.loads(command(f"{options} --json").out)
        for name, options in {
            "evaluation": "evaluate runs/relay0",
            "shuffled-turn-1": "messages runs/relay0 --shuffle-turn 1",
            "blank-turn-1-samples-2": "messages runs/relay0 --blank-turn 1 --samples 2",
            "baselines": "baselines runs/relay0",
        }.items()
    }
    cross = command("crossplay runs/relay0 runs/relay1 --json")
    assert cross.err.count("kept in ") == 2
    for name, figures in printed.items():
        kept = json.loads((runs / "relay0" / "evaluations" / f"{name}.json").read_text())
        assert kept.pop("about")["step"] == 1
        assert kept == figures
    assert before.items() <= contents(runs / "relay0").items(), "the run itself is as it was"
    found = team_figures(runs / "relay0", {"steps": 1})
    titles = [(one["title"], one["messages"] is not None) for one in found["evaluations"]]
    expected = [
        ("blank after turn 1", True),
        ("evaluation", False),
        ("shuffled after turn 1", True),
    ]
    assert titles == expected
    assert [row["protocol"] for row in found["baselines"][0]["rows"]][:2] == [
        "trained team", "untrained team",
    ]  # fmt: skip
    for run in ("relay0", "relay1"):
        (matrix,) = team_figures(runs / run, {})["crossplays"]
        assert matrix["success"] == json.loads(cross.out)["success"]
    assert found["unreadable"] == []


def test_the_terminal_shows_both_and_where_it_is_kept(runs, command):
    said = command("messages runs/relay1 --blank-turn 1")
    assert "real and blank messages" in said.out
    assert "as they are" in said.out
    assert "kept in runs/relay1/evaluations/blank-turn-1.json: motet view shows it" in said.err


def test_an_export_keeps_nothing_and_says_so(runs, command):
    motet_serve.export_team(runs / "relay1", runs.parent / "team")
    before = contents(runs.parent / "team")
    said = command("evaluate team")
    assert says(said.err, "not kept … team … exported team")
    assert contents(runs.parent / "team") == before
