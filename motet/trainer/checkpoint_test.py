"""All of a checkpoint or nothing of it."""

import pytest
import torch

from motet.errors import ConfigError
from motet.trainer.checkpoint import Checkpoint, folders, newest, save


def checkpoint(step):
    return Checkpoint(step, {"step": step, "rate": 0.1}, {"w": torch.full((3,), float(step))})


def test_the_newest_comes_back_equal(tmp_path):
    for step in (1, 2):
        save(tmp_path, checkpoint(step), keep=2)
    found, broken = newest(tmp_path)
    assert (found.step, found.state, broken) == (2, {"step": 2, "rate": 0.1}, [])
    assert torch.equal(found.tensors["w"], torch.full((3,), 2.0))


def test_only_the_newest_are_kept_and_nothing_else_lies_about(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, checkpoint(step), keep=2)
    assert [path.name for path in folders(tmp_path)] == ["step-000003", "step-000002"]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_a_harmed_checkpoint_is_passed_over_and_named(tmp_path, name, harm):
    save(tmp_path, checkpoint(1), keep=2)
    path = save(tmp_path, checkpoint(2), keep=2) / name
    content = path.read_bytes()
    if harm == "remove":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if harm == "truncate" else bytes([content[0] ^ 1]) + content[1:])
    found, broken = newest(tmp_path)
    assert found.step == 1
    assert len(broken) == 1
    assert "step-000002" in broken[0]


def test_none_sound_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="no sound checkpoint"):
        newest(tmp_path)


def test_a_torn_write_is_never_seen(tmp_path):
    (tmp_path / ".step-000009.writing").mkdir()
    save(tmp_path, checkpoint(1), keep=1)
    assert newest(tmp_path)[0].step == 1
