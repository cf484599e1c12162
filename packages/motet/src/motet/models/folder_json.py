"""The small JSON files of a model folder from an untrusted source: their allowed keys and values.

Code, kernels, paths and repositories are dropped. A value that a library would fail at, or that
would create too many objects, is an error that names the file and the key.
"""

import re
from collections.abc import Callable, Mapping
from math import isnan
from pathlib import Path
from typing import Any

from motet.errors import ConfigError, shortened
from motet.safety.reading import CONFIG, read_json

CONFIG_FILE, GENERATION = "config.json", "generation_config.json"
DEEPEST = 20
"""Most levels of a JSON file."""
MOST_LAYERS = 1000
MOST_EXPERTS = 10_000
MOST_ADDED = 50_000
"""Most added tokens: each is searched in every string before it is tokenized."""
MOST_NUMBER = 2**31
NAMES = {
    "auto_map", "attn_implementation", "experts_implementation", "custom_generate",
    "custom_pipelines", "transformers_weights", "name_or_path", "kernel_config", "use_kernels",
    "kernels", "gguf_file", "extra_files", "extra_config_files", "backbone", "use_timm_backbone",
    "use_pretrained_backbone",
}  # fmt: skip
"""Keys that name code, kernels, files or other repositories."""
CODE = NAMES | {
    "tp_plan", "tp_size", "pp_plan", "ep_plan", "fsdp_plan", "base_model_tp_plan",
    "base_model_pp_plan", "base_model_ep_plan", "base_model_fsdp_plan", "distributed_config",
    "fusion_config", "dtype", "torch_dtype", "num_labels", "id2label", "label2id", "problem_type",
    "task_specific_params",
}  # fmt: skip
"""Keys of config.json that we drop: those of `NAMES`, those that the run sets itself, and those
that belong to other tasks.
"""
_TEXT, _YES, _NUMBER = (str,), (bool,), (int, float)
TOKENIZER: Mapping[str, tuple[type, ...]] = {
    "chat_template": (str, list), "model_max_length": _NUMBER, "padding_side": _TEXT,
    "truncation_side": _TEXT, "tokenizer_class": _TEXT, "additional_special_tokens": (list,),
    "extra_special_tokens": (list, dict), "added_tokens_decoder": (dict,), "add_bos_token": _YES,
    "add_eos_token": _YES, "add_prefix_space": _YES, "clean_up_tokenization_spaces": _YES,
    "split_special_tokens": _YES, "legacy": _YES, "errors": _TEXT, "do_lower_case": _YES,
    "strip_accents": _YES, "tokenize_chinese_chars": _YES, "keep_accents": _YES,
    "remove_space": _YES, "use_default_system_prompt": _YES, "spaces_between_special_tokens": _YES,
    "model_input_names": (list,),
}  # fmt: skip
"""Allowed keys of tokenizer_config.json, besides the special tokens, `NAME_token`."""
IDS = ("eos_token_id", "bos_token_id", "pad_token_id")
"""The only keys of generation_config.json that transformers sees: the run's config sets how to
sample.
"""
_NO_TOKEN = -1
"""The first Llama models write this for padding."""


def _config(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    from transformers.configuration_utils import PretrainedConfig  # seconds, and only for models

    kept = _without_names(said)
    for key, value in kept.items():
        if callable(getattr(PretrainedConfig, key, None)):
            raise ConfigError(
                f"{path}: {key}: not a key of a config; expected a file that save_pretrained wrote"
            )
        _check_numbers(path, key, value)
    if not isinstance(kept.get("quantization_config", {}), dict):
        got = shown(kept["quantization_config"])
        raise ConfigError(f"{path}: quantization_config: got {got}, expected keys and values")
    return kept


def _without_names(said: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in said.items():
        if key in CODE or key.startswith("_") or _names_a_place(value):
            continue
        kept[key] = _without_names(value) if isinstance(value, dict) else value
    return kept


def _names_a_place(value: Any) -> bool:
    """Test whether a string is a path, an address or a hub name, or whether a list contains one."""
    if isinstance(value, list):
        return any(map(_names_a_place, value))
    return isinstance(value, str) and ("/" in value or "\\" in value)


def _check_numbers(path: Path, key: str, value: Any, nested: bool = False) -> None:
    """Check the size of numbers.

    A number of layers creates as many objects before any weight is read. Any number in a list of
    lists may do the same, because a list may be repeated, as in [[["global", "local"], 6]].
    """
    if isinstance(value, dict):
        for inner, item in value.items():
            _check_numbers(path, f"{key}.{inner}", item)
        return
    counts = {"layers?|blocks?|depths?|dense_replace": MOST_LAYERS, "experts?": MOST_EXPERTS}
    named = next(
        (most for words, most in counts.items() if re.search(f"({words})$", key)), MOST_NUMBER
    )
    most = min(named, MOST_LAYERS) if nested else named
    items = value if isinstance(value, list) else [value]
    if len(items) > MOST_EXPERTS:
        raise ConfigError(
            f"{path}: {shortened(key, 100)}: got {len(items)} items, expected at most "
            f"{MOST_EXPERTS:,}"
        )
    for item in items:
        if isinstance(item, dict | list):
            _check_numbers(path, key, item, nested=isinstance(item, list))
        if isinstance(item, int) and abs(item) > most:
            raise ConfigError(
                f"{path}: {shortened(key, 100)}: got {shown(item)}, expected at most {most:,}"
            )


def _tokenizer_config(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in said.items():
        kinds = (str, dict) if key.endswith("_token") else TOKENIZER.get(key)
        kinds = _YES if key in ("add_bos_token", "add_eos_token") else kinds
        if kinds is None or value is None:
            continue
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            request = " or ".join(_WORDS[kind] for kind in kinds)
            raise ConfigError(f"{path}: {key}: got {shown(value)}, expected {request}")
        kept[key] = value
    if not kept.get("model_max_length", 1) >= 1:
        got = shown(kept["model_max_length"])
        raise ConfigError(f"{path}: model_max_length: got {got}, expected at least 1")
    if not re.fullmatch(
        r"\w*Tokenizer(Fast)?|TokenizersBackend|SentencePieceBackend",
        kept.get("tokenizer_class", "Tokenizer"),
    ):
        got = shown(kept["tokenizer_class"])
        raise ConfigError(
            f"{path}: tokenizer_class: got {got}, expected the name of a tokenizer of transformers"
        )
    for key in ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"):
        check_count(path, key, kept.get(key, ()))
    return kept


_WORDS = {
    str: "a string", bool: "true or false", int: "a number", float: "a floating-point number",
    list: "a list", dict: "keys and values",
}  # fmt: skip


def _special_tokens(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    names = ("additional_special_tokens", "extra_special_tokens")
    return _tokenizer_config(
        path, {key: value for key, value in said.items() if key.endswith("_token") or key in names}
    )


def _added_tokens(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    check_count(path, "the file", said)
    for key, value in said.items():
        if type(value) is not int or value < 0:
            raise ConfigError(
                f"{path}: {shortened(key, 100)}: got {shown(value)}, expected the number of a token"
            )
    return said


def _generation_config(path: Path, said: dict[str, Any]) -> dict[str, Any]:
    kept = {key: said[key] for key in IDS if said.get(key) is not None and said[key] != _NO_TOKEN}
    for key, value in kept.items():
        ids = value if isinstance(value, list) else [value]
        if not all(type(one) is int and 0 <= one < 2**31 for one in ids):
            raise ConfigError(
                f"{path}: {key}: got {shown(value)}, expected the number of a "
                "token, or a list of them"
            )
    return kept


FILTERS: Mapping[str, Callable[[Path, dict[str, Any]], dict[str, Any]]] = {
    CONFIG_FILE: _config, GENERATION: _generation_config,
    "tokenizer_config.json": _tokenizer_config, "special_tokens_map.json": _special_tokens,
    "added_tokens.json": _added_tokens,
}  # fmt: skip
"""File name -> function that returns the allowed contents: it gets the path, for its errors, and
the contents.
"""


def check_count(path: Path, key: str, found: Any) -> None:
    """Check that `found` is a list or a mapping of at most MOST_ADDED tokens.

    Raises: ConfigError.
    """
    if not isinstance(found, list | dict | tuple):
        raise ConfigError(f"{path}: {key}: got {shown(found)}, expected a list")
    if len(found) > MOST_ADDED:
        raise ConfigError(
            f"{path}: {key}: got {len(found):,} tokens, expected at most {MOST_ADDED:,}"
        )


def read_object(path: Path, most: int = CONFIG) -> dict[str, Any]:
    """Read a JSON file of keys and values, of at most `most` bytes.

    Raises: ConfigError.
    """
    said = read_json(path, most)
    if not isinstance(said, dict):
        raise ConfigError(f"{path}: got {shown(said)}, expected keys and values")
    _check_values(path, said, 0)
    return said


def _check_values(path: Path, value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise ConfigError(f"{path} is nested too deeply; expected at most {DEEPEST} levels")
    if isinstance(value, float) and isnan(value):
        raise ConfigError(f"{path}: got {value}, expected numbers")
    if isinstance(value, str) and re.search("[\ud800-\udfff]", value):
        raise ConfigError(
            f"{path}: got {shown(value)}, which contains a lone surrogate; expected valid Unicode"
        )
    if isinstance(value, dict | list):
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            if isinstance(item, dict | list | float | str):
                _check_values(path, item, depth + 1)


def shown(value: Any) -> str:
    """Return a value as an error message quotes it."""
    return shortened(repr(value), 100)
