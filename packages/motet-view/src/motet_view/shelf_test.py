import json
import os
from pathlib import Path

import pytest

from motet.errors import ConfigError
from motet.trainer.run_folder import alone
from motet_view.shelf import find_runs
from tests.fixtures.messages import facts
from tests.fixtures.recorded_runs import make_run


def test_a_folder_stands_for_the_runs_below_it(tmp_path: Path) -> None:
    for name in ("one", "deep/two", "deep/three"):
        make_run(tmp_path / Path(name).parent, Path(name).name, steps=1)
    (tmp_path / ".hidden").mkdir()
    assert [run.name for run in find_runs([tmp_path])] == ["three", "two", "one"]
    assert [run.name for run in find_runs([tmp_path / "one", tmp_path])] == ["one", "three", "two"]


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a", "b", "c/a"):
        make_run(tmp_path / folder, "same", steps=1)
    assert [run.name for run in find_runs([tmp_path])] == ["a/same (1)", "b/same", "a/same (2)"]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=facts("nothing does not exist … run folder")):
        find_runs([tmp_path / "nothing"])
    with pytest.raises(ConfigError, match=facts(f"{tmp_path.name} has no run … config.yaml")):
        find_runs([tmp_path])


def test_states_of_a_run(tmp_path: Path) -> None:
    path = make_run(tmp_path, steps=1)
    (run,) = find_runs([path])
    assert run.state()["state"] == "finished"
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps({**summary, "finished": False, "more": 1}))
    assert run.state()["state"] == "stopped"
    with alone(path):
        assert run.state()["state"] == "training"
        for name in ("metrics.jsonl", "summary.json"):
            os.utime(path / name, (0, 0))
        assert run.state()["state"] == "quiet"
    (tmp_path / ".plain.lock").touch()  # a killed process leaves the file
    assert run.state()["state"] == "stopped"


def test_a_broken_summary_is_not_that_of_a_finished_run(tmp_path: Path) -> None:
    path = make_run(tmp_path, steps=1)
    (path / "summary.json").write_text("[1")
    (run,) = find_runs([path])
    assert run.state()["state"] == "stopped"


def test_a_file_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    with pytest.raises(ConfigError, match="notes is a file; expected a run folder"):
        find_runs([tmp_path / "notes"])


@pytest.mark.parametrize("content", ["", "[1", "- a", "a: !!python/object:os.system x", "\0"])
def test_a_config_or_summary_that_cannot_be_read_is_empty(tmp_path: Path, content: str) -> None:
    path = make_run(tmp_path, steps=1)
    (run,) = find_runs([path])
    assert run.config["name"] == "plain"
    (path / "config.yaml").write_text(content)
    (path / "summary.json").write_text(content)
    assert run.config == {}
    assert run.summary == {}
