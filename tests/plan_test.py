"""`motet plan`: layouts, memory and seconds on paper, and what it refuses."""

import json

import pytest

import motet
from motet import api
from motet.commands.main import app
from motet.errors import ConfigError
from motet.planning.layouts import CUDA_CONTEXT
from tests.small_runs import run_config

LARGE = {
    "models": {"base": {"path": "someone/large", "dtype": "bfloat16", "checkpointing": True}},
    "policies": {"p": {"model": "base"}, "q": {"model": "base"}},
    "decode": {"max_new_tokens": 512},
    "rollout": {"samples": [8]},
    "algorithm": {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.01},
    "train": {"steps": 10, "tasks_per_step": 64},
}
"""Two agents of 7.6B, 1,024 completions per step."""
PAPER = {"parameters": 7.6e9, "prompt_tokens": 512}


def test_two_full_7b_need_three_learners_each_on_80_gb():
    best = api.plan(run_config(**LARGE), **PAPER).options[0]
    assert (best.layout.engine, best.layout.learners, best.layout.replicas) == ("vllm", 3, 1)
    assert best.layout.max_lag == 1
    # 512 · 512 / 2,632 tokens/s = 99.6 s of one engine, and 15.2 GB at 8 GB/s
    assert best.step == pytest.approx(99.6 + 1.9, abs=0.1)
    learner = best.uses[0]
    # float32 weights, gradients, two moments and the reference: 18 bytes · 7.6e9 / 3 = 45.6 GB,
    # and 15.2 GB of weights that are gathered for the reference
    assert 61e9 < learner.memory < 66e9


def test_on_141_gb_two_learners_are_enough_and_the_step_is_shorter():
    small = api.plan(run_config(**LARGE), **PAPER).options[0]
    large = api.plan(run_config(**LARGE), gpu="h200-141", **PAPER).options[0]
    assert (large.layout.learners, large.layout.replicas) == (2, 2)
    assert large.step < small.step


def test_adapters_on_one_base_have_copies_that_learn_and_engines_that_serve_both():
    lora = {"model": "base", "train": "lora"}
    planned = api.plan(run_config(**{**LARGE, "policies": {"p": lora, "q": lora}}), **PAPER)
    best = planned.options[0]
    assert (best.layout.learners, best.layout.replicas, best.layout.max_lag) == (3, 5, 1)
    full = api.plan(run_config(**LARGE), **PAPER).options[0]
    assert best.step < full.step / 2


def test_the_layout_of_the_config_is_shown_first(tmp_path, capsys):
    lora = {"model": "base", "train": "lora"}
    cluster = {"samplers": {"engine": "vllm", "replicas": 2}}
    config = run_config(**{**LARGE, "policies": {"p": lora, "q": lora}}, cluster=cluster)
    config["train"] = {**config["train"], "max_lag": 1}
    found = api.plan(config, **PAPER).configured
    assert (found.layout.learners, found.layout.replicas, found.layout.max_lag) == (1, 2, 1)
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(config))
    app(
        ["plan", str(path), "--parameters", "7.6e9", "--prompt-tokens", "512"],
        standalone_mode=False,
    )
    shown = capsys.readouterr().out
    assert "vllm lag 1 *" in shown
    assert "* the cluster section of the config" in shown
    assert "GPUs of: vllm lag 1" in shown
    own = api.plan({**config, "cluster": {}, "train": LARGE["train"]}, **PAPER).configured
    assert own.layout.engine == "own"


def test_an_engine_beside_its_home_is_a_layout_too():
    lora = {"model": "base", "train": "lora"}
    cluster = {"samplers": {"engine": "vllm", "beside_home": True, "memory": 0.5}}
    config = run_config(**{**LARGE, "policies": {"p": lora, "q": lora}}, cluster=cluster)
    found = api.plan(config, gpus=1, **PAPER)
    assert (found.configured.layout.beside, found.configured.gpus) == (0.5, 1)
    assert [one.layout.name for one in found.options] == ["vllm beside", "one GPU"]


def test_a_dry_run_says_the_seconds_of_a_step_if_homes_are_on_gpus(tmp_path, capsys, model_folder):
    config = run_config(
        models={"tiny": {"path": str(model_folder("qwen3")), "device": "auto"}}, cluster={}
    )
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(config))
    app(["train", str(path), "--dry-run"], standalone_mode=False)
    shown = capsys.readouterr().out
    made = api.plan(config).configured
    assert f"expected on 2 x h100-80, on paper: {made.step:.2f} s per step (play " in shown
    assert "learning reaches 30% of the FLOP/s" in shown
    on_cpu = {"learners": {"gpus": 0}}
    assert motet.dry_run(config | {"cluster": on_cpu}).expected is None
    assert motet.dry_run(config | {"cluster": None}).expected is None


def test_the_prompts_of_a_tiny_run_are_measured():
    planned = api.plan(run_config())
    assert planned.options[0].fits
    assert any("a first prompt has" in line for line in planned.assumptions)
    assert any("computes in float32" in line for line in planned.assumptions)


def test_the_command_prints_a_table_and_json(tmp_path, capsys):
    path = tmp_path / "large.yaml"
    path.write_text(json.dumps(run_config(**LARGE)))
    said = ["plan", str(path), "--parameters", "7.6e9", "--prompt-tokens", "512"]
    app(said, standalone_mode=False)
    shown = capsys.readouterr().out
    for words in (
        "8 x h100-80",
        "vllm lag 1",
        "3 + 1",
        "sample (384 rows at once)",
    ):
        assert words in shown
    app([*said, "--json"], standalone_mode=False)
    plain = json.loads(capsys.readouterr().out)
    assert plain["options"][0]["layout"]["learners"] == 3
    assert plain["gpu"]["memory"] == 80 * 10**9


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"gpu": "h100"}, "did you mean 'h100-80'"),
        ({"gpus": 0}, "--gpus is 0; expected 1 or more"),
        ({"parameters": {"other": 7e9}}, "--parameters names other; models are: base"),
    ],
)
def test_what_cannot_be_planned_is_refused(changed, match):
    with pytest.raises(ConfigError, match=match):
        api.plan(run_config(**LARGE), **{**PAPER, **changed})


def test_a_model_that_is_nowhere_is_refused_with_the_way_out(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    gone = {**LARGE, "models": {"base": {"path": "./nowhere/model"}}}
    with pytest.raises(ConfigError, match="--parameters base=7e9"):
        api.plan(run_config(**gone), prompt_tokens=100)


@pytest.mark.parametrize("said", [["7x"], ["7e9", "8e9"], ["-1"], ["base=inf"]])
def test_a_wrong_number_of_parameters_is_refused(said, tmp_path):
    options = [word for one in said for word in ("--parameters", one)]
    path = tmp_path / "large.yaml"
    path.write_text(json.dumps(run_config(**LARGE)))
    with pytest.raises(motet.ConfigError, match="--parameters is"):
        app(["plan", str(path), *options], standalone_mode=False)


@pytest.mark.parametrize(
    "policy",
    [{"model": "tiny", "train": "lora"}, pytest.param({"model": "tiny"}, marks=pytest.mark.wide)],
    ids=["adapters", "full"],
)
@pytest.mark.parametrize("critics", [False, True])
def test_a_plan_and_a_dry_run_give_one_estimate_of_memory(model_folder, policy, critics):
    """Two adapters on a small model: a step has far fewer tokens than train.token_budget."""
    config = run_config(
        models={"tiny": {"path": str(model_folder("qwen3")), "dtype": "bfloat16"}},
        policies={"p": policy, "q": policy},
        rollout={"samples": [4]},
        decode={"max_new_tokens": 8},
        algorithm={"name": "iac" if critics else "magrpo"},
    )
    if critics:
        config["critic"] = {"train": "head"}
    dry = motet.dry_run(config).memory
    (one,) = [made for made in api.plan(config, gpus=1).options if made.layout.engine == "one"]
    on_paper = one.uses[0].memory - CUDA_CONTEXT
    assert on_paper == pytest.approx(dry["total"] - dry.get("freed and kept", 0), rel=0.02)
