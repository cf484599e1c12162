"""A home of two processes learns what one process does, up to rounding."""

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from motet.models.shards import read_shards
from tests.small_runs import contents, run_config, steps

pytestmark = pytest.mark.usefixtures("ray_here")
TWO = {"learners": {"gpus": 0, "ranks": 2}}
ADAPTER = {"model": "tiny", "train": "lora"}


def tensors_of(run, step):
    """Return all tensors of a checkpoint, with those in shards."""
    folder = run / "checkpoints" / f"step-{step:06d}"
    found = load_file(folder / "tensors.safetensors")
    for shards in folder.glob("home-*"):
        sizes = HuggingFaceStorageReader(str(shards)).read_metadata().state_dict_metadata
        found |= read_shards([shards], lambda name, sizes=sizes: torch.empty(sizes[name].size))
    return found


@pytest.mark.parametrize(
    ("policy", "algorithm"),
    [({"model": "tiny"}, "mappo"), (ADAPTER, "magrpo")],
    ids=["full with a critic", "adapters"],
)
def test_two_processes_learn_what_one_does(train, policy, algorithm):
    config = run_config(
        policies={"p": policy, "q": policy},
        algorithm={"name": algorithm},
        rollout={"samples": [3]},
        optimizer={"learning_rate": 1e-3, "schedule": "constant"},
        train={"steps": 3, "tasks_per_step": 2, "checkpoint_every": 0, "average_share": 0.5},
    )
    one = train(config)
    start, end = tensors_of(one, 0), tensors_of(one, 3)
    two = train(config | {"cluster": TWO}, runs=one.parent / "two")
    again = tensors_of(two, 3)
    assert end.keys() == again.keys()
    moved = max(float((end[key] - start[key]).abs().max()) for key in start if "weights" in key)
    apart = max(float((end[key] - again[key]).abs().max()) for key in end if "weights" in key)
    assert moved > 1e-3
    assert apart < 1e-3 * moved
    # Adam hides the scale of a gradient, so the loss and the norm are what shows it.
    for alone, together in zip(steps(one), steps(two), strict=True):
        assert alone.keys() == together.keys()
        for name in alone:
            if name.startswith(("learn/loss/", "learn/grad_norm/", "learn/entropy", "play/")):
                assert together[name] == pytest.approx(alone[name], rel=1e-4, abs=1e-6), name


def test_two_processes_give_the_same_run_twice(train):
    config = run_config(cluster=TWO, train={"steps": 3, "tasks_per_step": 2})
    first = train(config)
    again = train(config, runs=first.parent / "again")
    assert contents(first / "team") == contents(again / "team")
