"""Influence in a debate, from the game to the files of a run and the terminal."""

import sys

import pytest

import motet
from motet.commands import console
from motet.commands.main import main
from tests.games import SCRIPT
from tests.small_runs import GAMES, recorded, rows, run_config, steps, summary

pytestmark = pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)


@pytest.fixture
def run(train):
    debate = {
        "environment": {"name": f"{GAMES}:Scripted"},
        "policies": {"p": {"model": "tiny"}},
        "team": dict.fromkeys(SCRIPT, "p"),
    }
    return train(
        run_config(**debate, rollout={"samples": [2, 2]}, train={"steps": 1, "tasks_per_step": 2})
    )


def test_the_summary_and_the_metrics_of_a_run_say_who_was_right_and_what_changed(run):
    after = summary(run)["heldout"]["after"]
    assert after["success_by_turn"] == pytest.approx([2 / 3, 2 / 3])
    assert after["by_turn"][0]["terms"]["right/bob"] == 0.0
    assert recorded(motet.evaluate(run, show="silent")) == after
    expected = {
        "accuracy/turn1": 2 / 3, "accuracy/turn1/ann": 1.0, "accuracy/turn1/bob": 0.0,
        "accuracy/turn1/cat": 1.0, "majority_accuracy/turn1": 1.0,
        "accuracy/turn2": 2 / 3, "accuracy/turn2/ann": 1.0, "accuracy/turn2/bob": 1.0,
        "accuracy/turn2/cat": 0.0, "majority_accuracy/turn2": 1.0,
        "turn_reward/turn1/ann": 1.0, "turn_reward/turn1/bob": 0.0, "turn_reward/turn2/bob": 1.0,
        "improved": 1 / 3, "declined": 1 / 3, "kept_right": 1 / 3, "kept_wrong": 0.0,
        "corrected": 1.0, "spoiled": 0.5, "persuaded/ann/bob": 1.0, "persuaded/cat/bob": 1.0,
        "misled/bob/ann": 0.0, "misled/bob/cat": 1.0,
    }  # fmt: skip
    (step,) = steps(run)
    assert {name: step[f"play/{name}"] for name in expected} == pytest.approx(expected)
    # two tasks; training has two first and two second joint actions each, the evaluation one game
    assert [
        step[f"play/{name}"] for name in ("wrong_to_right", "right_to_wrong", "persuasions")
    ] == [8, 8, 8]
    assert "play/persuaded/bob/ann" not in step
    last = rows(run)[-1]
    assert (last["evaluate/persuaded/ann/bob"], last["evaluate/wrong_to_right"]) == (1.0, 2)


def test_evaluate_prints_it_as_tables(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["motet", "evaluate", str(run)])
    monkeypatch.setattr(console.out, "_width", 80)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (None, 0)
    printed = capsys.readouterr().out
    table_rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in printed.splitlines()
        if "│" in line
    ]
    assert ["bob", "0.000", "1.000"] in table_rows
    assert ["majority", "1.000", "1.000"] in table_rows
    assert ["1 to 2  cat", "0.000", "1.000", "0.000", "0.000", "-", "1.000"] in table_rows
    assert ["1 to 2  all", "0.333", "0.333", "0.333", "0.000", "1.000", "0.500"] in table_rows
    assert ["bob", "cat", "-", "0", "1.000", "2"] in table_rows
    assert all(len(line) <= 80 for line in printed.splitlines() if "│" in line)


def test_the_json_of_an_evaluation_outside_debates_has_nothing_of_it(train):
    figures = motet.evaluate(train(run_config()), show="silent")
    assert (figures.influence, figures.success_by_turn) == (None, None)
    assert figures.by_turn[0].terms is None
