"""Check an adapter folder from an untrusted source: one weight file and an allowlist of config
keys.

PEFT matches the regular expressions of a config against every module name, imports modules that a
config names, and changes the base weights for some values of `init_lora_weights`. So we match
patterns in a subprocess with limits, and read only the keys that LoRA needs.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from peft import LoraConfig

from motet.errors import ConfigError, SamplerFault, shortened
from motet.models.bounded_text import matching
from motet.models.folder import inside, library
from motet.safety.reading import CONFIG, WEIGHTS, read_json
from motet.user_code.plugins import look_at

FILE, TENSORS = "adapter_config.json", "adapter_model.safetensors"
MOST_RANK = 1 << 16
MOST_PATTERNS = 1000
"""The most names that may have their own rank or alpha: PEFT tries each of them on every module."""
IGNORED = {
    "peft_type", "auto_mapping", "base_model_name_or_path", "revision", "peft_version",
    "inference_mode", "task_type", "runtime_config", "megatron_core", "qalora_group_size",
    "lora_dropout",
}  # fmt: skip
"""Keys that we skip: they record where an adapter comes from, have no effect by themselves, or are
fixed by the run (dropout is 0).
"""


def weights_of(folder: str | Path) -> Path:
    """Return the path of the adapter's weight file.

    Raises: ConfigError if it is missing or lies outside the folder.
    """
    place = Path(folder)
    if look_at(place / TENSORS) != "file":
        raise ConfigError(
            f"adapter folder {str(folder)!r} has no {TENSORS}: use a folder that PEFT saved"
        )
    return inside(place, TENSORS, WEIGHTS)


def config_of(folder: str | Path, modules: Sequence[str]) -> LoraConfig:
    """Return the adapter's config for a model with these `modules`; module names replace its
    patterns.

    Raises: ConfigError.
    """
    path, kept = Path(folder) / FILE, allowed_keys(folder)
    for key in ("target_modules", "exclude_modules"):
        if isinstance(kept.get(key), str) and kept[key] != "all-linear":
            kept[key] = _matched(path, key, kept[key], modules)
    with library(f"adapter {str(folder)!r}", "a LoRA adapter that PEFT saved"):
        return LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, **kept)


def allowed_keys(folder: str | Path) -> dict[str, Any]:
    """Return the keys of an adapter's config that LoRA needs. Raises: ConfigError."""
    path = Path(folder) / FILE
    if look_at(path) != "file":
        raise ConfigError(
            f"adapter folder {str(folder)!r} has no {FILE}: use a folder that PEFT saved"
        )
    said = read_json(inside(Path(folder), FILE, CONFIG))
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: got {_shown(said)}, expected keys and values")
    if said.get("peft_type") != "LORA":
        raise ConfigError(f"{path}: peft_type: got {_shown(said.get('peft_type'))}, expected LORA")
    kept = {}
    for key, value in said.items():
        if key in IGNORED:
            continue
        if key not in BELIEVED:
            if value:
                raise ConfigError(
                    f"{path}: {key}: got {_shown(value)}, expected plain LoRA, which does not "
                    "have this key"
                )
            continue
        fits, expected = BELIEVED[key]
        if not fits(value):
            raise ConfigError(f"{path}: {key}: got {_shown(value)}, expected {expected}")
        kept[key] = value
    return kept


def check_ranks(folder: str | Path, config: LoraConfig, shapes: Iterable[Sequence[int]]) -> None:
    """Check the config's rank against the shapes of the weights, before memory is allocated for it.

    Raises: ConfigError if the rank is larger than that of every matrix in the file.
    """
    ranks = {min(shape) for shape in shapes if len(shape) == 2}
    said = {config.r, *(config.rank_pattern or {}).values()}
    if max(said) > max(ranks, default=0):
        raise ConfigError(
            f"adapter {str(folder)!r} has rank {max(said)} in its config, but its weights "
            f"have at most rank {max(ranks, default=0)}; expected the config of these weights"
        )


def _matched(path: Path, key: str, pattern: str, modules: Sequence[str]) -> list[str]:
    try:
        found = matching(pattern, modules)
    except SamplerFault as error:
        raise ConfigError(
            f"{path}: {key}: got {_shown(pattern)}: {error}; expected names of modules"
        ) from error
    if not found and key == "target_modules":
        raise ConfigError(
            f"{path}: {key}: got {_shown(pattern)}, which matches no module of this model; "
            "expected names of its modules"
        )
    return found


def _names(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 10_000 and all(map(_name, value))


def _name(value: Any) -> bool:
    """Test for the name of a module.

    PEFT may read the dots as "any character" of a pattern; such a pattern is fast to match.
    """
    return (
        isinstance(value, str)
        and len(value) <= 1000
        and re.fullmatch(r"[\w.-]+", value) is not None
    )


def _number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and isfinite(value) and 0 < value <= most


def _rank(value: Any) -> bool:
    return type(value) is int and _number(value, MOST_RANK)


def _alpha(value: Any) -> bool:
    return _number(value, 1e9)


def _pattern_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Return a check for a mapping whose keys are module names, which PEFT reads as patterns.

    Two pattern elements are allowed: `^` at the beginning, and `.*\\.`, which PEFT itself writes
    for experts.
    """

    def name(key: str) -> bool:
        return _name(key.removeprefix("^").removeprefix(r".*\."))

    return lambda value: (
        value is None
        or (
            isinstance(value, dict)
            and len(value) <= MOST_PATTERNS
            and all(name(key) and fits(one) for key, one in value.items())
        )
    )


def _yes(value: Any) -> bool:
    return isinstance(value, bool)


def _layers(value: Any) -> bool:
    ones = value if isinstance(value, list) else [value]
    return value is None or (
        len(ones) <= 10_000 and all(type(one) is int and one >= 0 for one in ones)
    )


BELIEVED: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "r": (_rank, f"a whole number of 1 to {MOST_RANK:,}"),
    "lora_alpha": (_alpha, "a number above 0"),
    "target_modules": (
        lambda value: _names(value) or isinstance(value, str),
        "names of modules, or one pattern",
    ),
    "exclude_modules": (
        lambda value: value is None or _names(value) or isinstance(value, str),
        "names of modules",
    ),
    "modules_to_save": (lambda value: value is None or _names(value), "names of modules"),
    "target_parameters": (lambda value: value is None or _names(value), "names of parameters"),
    "fan_in_fan_out": (_yes, "true or false"),
    "use_rslora": (_yes, "true or false"),
    "use_dora": (_yes, "true or false"),
    "lora_bias": (_yes, "true or false"),
    "ensure_weight_tying": (_yes, "true or false"),
    "bias": (lambda value: value == "none", "none, because all adapters share the base"),
    "init_lora_weights": (
        lambda value: _yes(value) or value in ("gaussian", "orthogonal"),
        "true, false, gaussian or orthogonal, because all adapters share the base and other "
        "values change it",
    ),
    "layers_to_transform": (_layers, "numbers of layers"),
    "layers_pattern": (
        lambda value: (
            value is None or value == "" or _name(value) or (_names(value) and len(value) <= 10)
        ),
        "the name of the list of layers, or up to 10",
    ),
    "rank_pattern": (_pattern_of(_rank), "whole numbers by names of modules"),
    "alpha_pattern": (_pattern_of(_alpha), "numbers by names of modules"),
}
"""Allowed key -> (check of its value, what the error message says we expect)."""


def _shown(value: Any) -> str:
    return shortened(json.dumps(value), 100)
