"""A trained team compared with baselines that need no training, as whole runs."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

import motet
import motet_compare
from motet.commands import console
from motet.commands.main import main
from motet.core.records import as_json
from motet_compare.baselines import BaselineRow, BaselineTable
from tests.fixtures.messages import facts, says
from tests.small_runs import GAMES, LORA, run_config, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
SHARED = {"name": f"{GAMES}:Shared", "turns": 2}
ALL = (
    "trained team", "untrained team", "single agent", "naive concatenation", "sequential pipeline",
    "one-round discussion", "best of n", "majority of n"
)  # fmt: skip


def shared(**sections: Any) -> dict[str, Any]:
    """Two turns for two players, one for a single player: the team uses about twice as many
    tokens."""
    return run_config(**{"environment": SHARED, "rollout": {"samples": [2, 2]}, **sections})


def measured(target: Any, *overrides: str, **named: Any) -> dict[str, Any]:
    return motet_compare.measure_baselines(target, overrides, show="silent", **named)


def rows(found: BaselineTable) -> dict[str, BaselineRow]:
    return {row.protocol: row for row in found.rows}


def timeless(found: dict[str, Any]) -> dict[str, Any]:
    """Return everything except times."""
    return {
        **found,
        "rows": [
            {key: value for key, value in row.items() if key != "time"} for row in found["rows"]
        ],
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("baselines")
    motet.train(shared(), runs=runs, show="silent")
    return runs / "run"


@pytest.fixture(scope="module")
def table(run) -> dict[str, Any]:
    """The baselines of the run, which tests only read."""
    return measured(run)


def test_every_protocol_has_a_row_and_two_tables_are_alike(run, table):
    found = table
    assert tuple(rows(found)) == ALL
    assert (found.tasks, found.samples, found.left_out) == (4, 1, {})
    assert timeless(as_json(measured(run))) == timeless(as_json(found))
    assert all(row.time["seconds_per_task"] > 0 for row in found.rows)
    assert json.loads(json.dumps(as_json(found))) == as_json(found)
    for row in found.rows:
        assert (row.tasks, row.faults, row.causes) == (4, 0, {})
        for name in ("success", "reward"):
            assert (ends := getattr(row, name)).low <= ends.mean <= ends.high


@pytest.mark.parametrize("policies", [None, LORA], ids=["full", "adapters"])
def test_the_first_rows_are_the_runs_own_evaluations(run, table, train, policies):
    played = run if policies is None else train(shared(policies=policies))
    found = rows(table if policies is None else measured(played))
    heldout = summary(played)["heldout"]
    for protocol, when in (("trained team", "after"), ("untrained team", "before")):
        row = found[protocol]
        figures = (row.success.mean, row.reward.mean, row.tokens_per_task)
        assert figures == pytest.approx(
            (heldout[when]["success"], heldout[when]["reward"], heldout[when]["tokens"] / 4)
        )


def test_the_first_row_leads_and_the_others_are_behind_it_task_by_task(table):
    found = rows(table)
    assert found["trained team"].lead == {}
    ahead = found["trained team"].reward.mean - found["single agent"].reward.mean
    assert found["single agent"].lead["reward"].mean == pytest.approx(ahead)


def test_what_is_chosen_from_n_samples_costs_no_more_than_the_team(table):
    found = rows(table)
    team, single, best, majority = (
        found[name] for name in ("trained team", "single agent", "best of n", "majority of n")
    )
    assert best.n == majority.n >= 2
    assert best.tokens_per_task == majority.tokens_per_task <= team.tokens_per_task
    assert best.reward.mean >= max(single.reward.mean, majority.reward.mean)
    assert says(majority.note, "common answer … single agent")
    assert "oracle" in best.note


def test_talking_costs_what_was_said_on_the_way(run):
    """Nearly every answer has the maximum of three tokens.

    There are two agents and two turns, and a discussion has twice as many answers.
    """
    found = rows(measured(run, samples=4))
    tokens = {name: row.tokens_per_task for name, row in found.items()}
    assert tokens["one-round discussion"] == pytest.approx(2 * tokens["untrained team"], rel=0.15)
    assert tokens["sequential pipeline"] == pytest.approx(tokens["untrained team"], rel=0.15)
    assert tokens["naive concatenation"] == pytest.approx(tokens["untrained team"] / 2, rel=0.15)


def test_who_plays_alone_can_be_said(run, table):
    notes = [rows(one)["single agent"].note for one in (table, measured(run, single="a"))]
    assert says(notes[0], "policy of b")
    assert says(notes[1], "policy of a")
    with pytest.raises(motet.ConfigError, match=facts("single … 'c' … a, b")):
        measured(run, single="c")


def test_a_config_is_measured_before_any_training():
    found = measured(shared())
    assert tuple(rows(found)) == ALL[1:]
    assert rows(found)["untrained team"].lead == {}
    assert rows(found)["sequential pipeline"].lead.keys() == {"success", "reward"}


def test_what_a_game_does_not_allow_is_left_out_with_a_reason():
    one_turn = rows(measured(run_config()))
    assert one_turn["naive concatenation"].success == one_turn["untrained team"].success
    assert says(one_turn["naive concatenation"].note, "game … one turn")
    ((protocol, reason),) = measured(run_config()).left_out.items()
    assert protocol == "single agent"
    assert says(reason, "Coded … alone() … one agent")
    relay = run_config(
        environment={"name": "relay"},
        rollout={"samples": [2, 1]},
        algorithm={"group_by": "task"},
        evaluation={"tasks": 2},
    )
    assert says(measured(relay).left_out["naive concatenation"], "no success … one turn")
    alone = measured(
        run_config(game={"players": ["a"]}, team={"a": "p"}, policies={"p": {"model": "tiny"}})
    )
    assert alone.left_out.keys() == set(ALL[2:6])
    assert all(says(reason, "team … one agent") for reason in alone.left_out.values())
    assert [row.protocol for row in alone.rows] == [
        "untrained team",
        "best of n",
        "majority of n",
    ]


def test_a_game_that_breaks_costs_its_task_and_is_counted():
    found = rows(measured(shared(environment={**SHARED, "lost": [101]})))
    for row in found.values():
        assert (row.tasks, row.causes) == (3, {"environment/KeyError": 1})


@pytest.mark.wide
def test_another_run_on_the_same_tasks_has_a_row(run, tmp_path, train):
    solo = run_config(
        name="solo",
        environment={**SHARED, "players": ["b"], "turns": 1},
        policies={"q": {"model": "tiny"}},
        team={"b": "q"},
    )
    other = train(solo)
    found = measured(run, against=[other])
    assert tuple(rows(found)) == ("trained team", "trained team of solo", *ALL[1:])
    row, after = rows(found)["trained team of solo"], summary(other)["heldout"]["after"]
    assert (row.success.mean, row.reward.mean) == pytest.approx((after["success"], after["reward"]))
    assert tuple(rows(measured(shared(), against=[other])))[:2] == (
        "untrained team",
        "trained team of solo",
    )
    strangers = train(
        run_config(name="strangers", environment={"name": "relay"}, rollout={"samples": [2, 2]})
    )
    with pytest.raises(
        motet.ConfigError, match=r"strangers has other held-out tasks .*'eval 0' is"
    ):
        measured(run, against=[strangers])
    with pytest.raises(motet.ConfigError, match=facts("absent … run folder")):
        measured(run, against=[tmp_path / "absent"])


# -------------------------------------------------------------------------------------- the command


@pytest.fixture
def command(monkeypatch, capsys):
    # a narrower console breaks names over two lines
    monkeypatch.setattr(console.out, "_width", 160)

    def call(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["motet", *shlex.split(line)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code or 0, *capsys.readouterr()

    return call


def test_the_table_says_what_the_json_says(run, table, command):
    code, out, _ = command(f"baselines {run}")
    found = json.loads(command(f"baselines {run} --json")[1])
    assert code == 0
    assert timeless(found) == timeless(as_json(table))
    for row in found["rows"]:
        figures = (f"{row['success']['mean']:.3f}", f"{row['reward']['mean']:.3f}")
        assert re.search(rf"^{row['protocol']} +{figures[0]} +{figures[1]} ", out, re.MULTILINE)
    bound = "best of n … single agent … by success … by reward … oracle … upper bound"
    assert any(says(line, bound) for line in out.splitlines())
    assert "2,000 bootstrap resamples" in out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("baselines {run} --single c", "single … 'c' … a, b"),
        ("baselines {run} --against absent", "absent … run folder"),
        ("baselines {run} --samples 0", "evaluation.samples … 0 … greater than 0"),
        (
            "evaluate {run} --pass-at 1,x",
            "--pass-at … '1,x' … whole numbers … commas … 0,1,2",
        ),
        ("evaluate {run} --pass-at 2", "pass_at … 2 … 1 to 1 … games per task"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(run, command, options, complaint):
    code, out, err = command(options.format(run=run))
    assert (code, out) == (2, "")
    assert says(err, complaint)


def test_pass_at_k_and_turns_are_printed(run, command):
    code, out, _ = command(f"evaluate {run} --samples 4 --pass-at 1,3")
    found = motet.evaluate(run, samples=4, pass_at=[1, 3], show="silent")
    assert code == 0
    for k in (1, 3):
        assert re.search(rf"│ pass@{k} +│ +{found.pass_at[k]:.3f} │", out)
    second = found.by_turn[1]
    assert re.search(
        rf"│ 2 +│ +{second.played:.3f} │ +{second.reward:.3f} │ +{second.success:.3f} │",
        out,
    )
