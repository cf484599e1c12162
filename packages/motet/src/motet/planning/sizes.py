"""The shape of a model of which only the number of parameters is known."""

from motet.models.memory import Shape

ASPECT = 128
"""Assumed hidden size per layer: 4096 / 32 in Llama 7B, 5120 / 40 in Llama 13B."""
KV_WIDTH = 1024
"""Assumed width of the keys, and of the values, of a layer: 8 heads of 128, as in Llama 3 and
Qwen 3."""
FEED_FORWARD = 3.5
"""Assumed feed-forward width as a multiple of the hidden size, as in Llama 3 8B."""
VOCABULARY = 128_000
"""Assumed size of the vocabulary."""


def guessed_shape(parameters: float) -> Shape:
    """Return the shape of a decoder with about this number of parameters.

    A layer of hidden size h has about 12·h² weights, and h = ASPECT · layers. So the number of
    layers is the cube root of parameters / (12 · ASPECT²).
    """
    layers = max(1, round((parameters / (12 * ASPECT**2)) ** (1 / 3)))
    hidden = ASPECT * layers
    keys, wide = min(hidden, KV_WIDTH), int(FEED_FORWARD * hidden)
    of_layer = (
        ("q_proj", hidden, hidden),
        ("k_proj", hidden, keys),
        ("v_proj", hidden, keys),
        ("o_proj", hidden, hidden),
        ("gate_proj", hidden, wide),
        ("up_proj", hidden, wide),
        ("down_proj", wide, hidden),
    )
    linear = tuple(
        (f"{layer}.{name}", inputs, outputs)
        for layer in range(layers)
        for name, inputs, outputs in of_layer
    )
    return Shape(
        parameters=int(parameters),
        linear=linear,
        layers=layers,
        hidden=hidden,
        cache_per_token=2 * layers * keys,
        vocabulary=VOCABULARY,
    )
