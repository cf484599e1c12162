"""Runs whose homes divide their weights: checkpoints of two processes and of one are exchanged."""

import os
import shutil
import signal

import pytest
import torch
from safetensors.torch import load_file

import motet_serve
from motet.errors import ProcessLost
from motet_cluster.models import ClusterModels
from tests.cluster.conftest import homes_of
from tests.small_runs import contents, run_config, weights

pytestmark = pytest.mark.usefixtures("ray_here")
TWO = {"learners": {"gpus": 0, "ranks": 2}}


def config(steps, cluster):
    """One policy with a reference and a critic of its own."""
    return run_config(
        policies={"p": {"model": "tiny"}},
        team={"a": "p", "b": "p"},
        algorithm={"name": "mappo", "kl_in": "loss", "kl_coefficient": 0.1},
        rollout={"samples": [3]},
        optimizer={"learning_rate": 1e-3, "schedule": "constant"},
        train={"steps": steps, "tasks_per_step": 2},
        cluster=cluster,
    )


def team(run):
    return load_file(run / "team" / "p" / "model.safetensors")


def apart(run, other):
    pairs = [(team(run)[name], team(other)[name]) for name in team(run)]
    return max(float((one - two).abs().max()) for one, two in pairs)


def test_a_run_continues_on_another_number_of_processes(train):
    whole = train(config(3, None))
    runs = whole.parent.parent
    begun = {
        ranks: train(config(2, cluster), runs=runs / f"begun{ranks}").parent
        for ranks, cluster in ((1, None), (2, TWO))
    }
    files = contents(begun[2] / "run" / "checkpoints" / "step-000002")
    assert sorted(files) == [
        "home-00001/shard-00001-model-00001-of-00001.safetensors",
        "home-00001/shard-00002-model-00001-of-00001.safetensors",
        "manifest.json",
        "state.json",
        "tensors.safetensors",
    ]
    motet_serve.export_team(begun[2] / "run" / "checkpoints" / "step-000002", runs / "export")
    exported = load_file(runs / "export" / "policies" / "p" / "model.safetensors")
    assert all(torch.equal(exported[name], one) for name, one in team(begun[2] / "run").items())
    moved = apart(begun[1] / "run", whole)
    assert moved > 1e-4
    for before, cluster in ((2, None), (1, TWO), (2, TWO)):
        place = runs / f"{before}-{cluster}"
        shutil.copytree(begun[before], place)
        run = train(config(3, cluster), runs=place, resume=True)
        assert contents(run / "team").keys() == contents(whole / "team").keys()
        assert apart(run, whole) < 1e-3 * moved


def test_a_mean_of_weights_in_shards_is_kept_in_checkpoints(train):
    averaged = config(3, TWO)
    averaged["train"] |= {"average_share": 1.0, "checkpoint_every": 1}
    whole = train(averaged)
    place = whole.parent.parent / "cut"
    shutil.copytree(whole.parent, place)
    shutil.rmtree(place / "run" / "checkpoints" / "step-000003")
    assert weights(train(averaged, runs=place, resume=True)) == weights(whole)


def test_a_home_that_dies_while_it_writes_leaves_the_checkpoint_before(train, monkeypatch):
    unbroken = train(config(2, TWO))
    write = ClusterModels._write_shards

    def killed(self, folder):
        if folder.name == ".step-000002.writing":
            os.kill(homes_of(os.getpid())[-1].pid, signal.SIGKILL)
        write(self, folder)

    runs = unbroken.parent / "broken"
    with monkeypatch.context() as patched:
        patched.setattr(ClusterModels, "_write_shards", killed)
        with pytest.raises(ProcessLost, match=r"home p, process . was lost .* --resume"):
            train(config(2, TWO | {"restarts": 0}), runs=runs)
    checkpoints = runs / "run" / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["step-000000"]
    assert weights(train(config(2, TWO), runs=runs, resume=True)) == weights(unbroken)
