"""Sizes are round numbers, so that the bytes and seconds beside them can be computed by hand."""

from dataclasses import replace

import pytest

from motet.models.memory import CHUNK, ROWS, Shape
from motet.planning.gpus import Gpu
from motet.planning.layouts import (
    CUDA_CONTEXT,
    ENGINE_RUNTIME,
    HomeNeeds,
    Layout,
    best_layouts,
    lay_out,
    layouts,
)
from motet.planning.throughput import RATE_BANDWIDTH, Workload

GPU = Gpu("round", 80 * 10**9, RATE_BANDWIDTH, 1e15, "made up")
SHAPE = Shape(
    parameters=8 * 10**9,
    linear=(("up_proj", 4096, 16384),),
    layers=32,
    hidden=4096,
    cache_per_token=65536,
    vocabulary=100_000,
)
WORK = Workload(
    completions=1000,
    prompt_tokens=800,
    completion_tokens=250,
    per_prompt=8,
    parameters=8e9,
    adapter=False,
)
# play 1000 · 250 / 2500 = 100 GPU-seconds; read 1000 · (250 + 100) = 350,000 tokens;
# passes 8e9 · 350,000 / 3e14 = 9.333; score 18.667, learn 8 · 9.333 = 74.667
FULL = HomeNeeds(
    "main", SHAPE, trained=8 * 10**9, adapter=False, reference=True, works=(WORK,), row_tokens=1000
)
OTHER = replace(FULL, name="aux")
LORA = replace(
    FULL,
    name="base",
    trained=20 * 10**6,
    adapter=True,
    reference=False,
    works=(replace(WORK, adapter=True),) * 2,
)


def test_a_home_with_shards_divides_what_it_trains_and_gathers_two_blocks():
    # float32 weights, gradients and two moments: 16 bytes each; the reference: 2 bytes each
    block = 2 * 8 * 10**9 // 32
    assert FULL.lasting(4) == CUDA_CONTEXT + (128 + 16) * 10**9 // 4 + 2 * block
    # On one GPU nothing is gathered, but the copies that compute are held: 2 bytes more each.
    assert FULL.lasting(1) == CUDA_CONTEXT + (128 + 16 + 16) * 10**9


def test_a_home_with_shards_gathers_all_weights_to_sample_and_to_score():
    # 8e9 weights of 2 bytes are more than the 2.3 GB of a micro-batch.
    whole = 16 * 10**9
    assert FULL.on_each(2, samples=False) == FULL.lasting(2) + whole
    assert FULL.on_each(2, samples=True) == FULL.lasting(2) + whole + FULL.playing()
    # On one GPU nothing is gathered.
    assert FULL.on_each(1, samples=False) == FULL.lasting(1) + FULL.learning()


def test_a_home_with_many_shards_holds_less_than_the_float32_weights():
    # 1 GB of the context, 144 GB in 16 shards, two blocks, and the gathered weights
    assert FULL.on_each(16, samples=False) == (1 + 9 + 1 + 16) * 10**9 < 4 * 8 * 10**9


def test_adapters_add_little_to_their_frozen_base():
    assert LORA.lasting(1) == CUDA_CONTEXT + 16 * 10**9 + 18 * 20 * 10**6


def test_vllm_decodes_as_many_rows_as_fit_beside_the_weights():
    # (72 − 2 − 16) GB / (65,536 · 2 bytes · 1,000 tokens) = 411.98
    assert ENGINE_RUNTIME == 2 * 10**9
    assert FULL.engine_rows(GPU, 0.9) == 411
    assert FULL.engine_rows(replace(GPU, memory=16 * 10**9), 0.9) < 0


def test_two_homes_of_three_learners_and_one_engine_use_eight_gpus():
    made = lay_out([FULL, OTHER], Layout("vllm", 3, 1), GPU, per_node=8)
    assert [(use.gpus, use.home, use.role) for use in made.uses] == [
        ((0, 1, 2), "main", "learn"),
        ((3, 4, 5), "aux", "learn"),
        ((6,), "main", "sample"),
        ((7,), "aux", "sample"),
    ]
    assert made.gpus == 8
    # The homes work side by side: 100 / 1 + (18.667 + 74.667) / 3 + 16 GB at 8 GB/s
    assert (made.play, made.publish) == (pytest.approx(100.0), pytest.approx(2.0))
    assert made.score + made.learn == pytest.approx(93.333 / 3, rel=1e-4)
    assert made.step == pytest.approx(100 + 31.111 + 2, rel=1e-4)
    assert made.completions_per_second == pytest.approx(2000 / 133.111, rel=1e-4)


def test_one_step_off_hides_the_shorter_stage():
    made = lay_out([FULL, OTHER], Layout("vllm", 3, 1, max_lag=1), GPU, per_node=8)
    assert made.step == pytest.approx(102.0)


def test_more_than_one_node_publishes_at_the_rate_between_nodes():
    made = lay_out([FULL, OTHER], Layout("vllm", 3, 1), GPU, per_node=4)
    assert made.publish == pytest.approx(16 / 3)


def test_every_adapter_of_a_base_is_sampled_by_all_engines():
    made = lay_out([LORA], Layout("vllm", 3, 5), GPU, per_node=8)
    assert made.play == pytest.approx(2 * 100 / 5)
    # k is 6 with blocks computed again: 2 · 6 · 9.333 / 3; no reference is a copy of its own,
    # but the base scores as one: 2 · 18.667 / 3
    assert made.learn == pytest.approx(2 * 56 / 3, rel=1e-4)
    assert made.score == pytest.approx(2 * 18.667 / 3, rel=1e-4)
    assert made.publish == 0.5


def test_one_process_does_one_thing_after_the_other_with_its_own_sampler():
    made = lay_out([LORA], Layout("one"), GPU, per_node=8)
    assert made.step == pytest.approx(2 * (4 * 100 + 18.667 + 56), rel=1e-4)
    assert made.gpus == 1


def test_copies_of_a_home_hold_as_much_as_one_and_share_the_rows():
    one = lay_out([LORA], Layout("own", 1), GPU, per_node=8)
    four = lay_out([LORA], Layout("own", 4), GPU, per_node=8)
    assert four.uses[0].memory == one.uses[0].memory
    assert four.step == pytest.approx(one.step / 4)
    assert len(four.uses[0].gpus) == 4


def test_homes_that_sample_for_themselves_halve_the_step_of_two_agents():
    one = lay_out([FULL, OTHER], Layout("one"), GPU, per_node=8)
    own = lay_out([FULL, OTHER], Layout("own"), GPU, per_node=8)
    assert own.step == pytest.approx(one.step / 2)
    assert [use.role for use in own.uses] == ["learn and sample"] * 2
    assert own.publish == 0.0


def test_an_engine_beside_its_home_shares_the_gpu_and_the_time():
    on = Layout("vllm", 1, 1, beside=0.4)
    made = lay_out([LORA], on, GPU, per_node=8)
    apart = lay_out([LORA], Layout("vllm", 1, 1), GPU, per_node=8)
    assert (made.gpus, made.uses[0].role, made.layout.name) == (
        1,
        "learn and sample",
        "vllm beside",
    )
    assert made.uses[0].memory == apart.uses[0].memory + int(0.4 * GPU.memory)
    assert made.uses[0].rows == LORA.engine_rows(GPU, 0.4)
    assert 0 < made.uses[0].rows < apart.uses[1].rows
    assert made.step == apart.step
    assert lay_out([LORA], replace(on, max_lag=1), GPU, per_node=8).step == made.step
    assert not lay_out([LORA], replace(on, beside=0.9), GPU, per_node=8).fits


def test_a_home_on_one_gpu_too_small_does_not_fit_and_three_do():
    assert not lay_out([FULL], Layout("vllm", 1, 1), GPU, per_node=8).fits
    assert lay_out([FULL], Layout("vllm", 3, 1), GPU, per_node=8).fits


def test_the_activations_of_a_micro_batch_count():
    scored = 8 * max(CHUNK, ROWS * SHAPE.vocabulary)
    # one input per layer, and 18 hidden + 4 feed-forward widths of one layer
    kept = 32 * 4096 + 18 * 4096 + 4 * 16384
    assert FULL.learning() == 16384 * kept * 2 + scored
    use = lay_out([LORA], Layout("vllm", 3, 1), GPU, per_node=8).uses[0]
    assert use.memory == LORA.lasting(1) + LORA.learning()


def test_layouts_never_use_more_gpus_than_there_are():
    for homes in ([FULL], [FULL, OTHER], [LORA, FULL, OTHER]):
        for gpus in range(1, 17):
            made = [lay_out(homes, layout, GPU, 8) for layout in layouts(homes, gpus)]
            assert all(one.gpus <= gpus for one in made)


def test_a_critic_learns_in_a_home_of_its_own_and_has_no_engine():
    critic = replace(FULL, name="critic", reference=False, works=(replace(WORK, plays=False),))
    made = lay_out([FULL, critic], Layout("vllm", 3, 2), GPU, per_node=8)
    assert [use.role for use in made.uses] == ["learn", "learn", "sample"]
    assert made.gpus == 8
    assert made.completions_per_second == pytest.approx(1000 / made.step)


def test_the_fastest_layout_that_fits_comes_first():
    found = best_layouts([FULL, OTHER], 8, GPU, per_node=8)
    assert [(made.layout, made.fits) for made in found] == [
        (Layout("vllm", 3, 1, max_lag=1), True),
        (Layout("own", 4), True),  # 4 · 100 / 4 + 93.333 / 4
        (Layout("vllm", 3, 1), True),
        (Layout("vllm", 1, 1, beside=0.4), False),
        (Layout("one"), False),
    ]


def test_copies_of_adapters_fit():
    found = best_layouts([LORA], 8, GPU, per_node=8)
    first = found[0].layout
    # 2 · (18.667 + 56) GPU-seconds of learning on 3 GPUs, 2 · 100 of sampling on 5,
    # 0.5 s to publish
    assert (first.learners, first.replicas, first.max_lag) == (3, 5, 1)
    assert found[0].step == pytest.approx(2 * 74.667 / 3 + 0.5, rel=1e-4)
