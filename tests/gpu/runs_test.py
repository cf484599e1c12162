"""Whole runs on a GPU: the same bytes twice, after a kill, and the numbers of a CPU."""

import json
import os
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

import motet
from motet.api.memory_estimate import memory_of
from motet.assembly.task_setup import open_task_setup
from motet.config.load import make_config
from tests.small_runs import DEATHS, GAMES, LORA, ROOT, contents, rows, run_config, steps, weights

ON = {"MOTET_TEST_GPU": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
FAMILIES = {
    "full policies": {},
    "adapters": {"policies": LORA},
    "a tree": {"game": {"turns": 2}, "rollout": {"samples": [2, 2]}},
    "critics": {"algorithm": {"name": "mappo"}, "critic": {"train": "full"}},
    "a reference": {"algorithm": {"name": "magrpo", "kl": {"kind": "loss", "coefficient": 0.1}}},
    "a bounded step": {"train": {"steps": 2, "tasks_per_step": 2, "max_step_kl": 0.05}},
}


def on(device: str, **sections: Any) -> dict[str, Any]:
    """Return the small run's config on a device."""
    config = deepcopy(run_config(**sections))
    config["models"]["tiny"]["device"] = device
    return config


@pytest.mark.parametrize("family", FAMILIES)
def test_one_seed_writes_the_same_bytes_twice(family, train, tmp_path):
    first, again = (train(on("cuda", **FAMILIES[family]), runs=tmp_path / name) for name in "xy")
    assert json.dumps(rows(first)) == json.dumps(rows(again))
    assert contents(first / "episodes") == contents(again / "episodes")
    assert weights(first) == weights(again)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling_and_training_agree_on_log_probabilities(family, train):
    run = train(on("cuda", **FAMILIES[family]))
    gaps = [
        value
        for row in steps(run)
        for name, value in row.items()
        if name.endswith("learn/sampling_logp_difference")
    ]
    assert gaps
    assert max(gaps) < 1e-4


@pytest.fixture(scope="module")
def graves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of runs that were killed on the GPU."""
    runs = tmp_path_factory.mktemp("killed")
    deaths = [(on("cuda", **config), lines) for config, lines in DEATHS.values()]
    done = subprocess.run(
        [sys.executable, str(GAMES), str(runs)],
        input=json.dumps(deaths),
        env={**os.environ, **ON},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [9] * len(DEATHS), done.stderr
    return runs


@pytest.mark.parametrize("death", DEATHS)
def test_a_killed_run_ends_as_if_it_had_never_been_killed(death, graves, train):
    config = on("cuda", **DEATHS[death][0])
    unbroken, resumed = train(config), train(config, resume=True, runs=graves)
    assert json.dumps(rows(resumed)) == json.dumps(rows(unbroken))
    assert contents(resumed / "episodes") == contents(unbroken / "episodes")
    assert weights(resumed) == weights(unbroken)


def test_models_on_different_devices_train_in_one_run(train):
    config = on("cuda")
    config["models"]["other"] = {**config["models"]["tiny"], "device": "cpu"}
    config["policies"]["q"] = {"model": "other"}
    run = train(config)
    assert len(steps(run)) == 2


def test_a_run_of_the_cpu_is_evaluated_and_resumed_on_the_gpu(train):
    run = train(on("cpu"))
    found = motet.evaluate(run, overrides=["models.tiny.device=cuda"])
    assert found.episodes > 0
    resumed = train(on("cuda"), ["train.steps=3"], resume=True)
    assert len(steps(resumed)) == 3


def test_a_run_takes_no_more_memory_than_was_estimated(train):
    """The allocator's peak is at most the estimate, and at least half of it."""
    model = {
        "hidden_size": 512, "layers": 8, "heads": 8, "kv_heads": 2, "feed_forward": 1536,
        "vocabulary": 258, "context": 512,
    }  # fmt: skip
    config = on("cuda", decode={"max_new_tokens": 128}, rollout={"samples": [16]})
    config["models"]["tiny"]["embedded"] = model
    with open_task_setup(make_config(config, ()), None, train=True) as setup:
        estimate = memory_of(setup)["total"]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    train(config)
    peak = torch.cuda.max_memory_allocated() - before
    assert 0.5 * estimate <= peak <= estimate
