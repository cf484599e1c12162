"""Counts that can be done by hand on a small shape."""

from motet.policies.memory import learning, playing, shape_of, training
from motet.settings import Lora, TinyModel

TINY = TinyModel(hidden_size=64, layers=2, heads=4, kv_heads=2, feed_forward=128, vocabulary=300)


def test_parameters_are_those_of_the_architecture():
    attention = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 2 * 16
    layer = attention + 3 * 64 * 128 + 2 * 64
    assert shape_of(TINY).parameters == 300 * 64 + 2 * layer + 64


def test_an_adapter_is_rank_times_inputs_plus_outputs():
    shape = shape_of(TINY)
    assert shape.adapter(Lora(rank=4, targets=("q_proj",))) == 2 * 4 * (64 + 64)
    per_layer = (64 + 64) + 2 * (64 + 32) + (64 + 64) + 3 * (64 + 128)
    assert shape.adapter(Lora(rank=4)) == 2 * 4 * per_layer


def test_the_cache_holds_keys_and_values_of_every_layer():
    shape = shape_of(TINY)
    assert shape.cache_per_token == 2 * 2 * 2 * 16
    assert playing(shape, rows=3, tokens=10, bytes_each=2) == 3 * (10 * 128 * 2 + 300 * 4)


def test_what_is_trained_needs_gradient_and_moments_and_its_own_masters():
    assert training(100, own_copy=True) == 1600
    assert training(100, own_copy=False) == 1200


def test_learning_grows_with_the_token_budget():
    shape = shape_of(TINY)
    assert learning(shape, 2000, 4) == 2 * learning(shape, 1000, 4)
