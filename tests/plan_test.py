"""`motet plan`: memory on paper, the same as that of a dry run, and what it refuses."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import motet
from motet.commands.main import whole_app
from motet.config.paths import config_path
from motet.errors import ConfigError
from motet.models import devices
from motet.models.devices import CudaMemory
from motet_cluster.planning import plan
from tests.fixtures.messages import facts, says
from tests.fixtures.wide import widely
from tests.gpu_recipe_test import PLANNER
from tests.small_runs import run_config

SMALL = {
    "model_type": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip
"""The shape of a model with 135 million parameters."""
SEVEN = {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944,
    "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
    "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False,
}  # fmt: skip
"""The shape of Qwen2.5-7B, with 7.6 billion parameters."""
FULL, LORA, FROZEN = ({"model": "base", "train": train} for train in ("full", "lora", "frozen"))
KL = {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.01}
PAPER = {"prompt_tokens": 512}
Configs = Callable[..., dict[str, Any]]


@pytest.fixture
def config_of(tmp_path: Path) -> Configs:
    """Return a function that returns the config of two agents on a model of a shape."""

    def made(shape: dict[str, Any], policies: Any = FULL, **sections: Any) -> dict[str, Any]:
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / "config.json").write_text(json.dumps(shape))
        base = {"path": str(tmp_path / "model"), "dtype": "bfloat16", "checkpointing": True}
        p, q = policies if isinstance(policies, tuple) else (policies, policies)
        return run_config(models={"base": base}, policies={"p": p, "q": q}, **sections)

    return made


@pytest.fixture
def large(config_of: Configs) -> Configs:
    """Two agents of 7.6B, 1,024 completions of up to 512 tokens per step."""

    def made(policies: Any = FULL, cluster: Any = None, **train: Any) -> dict[str, Any]:
        return config_of(
            SEVEN,
            policies,
            decode={"max_new_tokens": 512},
            rollout={"samples": [8]},
            algorithm=KL,
            train={"steps": 10, "tasks_per_step": 64, **train},
            cluster=cluster,
        )

    return made


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that this machine has a GPU."""
    monkeypatch.setattr(devices, "cuda_count", lambda: 1)
    monkeypatch.setattr(devices, "cuda_computes_bfloat16", lambda device: True)
    held = CudaMemory(80 * 2**30, 80 * 2**30, 0)
    monkeypatch.setattr(devices, "cuda_memory", lambda device: held)


# ------------------------------------------------------------ the memory of a plan and of a dry run

IAC = {"algorithm": {"name": "iac"}}
SAME = {
    "full": (FULL, {}),
    "adapters": (LORA, {}),
    "frozen": ((LORA, FROZEN), {}),
    "full and frozen": ((FULL, FROZEN), {}),
    "references": (FULL, {"algorithm": KL}),
    "full critics": (FULL, IAC),
    "critics as adapters": (LORA, IAC | {"critic": {"train": "lora"}}),
    "critics as heads": (FULL, IAC | {"critic": {"train": "head"}}),
    "a critic of both": (LORA, {"algorithm": {"name": "maac"}}),
    "two turns": (LORA, {"game": {"turns": 2}, "rollout": {"samples": [4, 2]}}),
}


@pytest.mark.parametrize(
    "kind", widely(SAME, keep=["adapters", "full and frozen", "references", "critics as heads"])
)
@pytest.mark.usefixtures("gpu")
def test_a_plan_and_a_dry_run_give_the_same_bytes(config_of, kind):
    policies, sections = SAME[kind]
    config = config_of(SMALL, policies, **sections)
    (process,) = plan(config).processes
    assert process.memory == motet.dry_run(config).memory["total"]
    homes = config | {"cluster": {"learners": {"gpus": 2}}}
    dry = motet.dry_run(homes)
    assert list(plan(homes).processes) == dry.homes
    assert {name for home in dry.homes for name in home.residents} >= {"p", "q"}


@pytest.mark.usefixtures("gpu")
def test_both_commands_print_the_same_memory(config_of, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(config_of(SMALL, LORA) | {"environment": {"name": "relay"}}))
    whole_app()(["train", str(path), "--dry-run"], standalone_mode=False)
    dry = re.search(r"│ total +│ ([\d.]+) │", capsys.readouterr().out)[1]
    whole_app()(["plan", str(path), "--gpu", "rtx4090-24"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert re.search(rf"│ run +│ +1 │ +p, q │ {dry} │ fits │", shown)
    assert 0.2 < float(dry) < 2, "two adapters on 135 million weights are far from 24 GB"


def test_a_plan_on_a_machine_without_a_gpu_leaves_out_what_a_cpu_needs(config_of, monkeypatch):
    config = config_of(SMALL, LORA)
    monkeypatch.setattr(devices, "cuda_count", lambda: 0)
    monkeypatch.setattr(devices, "mps_available", lambda: False)
    on_cpu = motet.dry_run(config).memory
    assert on_cpu["freed and kept"] > 0
    (process,) = plan(config).processes
    assert process.memory < on_cpu["total"]
    homes = config | {"cluster": {}}
    assert "freed and kept" not in motet.dry_run(homes).memory, "homes are on GPUs"
    assert list(plan(homes).processes) == motet.dry_run(homes).homes


# ------------------------------------------------------------ what fits


def test_two_full_7b_need_three_gpus_each_on_80_gb(large):
    planned = plan(large(cluster={}), **PAPER)
    assert planned.least_gpus == {"p": 3, "q": 3}
    assert [home.fits(planned.gpu_memory) for home in planned.processes] == [False, False]
    cluster = {"learners": {"gpus": 3}, "samplers": {"engine": "vllm"}}
    planned = plan(large(cluster=cluster), **PAPER)
    assert planned.gpus == 2 * 3 + 2 * 1
    # float32 weights, gradients, two moments, the weights before a step and the reference: 22 bytes
    # · 7.6e9 / 3 = 55.8 GB, and 15.2 GB of weights that are gathered for the reference
    for home in planned.processes:
        assert home.memory == pytest.approx(55.8e9 + 15.2e9, rel=0.01)
        assert home.fits(planned.gpu_memory)
    assert "h100-80" in planned.fits_on
    assert "a100-40" not in planned.fits_on


@pytest.mark.parametrize("config", ["house_build", "str_build"])
def test_published_builders_fit_the_gpus_that_their_comment_names(tmp_path, config):
    """Two full models of 4B. The comment of the config shows the overrides."""
    (tmp_path / "config.json").write_text(json.dumps(PLANNER))
    path, model = config_path(config), f"models.qwen.path={tmp_path}"
    shown = re.findall(rf"^#   motet train {config} ('.*')$", path.read_text(), re.MULTILINE)
    assert len(shown) == 2
    for overrides, gpus in zip(map(shlex.split, shown), (4, 1), strict=True):
        planned = plan(path, [model, *overrides], gpu="h100-80", prompt_tokens=1024)
        assert planned.gpus == gpus
        assert all(home.fits(0.9 * planned.gpu_memory) for home in planned.processes)


def test_on_141_gb_two_gpus_are_enough(large):
    assert plan(large(cluster={}), gpu="h200-141", **PAPER).least_gpus == {"p": 2, "q": 2}


def test_what_no_number_of_gpus_holds_has_no_least_number(large):
    """Copies of a base do not become smaller, and 15.2 GB are gathered however many GPUs share."""
    cluster = {"cluster": {}}
    held = plan(large(LORA) | cluster, gpu="l4-24", **PAPER)
    assert held.least_gpus == {"base": 1}
    config = large(LORA) | cluster
    config["models"]["base"]["dtype"] = "float32"
    none = plan(config, gpu="l4-24", **PAPER)
    assert none.least_gpus == {"base": None}
    assert says(none.advice, "weights … dtype: bfloat16")
    assert "l4-24" not in none.fits_on
    assert "l40s-48" in none.fits_on


def test_a_home_beside_its_engine_has_what_the_engine_leaves(large):
    def fits(memory: float) -> bool:
        samplers = {"engine": "vllm", "beside_home": True, "memory": memory}
        planned = plan(large(LORA, {"samplers": samplers}), gpu="rtx5090-32", **PAPER)
        assert planned.gpus == 1
        return planned.advice == ""

    assert fits(0.3)
    assert not fits(0.6)


# ------------------------------------------------------------ the command


def test_the_prompts_of_a_tiny_run_are_measured():
    planned = plan(run_config())
    assert planned.advice == ""
    assert re.search(r"a first prompt has \d+ tokens", planned.assumes)


def test_the_command_prints_tables_and_json(large, tmp_path, capsys):
    path = tmp_path / "large.yaml"
    path.write_text(json.dumps(large(cluster={})))
    said = ["plan", str(path), "--prompt-tokens", "512"]
    whole_app()(said, standalone_mode=False)
    shown = capsys.readouterr().out
    assert re.search(r"│ p +│ +1 │ +3 │ +p │ [\d.]+ │ too big │", shown)
    assert says(shown, "gradients and optimizers")
    assert "a first prompt has 512 tokens" in shown
    whole_app()([*said, "--json"], standalone_mode=False)
    plain = json.loads(capsys.readouterr().out)
    assert (plain["gpu"], plain["gpu_memory"]) == ("h100-80", 80 * 10**9)
    assert (plain["gpus"], plain["least_gpus"]) == (2, {"p": 3, "q": 3})
    assert [home["name"] for home in plain["processes"]] == ["p", "q"]


@pytest.mark.parametrize(
    ("given", "sections", "match"),
    [
        ({"gpu": "h100"}, {}, "'h100' … 'h100-80'"),
        ({}, {"cluster": {"learners": {"gpus": 0}}}, "gpus … 0 … 1 or more"),
        ({}, {"train": {"steps": 1, "tasks_per_step": "all"}}, "train.tasks_per_step=N"),
        ({}, {"models": {"base": {"path": "./nowhere/model"}}}, "nowhere/model"),
    ],
)
def test_what_cannot_be_planned_is_refused(large, monkeypatch, given, sections, match):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=facts(match)):
        plan(large() | sections, **{**PAPER, **given})


def test_without_tasks_the_way_out_is_named(large, tmp_path):
    """The code of a config in a file is not loaded, and its environment has the tasks."""
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(large()))
    with pytest.raises(ConfigError, match="give --prompt-tokens N"):
        plan(path)
    assert plan(path, prompt_tokens=100).gpus == 1
