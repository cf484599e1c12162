"""A checkpoint is complete, or it does not exist."""

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import motet.trainer.checkpoint as checkpoints
from motet.errors import ConfigError, ProcessLost
from motet.trainer.checkpoint import (
    SHARDS,
    Checkpoint,
    CheckpointWriter,
    Retention,
    folders,
    newest,
    recover,
    save,
    step_of,
    what_is_wrong,
)
from tests.fixtures.messages import facts

KEEP = Retention(2)


def checkpoint(step):
    return Checkpoint(step, {"step": step, "rate": 0.1}, {"w": torch.full((3,), float(step))})


def test_the_newest_comes_back_equal(tmp_path):
    for step in (1, 2):
        save(tmp_path, checkpoint(step), KEEP)
    found, broken = newest(tmp_path)
    assert (found.step, found.state, broken) == (2, {"step": 2, "rate": 0.1}, [])
    assert torch.equal(found.tensors["w"], torch.full((3,), 2.0))


def test_only_the_newest_are_kept_and_nothing_else_lies_about(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, checkpoint(step), KEEP)
    assert [path.name for path in folders(tmp_path)] == ["step-000003", "step-000002"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_a_harmed_checkpoint_is_passed_over_and_named(tmp_path, name, harm):
    save(tmp_path, checkpoint(1), KEEP)
    path = save(tmp_path, checkpoint(2), KEEP) / name
    content = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(
            content[: len(content) // 2]
            if harm == "truncate"
            else bytes([content[0] ^ 1]) + content[1:]
        )
    found, broken = newest(tmp_path)
    assert found.step == 1
    assert len(broken) == 1
    assert "step-000002" in broken[0]


def test_none_sound_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="no valid checkpoint"):
        newest(tmp_path)


def test_a_torn_write_is_never_seen(tmp_path):
    (tmp_path / ".step-000009.writing").mkdir()
    save(tmp_path, checkpoint(1), Retention(1))
    assert newest(tmp_path)[0].step == 1


# -------------------------------------------------------------------------------- large checkpoints


def test_a_large_checkpoint_has_several_files_and_each_is_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "PART", 40)
    tensors = {
        name: torch.full((size,), float(size))
        for name, size in (("a", 5), ("b", 5), ("c", 30), ("d", 1))
    }
    path = save(tmp_path, Checkpoint(1, {}, tensors), KEEP)
    names = sorted(each.name for each in path.glob("*.safetensors"))
    assert names == [
        "tensors-00002.safetensors",
        "tensors-00003.safetensors",
        "tensors.safetensors",
    ]
    found, _ = newest(tmp_path)
    assert found.tensors.keys() == tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in tensors.items())
    content = (path / names[0]).read_bytes()
    (path / names[0]).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ConfigError, match=facts("tensors-00002.safetensors … changed")):
        newest(tmp_path)
    (path / names[1]).unlink()
    with pytest.raises(ConfigError, match=facts("tensors-00003.safetensors … missing")):
        newest(tmp_path)


@pytest.mark.parametrize("name", ["../state.json", "tensors-1.safetensors", "model.bin"])
def test_a_manifest_names_files_of_its_own_folder_only(tmp_path, name):
    path = save(tmp_path, checkpoint(1), KEEP)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = ""
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match=r"manifest\.json lists"):
        newest(tmp_path)


def test_more_than_a_gibibyte_is_written_without_a_copy_while_the_run_waits(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MOST_COPIED", 11)
    writer = CheckpointWriter(tmp_path, KEEP)
    writer.write(checkpoint(1))  # three numbers of four bytes
    assert newest(tmp_path)[0].step == 1, "on the disk when the call returns"
    assert writer._copies == {}
    monkeypatch.setattr(
        checkpoints,
        "save",
        lambda *given, **named: (_ for _ in ()).throw(OSError(28, "No space left")),
    )
    with pytest.raises(OSError, match="No space left"):
        writer.write(checkpoint(2))


def test_a_step_that_was_ranked_after_it_was_saved_is_written_anew(tmp_path):
    save(tmp_path, replace(checkpoint(1), rank=None), KEEP)
    save(tmp_path, replace(checkpoint(1), rank=0.5), KEEP)
    assert newest(tmp_path)[0].rank is None, "the same step has the same content"
    save(tmp_path, replace(checkpoint(1), rank=0.5), KEEP, anew=True)
    assert newest(tmp_path)[0].rank == 0.5
    assert [folder.name for folder in tmp_path.iterdir()] == ["step-000001"]


class Killed(Exception):
    """Stands for SIGKILL."""


@pytest.mark.parametrize(("renames", "rank"), [(0, None), (1, 0.5), (2, 0.5)])
def test_a_kill_while_a_step_is_written_anew_loses_no_checkpoint(
    tmp_path, monkeypatch, renames, rank
):
    save(tmp_path, checkpoint(1), Retention(1))
    rename, done = Path.rename, []

    def killed(self, target):
        if len(done) == renames:
            raise Killed
        done.append(target)
        return rename(self, target)

    def left(*arguments, **options):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        patch.setattr(checkpoints.shutil, "rmtree", left)
        with pytest.raises(Killed):
            save(tmp_path, replace(checkpoint(1), rank=0.5), Retention(1), anew=True)
    recover(tmp_path)
    assert newest(tmp_path)[0].rank == rank
    save(tmp_path, checkpoint(2), Retention(1))
    assert step_of(folders(tmp_path)[0]) == 2
    assert not list(tmp_path.glob(".step-*"))


def test_a_write_that_was_not_finished_is_not_taken_for_a_checkpoint(tmp_path):
    torn = tmp_path / ".step-000001.writing"
    torn.mkdir()
    (torn / "state.json").write_text("{}")
    recover(tmp_path)
    assert folders(tmp_path) == []


# ---------------------------------------------------------------------------------------- retention


@pytest.mark.parametrize(
    ("retention", "ranks", "kept"),
    [
        (Retention(1), {0: None, 10: None, 20: None}, {20}),
        (Retention(2), {0: None, 10: None, 20: None}, {10, 20}),
        (
            Retention(1, every=20),
            {0: None, 10: None, 20: None, 30: None, 40: None, 50: None},
            {0, 20, 40, 50},
        ),
        (Retention(1), {10: 0.5, 20: 0.9, 30: 0.7, 40: None}, {20, 40}),
        (Retention(1), {10: 0.9, 20: 0.9, 30: 0.1}, {10, 30}),
        (
            Retention(3, every=30),
            {10: 0.1, 20: 0.2, 30: 0.0, 40: 0.0, 50: 0.0, 60: 0.0},
            {20, 30, 40, 50, 60},
        ),
    ],
)
def test_the_newest_the_best_and_every_mth_stay(retention, ranks, kept):
    assert retention.keeps(ranks) == kept


def test_the_best_stays_on_disk_and_says_its_rank(tmp_path):
    for step, rank in ((1, 0.2), (2, 0.8), (3, 0.5), (4, None)):
        save(tmp_path, replace(checkpoint(step), rank=rank), Retention(1))
    assert [path.name for path in folders(tmp_path)] == ["step-000004", "step-000002"]
    assert newest(tmp_path, before=4)[0].rank == 0.8


def test_a_run_that_goes_on_before_a_broken_checkpoint_loses_nothing_sound(tmp_path):
    save(tmp_path, checkpoint(10), Retention(1))
    (tmp_path / "step-000020").mkdir()  # broken by hand: `save` never leaves one
    save(tmp_path, checkpoint(15), Retention(1))
    assert [path.name for path in folders(tmp_path)] == ["step-000015"]
    assert newest(tmp_path)[0].step == 15


def test_a_sound_checkpoint_of_the_same_step_is_left_and_a_broken_one_replaced(tmp_path):
    path = save(tmp_path, checkpoint(1), KEEP)
    before = (path / "manifest.json").stat().st_mtime_ns
    save(tmp_path, checkpoint(1), KEEP)
    assert (path / "manifest.json").stat().st_mtime_ns == before
    (path / "state.json").write_text("{}")
    save(tmp_path, checkpoint(1), KEEP)
    assert newest(tmp_path)[1] == []


# ------------------------------------------------------------------------------- background writing


def test_what_is_written_beside_is_what_stood_when_it_began(tmp_path, monkeypatch):
    """The run changes its weights while the writer is paused in the middle."""
    begun, resume_command = threading.Event(), threading.Event()

    def slowly(*given, **named):
        begun.set()
        assert resume_command.wait(60)
        return save(*given, **named)

    monkeypatch.setattr("motet.trainer.checkpoint.save", slowly)
    writer, weights, state = CheckpointWriter(tmp_path, KEEP), torch.zeros(3), {"deep": [1]}
    writer.write(Checkpoint(1, state, {"w": weights}))
    assert begun.wait(60)
    weights += 1.0
    state["deep"].append(2)
    assert folders(tmp_path) == []
    resume_command.set()
    writer.wait()
    found, _ = newest(tmp_path)
    assert (found.state, found.tensors["w"].tolist()) == ({"deep": [1]}, [0.0, 0.0, 0.0])


def test_a_second_checkpoint_waits_for_the_first_and_takes_its_room(tmp_path):
    writer = CheckpointWriter(tmp_path, KEEP)
    for step in range(1, 6):
        writer.write(checkpoint(step))
    held = writer._copies["w"].data_ptr()
    writer.write(checkpoint(6))
    writer.wait()
    assert writer._copies["w"].data_ptr() == held
    assert [path.name for path in folders(tmp_path)] == ["step-000006", "step-000005"]
    assert newest(tmp_path)[0].tensors["w"].tolist() == [6.0] * 3


def test_what_cannot_be_written_is_told_once_and_leaves_what_was_there(tmp_path):
    writer = CheckpointWriter(tmp_path / "checkpoints", KEEP)
    writer.write(checkpoint(1))
    writer.wait()
    writer.write(checkpoint(2), rests_on=[tmp_path / "gone"])
    with pytest.raises(FileNotFoundError, match=r"No such file or directory: .*gone"):
        writer.wait()
    writer.wait()
    assert [path.name for path in folders(tmp_path / "checkpoints")] == ["step-000001"]


def shards_of(folder):
    """Write as a home of two processes does."""
    (folder / SHARDS.format(1)).mkdir()
    for number in (1, 2):
        name = f"shard-0000{number}-model-00001-of-00001.safetensors"
        (folder / SHARDS.format(1) / name).write_bytes(b"part %d" % number)


def with_shards(step, write=shards_of):
    return replace(checkpoint(step), write_shards=write)


def test_shards_are_part_of_the_manifest(tmp_path):
    writer = CheckpointWriter(tmp_path, KEEP)
    writer.write(with_shards(1))
    found, broken = newest(tmp_path)  # written when the call returns, as shards are not copied
    assert (found.step, broken) == (1, [])
    assert found.tensors.keys() == {"w"}
    assert list(found.shards) == [tmp_path / "step-000001" / "home-00001"]
    (found.shards[0] / "shard-00002-model-00001-of-00001.safetensors").write_bytes(b"part 3")
    wrong = "home-00001/shard-00002-model-00001-of-00001.safetensors was changed"
    assert what_is_wrong(tmp_path / "step-000001").startswith(wrong)


def test_a_home_that_dies_while_it_writes_leaves_the_checkpoint_before(tmp_path):
    def dies(folder):
        shards_of(folder)
        raise ProcessLost("home p was lost")

    writer = CheckpointWriter(tmp_path, KEEP)
    writer.write(with_shards(1))
    with pytest.raises(ProcessLost):
        writer.write(with_shards(2, dies))
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert newest(tmp_path)[0].step == 1


def test_shards_left_by_a_driver_that_was_killed_are_removed(tmp_path):
    left = tmp_path / ".step-000001.writing"
    left.mkdir()
    shards_of(left)
    save(tmp_path, with_shards(1), KEEP)
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_pinned_checkpoints_stay_beside_the_newest(tmp_path):
    for step in range(1, 6):
        save(tmp_path, Checkpoint(step, {}, {}), Retention(1), {2, 3})
    assert [step_of(folder) for folder in folders(tmp_path)] == [5, 3, 2]
    save(tmp_path, Checkpoint(6, {}, {}), Retention(1), {3})
    assert [step_of(folder) for folder in folders(tmp_path)] == [6, 3]
