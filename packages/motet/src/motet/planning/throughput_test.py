"""The figures are computed by hand beside each test."""

from dataclasses import replace
from typing import Any

import pytest

from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.errors import ConfigError
from motet.models.memory import Shape
from motet.planning.batches import Sizes
from motet.planning.gpus import GPUS, gpu_named
from motet.planning.throughput import gpu_seconds, sampling_rate

H100 = GPUS["h100-80"]
SHAPE = Shape(8 * 10**9, (), layers=32, hidden=4096, cache_per_token=65536, vocabulary=100_000)
SIZES = Sizes({"base": SHAPE}, {"a": 800}, tasks=125, evaluated=0)
"""125 prompts of 800 tokens, and with `config` 1,000 completions of 100 tokens: 200,000 tokens are
read, because a prompt is read once for its 8 completions."""
KL = {"name": "magrpo", "kl_in": "loss", "kl_coefficient": 0.1}
PASS = 8e9 * 200_000 / (0.3 * 989e12)
"""Seconds per FLOP per token and parameter."""


def config(trained: str = "full", checkpointing: bool = True, **sections: Any) -> RunConfig:
    plain = {
        "name": "run",
        "environment": "quickstart",
        "models": {"base": {"path": "someone/8b", "checkpointing": checkpointing}},
        "policies": {"p": {"model": "base", "train": trained}},
        "team": {"a": "p"},
        "decode": {"max_new_tokens": 100},
        "rollout": {"samples": [8]},
        "train": {"steps": 1, "tasks_per_step": 125},
    }
    return make_config(plain | sections)


def test_the_published_run_of_nemo_rl_takes_89_seconds_on_paper():
    # 8B, 16 H100, 2,048 completions of 960 tokens, 8 per prompt of 100 tokens; measured 97.7 s.
    # Two models score there: the reference, and the policy before the update.
    made = config(decode={"max_new_tokens": 960}, algorithm=KL)
    sizes = replace(SIZES, prompts={"a": 100}, tasks=256)
    spent = gpu_seconds(made, sizes, ["p"], H100)
    # 2048 · 960 / 2500; read 2048 · (960 + 100/8) = 1,991,680 tokens; 0.3 · 989e12 FLOP/s
    assert spent.play == pytest.approx(786.4, abs=0.05)
    assert spent.score == pytest.approx(107.4, abs=0.05)
    assert spent.learn == pytest.approx(429.6, abs=0.05)
    seconds = (spent.play + 2 * spent.score + spent.learn) / 16
    assert seconds == pytest.approx(89.4, abs=0.05)
    assert abs(seconds - 97.7) / 97.7 < 0.1


@pytest.mark.parametrize(
    ("train", "checkpointing", "factor"),
    [("full", False, 6), ("full", True, 8), ("lora", False, 4), ("lora", True, 6)],
)
def test_flop_per_token_and_parameter(train, checkpointing, factor):
    spent = gpu_seconds(config(train, checkpointing), SIZES, ["p"], H100)
    assert spent.learn == pytest.approx(factor * PASS)


def test_a_prompt_is_read_again_for_every_turn():
    one = gpu_seconds(config(), SIZES, ["p"], H100)
    two = gpu_seconds(config(rollout={"samples": [8, 1]}), SIZES, ["p"], H100)
    # turn 2: 1,000 prompts of 800 + 100 tokens with one completion of 100 each
    assert two.learn == pytest.approx(one.learn * (1 + 1_000_000 / 200_000))
    assert two.play == pytest.approx(2 * one.play)


def test_epochs_repeat_learning_alone():
    once = gpu_seconds(config(), SIZES, ["p"], H100)
    made = config(algorithm={"name": "magrpo", "epochs": 3, "policy_loss": "clipped_surrogate"})
    thrice = gpu_seconds(made, SIZES, ["p"], H100)
    assert thrice.learn == pytest.approx(3 * once.learn)
    assert (thrice.play, thrice.score) == (once.play, once.score)


def test_a_reference_and_the_present_policy_score_and_without_them_nothing_is_scored():
    assert gpu_seconds(config(), SIZES, ["p"], H100).score == 0.0
    assert gpu_seconds(config(algorithm=KL), SIZES, ["p"], H100).score == pytest.approx(2 * PASS)
    lag = {"steps": 1, "tasks_per_step": 125, "max_lag": 1}
    both = gpu_seconds(config(algorithm=KL, train=lag), SIZES, ["p"], H100)
    assert both.score == pytest.approx(4 * PASS)


def test_a_frozen_policy_only_plays():
    frozen = {"model": "base", "train": "frozen"}
    policies = {"p": {"model": "base"}, "q": frozen}
    made = config(policies=policies, team={"a": "p", "b": "q"}, algorithm=KL)
    sizes = replace(SIZES, prompts={"a": 800, "b": 800})
    trained, only_plays = (gpu_seconds(made, sizes, [name], H100) for name in "pq")
    assert trained.play == only_plays.play > 0.0
    assert (only_plays.score, only_plays.learn) == (0.0, 0.0)


@pytest.mark.parametrize(("train", "factor"), [("full", 8), ("lora", 6), ("head", 2)])
def test_a_critic_samples_nothing_and_reads_a_prompt_for_every_completion(train, factor):
    made = config(algorithm={"name": "iac"}, critic={"train": train})
    spent = gpu_seconds(made, SIZES, ["critic-a"], H100)
    each = PASS * 900_000 / 200_000  # 1,000 rows of 800 + 100 tokens
    assert spent.play == 0.0
    assert spent.score == pytest.approx(2 * each)
    assert spent.learn == pytest.approx(factor * each)
    alone = gpu_seconds(made, SIZES, ["p"], H100)
    both = gpu_seconds(made, SIZES, ["p", "critic-a"], H100)
    assert both.learn == pytest.approx(alone.learn + spent.learn)


def test_a_joint_critic_learns_from_the_completions_of_its_first_agent():
    two = {"policies": {"p": {"model": "base"}}, "team": {"a": "p", "b": "p"}}
    made = config(algorithm={"name": "maac"}, **two)
    sizes = replace(SIZES, prompts={"a": 800, "b": 800})
    one = gpu_seconds(config(algorithm={"name": "iac"}), SIZES, ["critic-a"], H100)
    assert gpu_seconds(made, sizes, ["critic-joint"], H100) == one


def test_the_sampling_rate_follows_bandwidth_and_size():
    assert sampling_rate(H100, 8e9) == pytest.approx(2500.0)
    assert sampling_rate(H100, 4e9) == pytest.approx(5000.0)
    assert sampling_rate(GPUS["h200-141"], 8e9) == pytest.approx(2500.0 * 4.8 / 3.35)


def test_data_sheets_with_sparsity_are_halved():
    # H100 SXM: 1,979 TFLOP/s with sparsity; L40S: 733; RTX 4090: 330.3
    for name, sparse in (("h100-80", 1979), ("l40s-48", 733), ("rtx4090-24", 330.3)):
        assert GPUS[name].flops == pytest.approx(sparse * 1e12 / 2, rel=0.02)


def test_an_unknown_gpu_is_refused_with_the_names_of_the_known():
    with pytest.raises(ConfigError, match=r"--gpu is 'h100'.*expected one of .*h100-80"):
        gpu_named("h100")
