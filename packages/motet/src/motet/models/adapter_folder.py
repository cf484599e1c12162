"""Check an adapter folder from an untrusted source: one weight file and an allowlist of config
keys.

PEFT matches the regular expressions of a config against every module name, imports modules that a
config names, and changes the base weights for some values of `init_lora_weights`. So we match
patterns in a subprocess with limits, and read only the keys that LoRA needs.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from peft import LoraConfig
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict  # pydantic reads no other one before Python 3.12

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

Name: TypeAlias = Annotated[str, Field(max_length=1000, pattern=r"^[\w.-]+$")]
"""The name of a module. PEFT may read the dots as "any character" of a pattern; such a pattern is
fast to match."""
Names: TypeAlias = Annotated[list[Name], Field(max_length=10_000)]
Pattern: TypeAlias = Annotated[str, Field(max_length=1000, pattern=r"^\^?(\.\*\\\.)?[\w.-]+$")]
"""A name that PEFT reads as a pattern. Two elements of patterns are allowed: `^` at the beginning,
and `.*\\.`, which PEFT itself writes for experts."""
Rank: TypeAlias = Annotated[int, Field(ge=1, le=MOST_RANK)]
Alpha: TypeAlias = Annotated[int | float, Field(gt=0, le=1e9)]
Layer: TypeAlias = Annotated[int, Field(ge=0)]


class LoraKeys(TypedDict, total=False):
    """The keys of an adapter's config that LoRA needs, with the values that they may have.

    All adapters share the base, so no value may change it.
    """

    __pydantic_config__ = ConfigDict(strict=True)  # type: ignore[misc] # pydantic's way

    r: Rank
    lora_alpha: Alpha
    target_modules: Names | str
    exclude_modules: Names | str | None
    modules_to_save: Names | None
    target_parameters: Names | None
    fan_in_fan_out: bool
    use_rslora: bool
    use_dora: bool
    lora_bias: bool
    ensure_weight_tying: bool
    bias: Literal["none"]
    init_lora_weights: bool | Literal["gaussian", "orthogonal"]
    layers_to_transform: Layer | Annotated[list[Layer], Field(max_length=10_000)] | None
    layers_pattern: Name | Literal[""] | Annotated[list[Name], Field(max_length=10)] | None
    rank_pattern: Annotated[dict[Pattern, Rank], Field(max_length=MOST_PATTERNS)] | None
    alpha_pattern: Annotated[dict[Pattern, Alpha], Field(max_length=MOST_PATTERNS)] | None


_KEYS = TypeAdapter(LoraKeys)


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
    known = LoraKeys.__annotations__
    strange = [key for key in said if said[key] and key not in known and key not in IGNORED]
    if strange:
        raise ConfigError(
            f"{path}: {strange[0]}: got {_shown(said[strange[0]])}, expected plain LoRA, which "
            "does not have this key"
        )
    try:
        return dict(_KEYS.validate_python({key: said[key] for key in known if key in said}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        raise ConfigError(
            f"{path}: {key}: got {_shown(said[key])}, expected what PEFT saves for plain LoRA: "
            f"{first['msg']}"
        ) from error


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


def _shown(value: Any) -> str:
    return shortened(json.dumps(value), 100)
