"""Read a model's config.json, and the context length that it states."""

from pathlib import Path

from transformers import AutoConfig
from transformers.configuration_utils import PretrainedConfig

from motet.errors import ConfigError
from motet.models.folder import EXPECTED, allowed_contents, library

UNLIMITED = 10**9
"""Stands for "no limit". Tokenizers without a known limit give 10^30."""


def load_config(source: str | Path) -> PretrainedConfig:
    """Return the allowed contents of a model's config.json.

    Raises: ConfigError.
    """
    with allowed_contents(source, "config") as view:
        return config_of(source, view)


def config_of(source: str | Path, view: Path) -> PretrainedConfig:
    """Return the config in `view`, the folder of allowed contents of `source`.

    Raises: ConfigError.
    """
    with library(named(source), EXPECTED):
        config: PretrainedConfig = AutoConfig.from_pretrained(view, trust_remote_code=False)
    config.name_or_path = str(source)
    return config


def context_of(source: str | Path, config: PretrainedConfig) -> int:
    """Return how many tokens of prompt and completion the config allows.

    Raises: ConfigError.
    """
    return min(_positions(source, config), _short_regime(source, config))


def shortened_context(source: str | Path) -> str | None:
    """Return a message for the user if we use a shorter context than the model has; else None.

    Raises: ConfigError.
    """
    config = load_config(source)
    short, long = _short_regime(source, config), _positions(source, config)
    if short >= long:
        return None
    return (
        f"the context of model {str(source)!r} is limited to {short} of {long} tokens: beyond "
        "them its positions (longrope) change for every row of a batch, so log-probabilities "
        "would depend on other rows"
    )


def _positions(source: str | Path, config: PretrainedConfig) -> int:
    """Return the context length that the config states, in tokens.

    Raises: ConfigError.
    """
    text = config.get_text_config(decoder=True)
    return _count(source, "max_position_embeddings", getattr(text, "max_position_embeddings", None))


def _short_regime(source: str | Path, config: PretrainedConfig) -> int:
    """Return up to how many tokens the positions do not depend on the longest row of a batch.

    LongRoPE (Ding et al. 2024) has frequencies for short texts and others for long ones, and
    transformers uses those of the longest row for all rows. Dynamic NTK scaling does the same
    beyond max_position_embeddings, which no row exceeds anyway.

    Raises: ConfigError.
    """
    rope = getattr(config.get_text_config(decoder=True), "rope_parameters", None) or {}
    # Some models have one per layer type.
    kinds = [
        rope,
        *(kind for kind in rope.values() if isinstance(kind, dict)),
    ]
    long = [kind for kind in kinds if kind.get("rope_type") == "longrope"]
    name = "original_max_position_embeddings"
    return min((_count(source, name, kind.get(name)) for kind in long), default=UNLIMITED)


def _count(source: str | Path, name: str, found: object) -> int:
    if found is None:
        return UNLIMITED
    if not isinstance(found, int) or found < 1:
        raise refused(source, f"{name}: got {found!r}, expected at least 1")
    return found


def refused(source: str | Path, why: str) -> ConfigError:
    """Return the error for a model that cannot be loaded."""
    return ConfigError(f"{named(source)} cannot be loaded: {why}")


def named(source: str | Path) -> str:
    """Return a model as error messages name it."""
    return f"model {str(source)!r}"
