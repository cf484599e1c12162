"""Whole runs in Minecraft: on data of the published form, with pictures in the run folder."""

import csv
import json

import pytest

import motet
from motet.config.paths import config_path
from motet_tasks.minecraft.houses import generated_houses
from tests.small_runs import TINY, run_config

PNG = b"\x89PNG"
TEAM = {"builder1": "p", "builder2": "q"}


def words(folder):
    path = folder / "data.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["string", "difficulty"], ["L", 1], ["ML", 2], ["TEAM", 3]])
    return path


def houses(folder):
    path = folder / "data.json"
    path.write_text(json.dumps(generated_houses(3)))
    return path


@pytest.mark.parametrize(
    ("game", "written"),
    [
        ({"name": "str_build", "feedback": {"mode": "perfect_feedback"}}, words),
        ({"name": "house_build", "feedback": {"mode": "rect_modification"}}, houses),
    ],
    ids=["str_build", "house_build"],
)
def test_a_run_reads_published_data_and_draws_target_and_result(tmp_path, game, written):
    source = {"path": str(written(tmp_path)), "split": "train[:2]"}
    config = run_config(
        data={"train": source, "eval": {**source, "split": "train[2:]"}},
        models={"tiny": {"embedded": {**TINY, "context": 8192}}},
        team=TEAM,
        rollout={"samples": [2, 2]},
        train={"steps": 1, "tasks_per_step": 1},
    ) | {"environment": {**game, "prompts": "raw"}}
    summary = motet.train(config, runs=tmp_path, show="silent")
    assert summary.heldout["after"].faults == 0
    for when in ("before", "after"):
        assert (tmp_path / "run" / f"{when}.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(("name", "written"), [("str_build", words), ("house_build", houses)])
def test_the_reference_team_has_the_best_reward_on_generated_and_on_own_tasks(
    tmp_path, name, written
):
    config = config_path(name)
    for overrides in ([], [f"data.eval.path={written(tmp_path)}"]):
        figures = motet.evaluate(config, overrides, team="reference", show="silent")
        assert (figures.success, figures.reward, figures.faults) == (1.0, 0.0, 0)


def test_a_game_without_drawings_draws_nothing(tmp_path):
    motet.train(run_config(train={"steps": 1, "tasks_per_step": 1}), runs=tmp_path, show="silent")
    assert not (tmp_path / "run" / "after.png").exists()
