"""Memory counts for a small shape, checked by hand."""

import gc

import pytest
import torch
from transformers import GPT2Config

import motet.models.memory as memory
from motet.models.memory import (
    ACTIVATIONS,
    WIDE,
    frozen,
    held,
    learning,
    oom_hint,
    playing,
    prepacked,
    shape_of,
    training,
)
from motet.settings import Lora, TinyModel
from tests.fixtures.messages import facts

TINY = TinyModel(hidden_size=64, layers=2, heads=4, kv_heads=2, feed_forward=128, vocabulary=300)


def test_parameters_are_those_of_the_architecture():
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 2 * 16
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert shape_of(TINY).parameters == 300 * 64 + 2 * layer + 64


def test_an_adapter_is_rank_times_inputs_plus_outputs():
    shape = shape_of(TINY)
    assert shape.adapter(Lora(rank=4, targets=("q_proj",))) == 2 * 4 * (64 + 64)
    assert shape.adapter(Lora(rank=4, targets=("self_attn.q_proj",))) == 2 * 4 * (64 + 64)
    per_layer = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 128)
    assert shape.adapter(Lora(rank=4)) == 2 * 4 * per_layer


def test_the_cache_holds_keys_and_values_of_every_layer():
    shape = shape_of(TINY)
    assert shape.cache_per_token == 2 * 2 * 2 * 16
    assert playing(shape, rows=3, tokens=10, bytes_each=2) == 3 * (10 * 128 * 2 + 300 * 4)


def test_a_cpu_samples_with_copies_of_linear_layers_and_the_head_where_they_fit(monkeypatch):
    shape = shape_of(TINY)
    linear = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    assert prepacked(shape, bytes_each=2) == 2 * (linear + 300 * 64)
    monkeypatch.setattr(memory, "fits", lambda size: False)
    assert prepacked(shape, bytes_each=2) == 0


def test_what_is_trained_needs_masters_and_what_computes_and_gradient_and_moments():
    assert held(100, bytes_each=4) == 400
    assert held(100, bytes_each=2) == 600
    assert training(100, "adamw") == 1200


def test_moments_in_8_bits_are_two_bytes_and_two_scales_for_256_of_them():
    assert training(256, "adamw_8bit") == 256 * (4 + 2) + 2 * 4


def test_checkpointing_keeps_the_input_of_each_layer_and_all_of_one():
    shape = shape_of(TINY)
    saved = learning(shape, 1000, 2) - learning(shape, 1000, 2, checkpointing=True)
    one_layer = ACTIVATIONS * 64 + WIDE * 128
    assert saved == 1000 * 2 * (2 * one_layer - (2 * 64 + one_layer))


def test_an_adapter_is_counted_where_linear_layers_are_transposed_too(tmp_path):
    GPT2Config(n_embd=32, n_layer=1, n_head=4, vocab_size=300, n_positions=16).save_pretrained(
        tmp_path
    )
    shape = shape_of(tmp_path)
    assert shape.linear == (
        ("transformer.h.0.attn.c_attn", 32, 96), ("transformer.h.0.attn.c_proj", 32, 32),
        ("transformer.h.0.mlp.c_fc", 32, 128), ("transformer.h.0.mlp.c_proj", 128, 32),
    )  # fmt: skip
    assert shape.adapter(Lora(rank=2)) == 2 * (32 + 96 + 32 + 32 + 32 + 128 + 128 + 32)


def test_a_frozen_base_is_its_width_and_quantised_only_its_linear_layers():
    """4 bits each, an 8-bit scale for 64 of them, and a 32-bit scale for 256 such scales."""
    shape = shape_of(TINY)
    linear = 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128)
    rest = shape.parameters - linear
    assert frozen(shape, 2, "none") == 2 * shape.parameters
    assert frozen(shape, 2, "8bit") == 2 * rest + linear
    assert frozen(shape, 2, "4bit") == 2 * rest + linear // 2 + linear // 64 + linear * 4 // (
        64 * 256
    )


def test_learning_grows_with_the_token_budget():
    shape = shape_of(TINY)
    once, twice, thrice = (learning(shape, 1000 * times, 4) for times in (1, 2, 3))
    assert twice - once == thrice - twice == 1000 * 2 * (64 * ACTIVATIONS + 128 * WIDE) * 4


def test_where_onednn_gets_no_memory_that_is_told_and_it_is_used_again(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    with (
        pytest.warns(
            RuntimeWarning,
            match=facts("cpu … out of memory … playing 3 answers … less memory … lower x"),
        ),
        oom_hint("playing 3 answers", "lower x", torch.device("cpu")),
    ):
        torch.backends.mkldnn.enabled = False  # PyTorch does this for the rest of the process
    assert torch.backends.mkldnn.enabled


def test_who_uses_no_onednn_hears_nothing_of_it(monkeypatch, recwarn):
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    gc.collect()  # what earlier tests left behind may warn when it is collected
    recwarn.clear()
    with oom_hint("playing 3 answers", "lower x", torch.device("cpu")):
        pass
    assert not torch.backends.mkldnn.enabled
    assert not recwarn.list
