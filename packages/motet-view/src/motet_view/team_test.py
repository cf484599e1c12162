import json
from pathlib import Path

from motet.api.keeping import Keeper
from motet_view import plain
from motet_view.team import team_figures
from tests.fixtures.messages import says
from tests.fixtures.recorded_runs import BASELINES, evaluated, make_run, summary_of

SAVED = "evaluations"

CROSS = {"runs": ["a", "b"], "agents": ["x", "y"], "success": [[1.0, 0.2], [0.3, 0.9]]}


def test_evaluations_come_from_the_summary_and_from_saved_files(tmp_path: Path) -> None:
    (tmp_path / SAVED).mkdir()
    saved = {"success": 0.4, "reward": 0.5, "interval": {"success": [0.3, 0.5]}}
    for name, content in {"shuffled": saved, "crossplay": CROSS, "other": {"success": 1}}.items():
        (tmp_path / SAVED / f"{name}.json").write_text(json.dumps(content))
    (tmp_path / SAVED / "broken.json").write_text("{")
    found = team_figures(tmp_path, summary_of("x", 4))
    titles = [one["title"] for one in found["evaluations"]]
    assert titles == ["before training", "after training", "other", "shuffled"]
    assert found["evaluations"][1]["influence"]["pairs"][0]["persuaded"] == 0.75
    assert found["evaluations"][3]["interval"] == {"success": [0.3, 0.5]}
    assert [one["step"] for one in found["evaluations"]] == [0, 4, None, None]
    (cross,) = found["crossplays"]
    assert cross == {"title": "crossplay", "step": None, "options": [], **CROSS}
    (unreadable,) = found["unreadable"]
    assert "broken.json is not JSON" in unreadable


def test_a_run_without_evaluations_has_none(tmp_path: Path) -> None:
    kinds = ("evaluations", "baselines", "diagnoses", "crossplays", "unreadable")
    none: dict[str, list[object]] = {kind: [] for kind in kinds}
    assert team_figures(tmp_path, {}) == none
    assert team_figures(tmp_path, {"heldout": ["strange"]}) == none


def test_a_matrix_that_is_not_square_is_no_crossplay(tmp_path: Path) -> None:
    (tmp_path / SAVED).mkdir()
    (tmp_path / SAVED / "bad.json").write_text(
        json.dumps({**CROSS, "success": [[1.0]], "reward": "x"})
    )
    found = team_figures(tmp_path, {})
    assert (found["evaluations"], found["crossplays"]) == ([], [])
    assert says(found["unreadable"][0], "bad.json … motet evaluate … motet crossplay")


def test_what_commands_kept_is_shown_with_its_step_and_options(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    keeper = Keeper([run])
    keeper.keep("blank-turn-1", ["--samples 4"], evaluated(0.1, "blank"))
    keeper.keep("baselines", [], BASELINES)
    keeper.keep("crossplay", ["plain", "other"], CROSS)
    found = team_figures(run, {})
    (blank,), (table,), (cross,) = (
        found[kind] for kind in ("evaluations", "baselines", "crossplays")
    )
    assert (blank["title"], blank["step"]) == ("blank after turn 1", 4)
    assert blank["options"] == ["--samples 4"]
    assert blank["messages"]["real"]["success"] == 0.9
    assert (table["title"], table["rows"]) == ("baselines", BASELINES["rows"])
    assert (cross["title"], cross["success"]) == ("crossplay", CROSS["success"])
    assert found["unreadable"] == []


DIAGNOSIS = {
    "measure": "success", "games": 8, "contributions": [{
        "stand_in": "silent",
        "whole": {"mean": 0.9, "low": 0.8, "high": 1.0},
        "replaced": None,
        "agents": {"a": {"shapley": {"mean": 0.4, "low": 0.3, "high": 0.5}, "lost": "strange"}},
    }, 7],
    "messages": [{"sender": "a", "turn": 1, "replaced": "blank", "lost": None}, "strange"],
    "unearned": {"a": 0.25, "b": "strange"},
    "fidelity": {
        "all": {"mean": 0.5, "low": 0.1, "high": 0.7},
        "own": {"a": {"mean": 0.25, "low": 0.2, "high": 0.3}, "b": None},
    },
}  # fmt: skip


def test_a_diagnosis_is_shown_without_what_has_another_form(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    Keeper([run]).keep("diagnosis", [], DIAGNOSIS)
    found = team_figures(run, {})
    (one,) = found["diagnoses"]
    assert (found["evaluations"], one["title"], one["games"]) == ([], "diagnosis", 8)
    (part,) = one["contributions"]
    assert part["agents"]["a"]["shapley"]["mean"] == 0.4
    assert part["agents"]["a"]["lost"] is part["replaced"] is None
    assert [each["replaced"] for each in one["messages"]] == ["blank"]
    assert one["unearned"] == {"a": 0.25, "b": None}
    assert one["fidelity"] == {"mean": 0.5, "low": 0.1, "high": 0.7}
    assert one["own"] == {"a": {"mean": 0.25, "low": 0.2, "high": 0.3}, "b": None}


def test_an_interval_without_a_width_is_left_out():
    assert plain.ends({"success": [0.0, 0.0], "reward": [0.1, 0.2]}) == {"reward": [0.1, 0.2]}
