import pytest

from motet.planning.sizes import guessed_shape
from motet.settings import Lora


def test_seven_billion_parameters_are_about_a_llama_7b():
    shape = guessed_shape(7e9)
    # (7e9 / 196,608) ** (1/3) = 32.9
    assert (shape.parameters, shape.layers, shape.hidden) == (7_000_000_000, 33, 4224)
    assert shape.cache_per_token == 2 * 33 * 1024


def test_the_linear_layers_hold_most_of_the_guessed_parameters():
    shape = guessed_shape(7e9)
    held = sum(inputs * outputs for _, inputs, outputs in shape.linear)
    assert held == pytest.approx(7e9, rel=0.15)


def test_an_adapter_of_rank_8_on_seven_billion_has_about_twenty_million_weights():
    # Llama 7B with rank 8 on all linear layers: 20 M in PEFT
    assert guessed_shape(7e9).adapter(Lora(rank=8)) == pytest.approx(20e6, rel=0.2)


def test_a_tiny_model_has_one_layer_at_least():
    shape = guessed_shape(1e5)
    assert (shape.layers, shape.hidden, shape.cache_per_token) == (1, 128, 2 * 128)
