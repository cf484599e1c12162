import json
import shutil
from pathlib import Path

import pytest

from motet.api.keeping import Keeper
from tests.fixtures.messages import says
from tests.fixtures.recorded_runs import make_run

FIGURES = {"success": 0.5, "reward": 0.25}


def kept(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "evaluations").iterdir())


def test_an_evaluation_is_kept_with_what_was_asked_and_replaces_itself(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for success in (0.5, 0.75):
        (said,) = Keeper([run]).keep("evaluation", ["--greedy"], {"success": success})
    assert said == f"kept in {run}/evaluations/evaluation-greedy.json: motet view shows it"
    assert json.loads((run / "evaluations" / "evaluation-greedy.json").read_text()) == {
        "success": 0.75,
        "about": {"kind": "evaluation", "team": "", "step": 4, "options": ["--greedy"]},
    }
    keeper = Keeper([run])
    keeper.keep("shuffled-turn-1", ["--samples 10"], FIGURES)
    for override in ("decode.temperature=0.5", "decode.temperature=0.6", "a" * 200):
        keeper.keep("evaluation", [override], FIGURES)
    assert len(kept(run)) == 5
    assert "shuffled-turn-1-samples-10.json" in kept(run)


def test_checkpoints_and_the_best_team_are_kept_with_their_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    checkpoint, best = run / "checkpoints" / "step-000002", run / "best"
    for folder in (checkpoint, best):
        folder.mkdir(parents=True)
    (best / "config.yaml").write_text("{}")
    (best / "best.json").write_text('{"step": 3}')
    Keeper([checkpoint, best]).keep("evaluation", [], FIGURES)
    found = {name: json.loads((run / "evaluations" / name).read_text()) for name in kept(run)}
    assert {name: one["about"]["step"] for name, one in found.items()} == {
        "best-evaluation.json": 3,
        "step-000002-evaluation.json": 2,
    }


def test_nothing_is_kept_of_an_export_or_a_config(tmp_path: Path) -> None:
    export = tmp_path / "export"
    export.mkdir()
    (export / "team.yaml").write_text("{}")
    config = tmp_path / "config.yaml"
    config.write_text("{}")
    (said,) = Keeper([export]).keep("evaluation", [], FIGURES)
    assert says(said, f"not kept … {export} … exported team")
    assert Keeper([config, tmp_path / "gone"]).keep("evaluation", [], FIGURES) == []
    assert sorted(path.name for path in tmp_path.rglob("*")) == [
        "config.yaml", "export", "team.yaml",
    ]  # fmt: skip


def test_a_run_that_was_started_anew_meanwhile_gets_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    keeper = Keeper([run])
    run.rename(tmp_path / "before")
    make_run(tmp_path)
    (said,) = keeper.keep("evaluation", [], FIGURES)
    assert says(said, "not kept … run … started anew")
    shutil.rmtree(run)
    (said,) = keeper.keep("evaluation", [], FIGURES)
    assert said.endswith("No such file or directory")
    assert not run.exists()


def test_a_run_that_cannot_be_written_gets_a_note(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "evaluations").write_text("a file")
    (said,) = Keeper([run]).keep("evaluation", [], FIGURES)
    assert said.startswith(f"not kept in {run}/evaluations/evaluation.json: ")
    (run / "evaluations").unlink()
    (said,) = Keeper([run]).keep("evaluation", [], {"reward": float("nan")})
    assert "not JSON compliant" in said
    assert kept(run) == []


@pytest.mark.parametrize("broken", ["{", "{}", "[]"])
def test_a_run_without_a_readable_summary_keeps_evaluations(tmp_path: Path, broken: str) -> None:
    run = make_run(tmp_path)
    (run / "summary.json").write_text(broken)
    Keeper([run]).keep("evaluation", [], FIGURES)
    found = json.loads((run / "evaluations" / "evaluation.json").read_text())
    assert found["about"]["step"] is None


def test_passwords_of_overrides_are_not_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    options = ["verifier.base_url=http://me:hunter22@host", "--verifier http://me:hunter22@host",
               "expert.api_key=hunter22"]  # fmt: skip
    Keeper([run]).keep("evaluation", options, FIGURES)
    (path,) = (run / "evaluations").iterdir()
    assert "hunter22" not in path.read_text()
    assert json.loads(path.read_text())["about"]["options"][2] == "expert.api_key=[hidden]"
