"""The context length that a config states."""

import pytest
from transformers import LlamaConfig
from transformers.configuration_utils import PretrainedConfig

from motet.errors import ConfigError
from motet.models.loading import UNLIMITED, context_of

LONGROPE = {
    "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0], "long_factor": [2.0],
    "original_max_position_embeddings": 24,
}  # fmt: skip


def test_the_context_is_the_number_of_positions_or_the_short_regime_of_longrope() -> None:
    assert context_of("m", LlamaConfig(max_position_embeddings=96)) == 96
    assert context_of("m", LlamaConfig(max_position_embeddings=96, rope_parameters=LONGROPE)) == 24
    assert context_of("m", PretrainedConfig()) == UNLIMITED


@pytest.mark.parametrize("value", [0, -1, 0.5, "96"])
def test_a_number_of_positions_that_is_none_is_refused(value: object) -> None:
    config = PretrainedConfig()
    config.max_position_embeddings = value
    with pytest.raises(
        ConfigError,
        match=r"model 'm' cannot be loaded: max_position_embeddings: got .*, expected at least 1",
    ):
        context_of("m", config)
