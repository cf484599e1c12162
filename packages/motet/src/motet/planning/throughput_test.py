"""The figures are computed by hand beside each test."""

from dataclasses import replace

import pytest

from motet.errors import ConfigError
from motet.planning.gpus import GPUS, gpu_named
from motet.planning.throughput import (
    Workload,
    gpu_seconds,
    publish_seconds,
    sampling_rate,
    step_seconds,
)

H100 = GPUS["h100-80"]
WORK = Workload(
    completions=1000,
    prompt_tokens=800,
    completion_tokens=100,
    per_prompt=8,
    parameters=8e9,
    adapter=False,
)


def test_the_published_run_of_nemo_rl_takes_89_seconds_on_paper():
    # 8B, 16 H100, 2,048 completions of 960 tokens, 8 per prompt of 100 tokens; measured 97.7 s.
    # Two models score there: the reference, and the policy before the update.
    work = replace(WORK, completions=2048, prompt_tokens=100, completion_tokens=960, reference=True)
    spent = gpu_seconds(work, H100)
    # 2048 · 960 / 2500; read 2048 · (960 + 100/8) = 1,991,680 tokens; 0.3 · 989e12 FLOP/s
    assert spent.play == pytest.approx(786.4, abs=0.05)
    assert spent.score == pytest.approx(107.4, abs=0.05)
    assert spent.learn == pytest.approx(429.6, abs=0.05)
    seconds = (spent.play + 2 * spent.score + spent.learn) / 16
    assert seconds == pytest.approx(89.4, abs=0.05)
    assert abs(seconds - 97.7) / 97.7 < 0.1


def test_a_prompt_is_read_once_for_the_completions_that_share_it():
    assert WORK.tokens_read == 1000 * (100 + 100)
    assert replace(WORK, per_prompt=1).tokens_read == 1000 * (100 + 800)


@pytest.mark.parametrize(
    ("adapter", "checkpointing", "factor"),
    [(False, False, 6), (False, True, 8), (True, False, 4), (True, True, 6)],
)
def test_flop_per_token_and_parameter(adapter, checkpointing, factor):
    work = replace(WORK, adapter=adapter, checkpointing=checkpointing)
    assert work.factor == factor
    # 200,000 tokens · 8e9 parameters · factor / 2.967e14
    assert gpu_seconds(work, H100).learn == pytest.approx(factor * 5.3926, rel=1e-4)


def test_epochs_repeat_learning_alone():
    once, thrice = gpu_seconds(WORK, H100), gpu_seconds(replace(WORK, epochs=3), H100)
    assert thrice.learn == pytest.approx(3 * once.learn)
    assert (thrice.play, thrice.score) == (once.play, once.score)


def test_without_a_reference_nothing_is_scored():
    assert gpu_seconds(replace(WORK, reference=False), H100).score == 0.0
    once = gpu_seconds(replace(WORK, reference=True), H100).score
    assert gpu_seconds(replace(WORK, reference=True, present=True), H100).score == 2.0 * once


def test_a_critic_learns_and_samples_nothing():
    spent = gpu_seconds(replace(WORK, plays=False), H100)
    assert spent.play == 0.0
    assert spent.learn == gpu_seconds(WORK, H100).learn


def test_the_sampling_rate_follows_bandwidth_and_size():
    assert sampling_rate(H100, 8e9) == pytest.approx(2500.0)
    assert sampling_rate(H100, 4e9) == pytest.approx(5000.0)
    assert sampling_rate(GPUS["h200-141"], 8e9) == pytest.approx(2500.0 * 4.8 / 3.35)


def test_a_tiny_model_samples_32_000_tokens_per_second_and_not_millions():
    assert sampling_rate(H100, 1e6) == 32_000.0


def test_motets_own_sampler_takes_four_times_as_long():
    own, engine = gpu_seconds(WORK, H100, own_sampler=True), gpu_seconds(WORK, H100)
    assert own.play == pytest.approx(4 * engine.play)
    assert own.learn == engine.learn


def test_full_weights_take_seconds_to_publish_and_adapters_half_of_one():
    assert publish_seconds(WORK, nodes=1) == pytest.approx(2.0)  # 16 GB at 8 GB/s
    assert publish_seconds(WORK, nodes=2) == pytest.approx(16 / 3)  # 16 GB at 3 GB/s
    assert publish_seconds(replace(WORK, adapter=True), nodes=1) == 0.5
    assert publish_seconds(replace(WORK, adapter=True), nodes=2) == 1.0


def test_one_step_off_the_longer_stage_counts():
    assert step_seconds(10.0, 1.0, 5.0, 2.0, max_lag=0) == 18.0
    assert step_seconds(10.0, 1.0, 5.0, 2.0, max_lag=1) == 12.0
    assert step_seconds(3.0, 1.0, 5.0, 2.0, max_lag=1) == 8.0


def test_data_sheets_with_sparsity_are_halved():
    # H100 SXM: 1,979 TFLOP/s with sparsity; L40S: 733; RTX 4090: 330.3
    for name, sparse in (("h100-80", 1979), ("l40s-48", 733), ("rtx4090-24", 330.3)):
        assert GPUS[name].flops == pytest.approx(sparse * 1e12 / 2, rel=0.02)


def test_an_unknown_gpu_is_refused_with_the_names_of_the_known():
    with pytest.raises(ConfigError, match=r"--gpu is 'h100'.*expected one of .*h100-80"):
        gpu_named("h100")
