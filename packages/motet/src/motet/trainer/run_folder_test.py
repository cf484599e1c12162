from pathlib import Path

import pytest

from motet.errors import ConfigError
from motet.trainer.run_folder import claimed, write_whole
from tests.fixtures.messages import facts


def claim(path, **flags):
    with claimed(path, **flags) as folder:
        return folder


def test_an_existing_run_is_not_touched_without_a_flag(tmp_path):
    folder = claim(tmp_path / "runs" / "a")
    folder.metrics.write_text("{}\n")
    with pytest.raises(
        ConfigError,
        match=facts("a exists … a new name … --resume … --overwrite … deletes it"),
    ):
        claim(folder.path)
    assert folder.metrics.read_text() == "{}\n"


def test_overwrite_starts_with_nothing_and_resume_with_everything(tmp_path):
    folder = claim(tmp_path / "a")
    folder.metrics.write_text("{}\n")
    assert claim(folder.path, resume=True).metrics.exists()
    assert not claim(folder.path, overwrite=True).metrics.exists()
    assert folder.path.is_dir()


def test_a_resumed_run_has_nothing_left_that_a_killed_process_had_begun(tmp_path):
    folder = claim(tmp_path / "a")
    for path in (
        folder.config,
        folder.path / ".summary.json.writing",
        folder.models / "tiny" / "x",
        folder.models / ".tiny.0.writing" / "x",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    claim(folder.path, resume=True)
    assert sorted(path.name for path in folder.path.rglob("*")) == [
        "config.yaml",
        "models",
        "tiny",
        "x",
    ]


def test_a_folder_that_cannot_be_made_is_one_clear_line():
    with pytest.raises(
        ConfigError,
        match=r"/proc/nowhere/a cannot be created: .*; expected a writable folder",
    ):
        claim(Path("/proc/nowhere/a"))


def test_a_run_that_turns_out_not_to_work_puts_back_what_it_overwrote(tmp_path):
    folder = claim(tmp_path / "runs" / "a")
    folder.metrics.write_text("{}\n")

    def begin(name):
        with claimed(tmp_path / name, overwrite=True) as begun:
            begun.metrics.write_text("new")
            raise ConfigError("no such model")

    for name in ("runs/a", "other/b"):
        with pytest.raises(ConfigError, match="no such model"):
            begin(name)
    assert folder.metrics.read_text() == "{}\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "metrics.jsonl", "runs"]


def test_what_is_no_run_folder_is_never_deleted(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ConfigError, match=facts(f"{tmp_path.name} … not a run folder")):
        claim(tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match=facts("thesis.tex … not a run folder")):
        claim(tmp_path / "thesis.tex", overwrite=True)
    assert (tmp_path / "thesis.tex").read_text() == "x"


def test_flags_that_contradict_the_folder_or_each_other_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=facts("absent … no run … without --resume")):
        claim(tmp_path / "absent", resume=True)
    with pytest.raises(ConfigError, match="expected at most one"):
        claim(tmp_path / "absent", resume=True, overwrite=True)
    assert not (tmp_path / "absent").exists()


def test_a_run_folder_knows_its_places(tmp_path):
    folder = claim(tmp_path / "a")
    assert folder.episodes("train", 7) == tmp_path / "a" / "episodes" / "train-000007.jsonl"
    write_whole(folder.summary, "old")
    write_whole(folder.summary, "new")
    assert [path.name for path in folder.path.iterdir()] == ["summary.json"]
    assert folder.summary.read_text() == "new"
