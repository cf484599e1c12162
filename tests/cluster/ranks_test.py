"""A home of two processes learns what one process does, up to rounding."""

import pytest
from safetensors.torch import load_file

from tests.small_runs import contents, run_config, steps

pytestmark = pytest.mark.usefixtures("ray_here")
TWO = {"learners": {"gpus": 0, "ranks": 2}}
ADAPTER = {"model": "tiny", "train": "lora"}


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
        train={"steps": 3, "tasks_per_step": 2, "checkpoint_every": 0},
    )
    one = train(config)
    start = load_file(next(one.glob("checkpoints/step-000000/tensors.safetensors")))
    end = load_file(next(one.glob("checkpoints/step-000003/tensors.safetensors")))
    two = train(config | {"cluster": TWO}, runs=one.parent / "two")
    again = load_file(next(two.glob("checkpoints/step-000003/tensors.safetensors")))
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
