"""The bug fix configs on local rows: no hub, no model of the hub."""

import json

import pytest

import motet
from motet.config.paths import config_path
from motet.errors import ConfigError
from motet_tasks.coding.bugs_test import GIVEN, ROW
from tests.fixtures.messages import facts
from tests.small_runs import run_config, summary

CONFIG = config_path("bugfix")
TINY = config_path("bugfix_tiny")
MODEL = {
    "hidden_size": 16,
    "layers": 1,
    "heads": 2,
    "kv_heads": 1,
    "feed_forward": 32,
    "vocabulary": 258,
    "context": 2048,
}


def written(folder, *rows):
    path = folder / "rows.jsonl"
    path.write_text(
        "".join(json.dumps({**row, "task_id": f"t/{n}"}) + "\n" for n, row in enumerate(rows))
    )
    return str(path)


def reference(path, *overrides):
    overrides = [f"data.eval.path={path}", "sandbox.workers=1", *overrides]
    return motet.evaluate(CONFIG, overrides, team="reference", show="silent")


@pytest.mark.parametrize(
    "overrides", [(), ("rollout.samples=[1,1,1,1]",), ("environment.mutants_per_row=3",)]
)
def test_the_reference_team_repairs_a_mutant_of_every_row(tmp_path, overrides):
    figures = reference(written(tmp_path, *[ROW] * 4), *overrides)
    assert figures.episodes == (12 if "environment.mutants_per_row=3" in overrides else 4)
    assert (figures.success, figures.reward, figures.faults, figures.turns) == (
        1.0,
        3.0,
        0,
        2.0,
    )
    assert figures.rows_passed_over is None


def test_rows_of_humanevalfix_bring_their_own_bugs(tmp_path):
    figures = reference(written(tmp_path, GIVEN, GIVEN), "environment.mutate=false")
    assert (figures.episodes, figures.success, figures.terms["located"]) == (2, 1.0, 1.0)


def test_rows_without_a_bug_are_counted(tmp_path):
    broken = {**ROW, "test": "def check(candidate):\n    assert candidate([1, 2]) == 6\n"}
    figures = reference(written(tmp_path, ROW, broken, ROW))
    assert (figures.episodes, figures.rows_passed_over) == (2, 1)


def test_data_without_any_bug_or_with_the_wrong_fields_is_one_clear_line(tmp_path):
    path = written(tmp_path, {**GIVEN, "buggy_solution": GIVEN["canonical_solution"]})
    with pytest.raises(ConfigError, match="bug_fix has no tasks for 'eval'; expected at least one"):
        reference(path, "environment.mutate=false")
    with pytest.raises(
        ConfigError, match=r"data\.eval, row 1.*has no buggy_solution.*environment\.mutate: true"
    ):
        reference(written(tmp_path, ROW), "environment.mutate=false")


def test_a_team_trains_on_mutants_over_two_attempts(tmp_path):
    path = written(tmp_path, *[ROW] * 2)
    config = run_config(
        environment={"name": "bug_fix", "mutate": True, "mutants_per_row": 2},
        data={"train": {"path": path}, "eval": {"path": path}},
        models={"tiny": {"embedded": MODEL, "device": "cpu"}},
        team={"reviewer": "p", "fixer": "q"},
        rollout={"samples": [2, 1, 1, 1]},
        algorithm={"name": "magrpo", "group_by": "task", "repeat_last_reward": False},
    )
    motet.train(config, runs=tmp_path, show="silent")
    assert summary(tmp_path / "run")["heldout"]["after"]["episodes"] == 4
    assert summary(tmp_path / "run")["heldout"]["after"]["faults"] == 0


def test_paying_an_early_end_again_is_refused(tmp_path):
    with pytest.raises(
        ConfigError,
        match=facts("BugFix … only at the end … algorithm.repeat_last_reward: false"),
    ):
        motet.train(
            CONFIG,
            [f"data.train.path={written(tmp_path, ROW)}", "algorithm.repeat_last_reward=true"],
            runs=tmp_path,
        )


def test_the_embedded_config_plays_with_its_reference_team():
    figures = motet.evaluate(TINY, team="reference", show="silent")
    assert (figures.episodes, figures.success) == (360, 1.0)
