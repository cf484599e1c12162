"""Whole runs whose completions are sampled by vLLM."""

import json
import re
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

import motet
from motet.config.paths import config_path
from tests.metrics_test import listed

pytestmark = pytest.mark.slow
VLLM = ["cluster.samplers.engine=vllm", "cluster.samplers.gpus=0", "cluster.learners.gpus=0"]
LORA = ["policies.aux.train=lora", "policies.main.train=lora"]


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The base model of the quickstart after its warm-up."""
    into = tmp_path_factory.mktemp("warm")
    return motet.warmup(config_path("quickstart"), into=into, show="silent")["tiny"]


def trained(runs: Path, name: str, base: str, *overrides: str, **named: Any) -> Path:
    model = ["models.tiny.embedded=null", f"models.tiny.path={base}", "warmup=null"]
    motet.train(
        config_path("quickstart"),
        [f"name={name}", *model, *VLLM, "evaluation.every=0", *overrides],
        runs=runs,
        show="silent",
        **named,
    )
    return runs / name


def rows_of(run: Path) -> list[dict[str, Any]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_quickstart_learns_through_vllm(tmp_path: Path, warm: str, seed: int) -> None:
    run = trained(tmp_path, "quick", warm, f"seed={seed}")
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    assert summary["heldout"]["after"]["success"] >= 0.9
    steps = [row for row in rows_of(run) if "publish/probe_max" in row]
    assert len(steps) == summary["steps"] == motet.read_config("quickstart").train.steps
    assert max(row["publish/probe_max"] for row in steps) < 1e-4
    assert max(row["learn/sampling_logp_difference"] for row in steps) < 1e-5
    published = {name for row in steps for name in row if name.startswith("publish/")}
    assert published == {name for name in listed("Metrics of vLLM") if name.startswith("publish/")}


def test_one_step_off_the_engines_sample_while_the_homes_learn(tmp_path: Path, warm: str) -> None:
    short = [*LORA, "train.steps=4", "train.tasks_per_step=4", "train.max_lag=1"]
    run = trained(tmp_path, "ahead", warm, *short)
    steps = [row for row in rows_of(run) if "publish/probe_max" in row]
    assert [row["step"] for row in steps] == [1, 2, 3, 4]
    # The engines had the weights of one publication for all tokens of a step.
    assert max(row["publish/probe_max"] for row in steps) < 1e-4
    versions = {}
    for path in sorted((run / "episodes").rglob("*train*.jsonl")):
        said = re.findall(r'"version": ?(\d+)', path.read_text(encoding="utf-8"))
        versions[path.name] = {int(one) for one in said}
    assert list(versions.values()) == [{0}, {0}, {1}, {2}]


def kill_when_it_works(killed: list[int]) -> None:
    """Kill the engine of this process's Ray with -9 as soon as it computes."""
    [engine] = [
        child
        for child in psutil.Process().children(recursive=True)
        if "VllmEngine" in " ".join(child.cmdline())
    ]
    before = engine.cpu_times().user
    while engine.cpu_times().user < before + 0.05:
        time.sleep(0.001)
    engine.kill()
    killed.append(engine.pid)


def test_a_run_with_a_killed_engine_ends_bit_identical(tmp_path: Path, warm: str) -> None:
    short = [*LORA, "train.steps=4", "train.tasks_per_step=4"]
    whole = trained(tmp_path, "whole", warm, *short)
    killed: list[int] = []

    def after_step(step: int, metrics: Mapping[str, float]) -> None:
        if step == 2:
            threading.Thread(target=kill_when_it_works, args=[killed]).start()

    broken = trained(tmp_path, "broken", warm, *short, report=after_step)
    assert killed
    same_but_times(whole, broken)
    assert rows_of(broken)[-2]["publish/engines_replaced"] == 1.0


def test_one_step_off_plays_beside_the_update_and_resumes_to_the_bit(
    tmp_path: Path, warm: str
) -> None:
    every = ["train.checkpoint_every=1", "train.keep_every=1"]
    short = [*LORA, "train.steps=4", "train.tasks_per_step=4", "train.max_lag=1", *every]
    whole = trained(tmp_path, "whole", warm, *short)
    steps = [row for row in rows_of(whole) if "play/tokens" in row]
    assert [row["time/play"] > 0 for row in steps] == [True, False, False, False]
    assert ["time/beside/play" in row for row in steps] == [False, True, True, True]
    assert ["time/wait" in row for row in steps] == [True, True, True, False]
    assert all(row["credit/importance_weight"] != 1.0 for row in steps[1:])
    broken = tmp_path / "resumed" / "whole"
    shutil.copytree(whole, broken)
    for step in (3, 4):
        shutil.rmtree(broken / "checkpoints" / f"step-{step:06d}")
    (broken / "episodes" / "train-000004.jsonl").unlink()
    trained(tmp_path / "resumed", "whole", warm, *short, resume=True)
    same_but_times(whole, broken)


def same_but_times(whole: Path, other: Path) -> None:
    """Compare two runs: metrics without their times, trained weights, and episodes."""
    rows = [
        [
            {name: value for name, value in row.items() if not name.startswith(CHANGES)}
            for row in rows_of(run)
        ]
        for run in (whole, other)
    ]
    assert rows[0] == rows[1]
    for path in sorted((whole / "team").glob("*/*.safetensors")):
        ours, theirs = load_file(path), load_file(other / path.relative_to(whole))
        assert all((ours[key] == theirs[key]).all() for key in ours | theirs)
    episodes = sorted((whole / "episodes").rglob("*.jsonl"))
    assert episodes
    for path in episodes:
        assert path.read_bytes() == (other / path.relative_to(whole)).read_bytes()


CHANGES = ("time/", "publish/engines_replaced")
"""Metrics that may differ between two repetitions of a run."""
