"""Translate the keys of CoMLRL's function calling experiments: native_parallel and multiturn_flat.

Both have the data type bfcl. Weights whose names begin with `sequence_`, or categories of several
turns, belong to multiturn_flat, whose calls are scored in their order.
"""

from typing import Any

from motet_published.benchmarks import CALL_TYPES
from motet_published.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Unsupported,
    number,
    one_of,
    texts,
)
from motet_published.translation import Translation

_CATEGORIES, _TYPES = "dataset.categories", "dataset.task_types"
_ROLES, _REPEATS = "bfcl.role_mode", "bfcl_reward.self_duplicate_mode"
_REWARDED = {
    "parse_weight": "parsed",
    "function_weight": "names",
    "argument_weight": "arguments",
    "count_weight": "count",
    "balance_weight": "balance",
    "exact_bonus": "exact",
}
_PENALISED = {
    "overlap_penalty": "overlap",
    "lazy_agent_penalty": "silent",
    "extra_call_penalty": "extra",
}
_BOUNDS = {"min_reward": "lowest", "max_reward": "highest"}
_SET = {
    **{f"bfcl_reward.{key}": (term, 1) for key, term in _REWARDED.items()},
    **{f"bfcl_reward.{key}": (term, -1) for key, term in _PENALISED.items()},
    "bfcl_reward.self_duplicate_penalty": ("repeated", -1),
    **{f"bfcl_reward.{key}": (bound, 1) for key, bound in _BOUNDS.items()},
}
"""Published key -> the key of `environment.score`, and its sign."""
_SEQUENCE = {
    "bfcl_reward.parse_weight": ("parsed", 1),
    **{f"bfcl_reward.sequence_{key}": _SET[f"bfcl_reward.{key}"] for key in (
        *list(_REWARDED)[1:], *_PENALISED)},
    "bfcl_reward.sequence_order_weight": ("order", 1),
    "bfcl_reward.sequence_prefix_weight": ("prefix", 1),
    **{f"bfcl_reward.{key}": (bound, 1) for key, bound in _BOUNDS.items()},
}  # fmt: skip
_LIMIT = Unsupported("set the number of rows in the split: train_split: train[:160]")

KEYS: KeyTable = {
    _CATEGORIES: Combined(texts),
    _TYPES: Combined(texts),
    _ROLES: Combined(
        one_of(
            {name: name for name in ("self_select", "same_prompt", "odd_even", "split_by_order")}
        )
    ),
    _REPEATS: Combined(one_of({"dedupe": False, "penalize": True})),
    **dict.fromkeys({**_SET, **_SEQUENCE}, Combined(number)),
    "dataset.version": NoEffect("the rows say what they are", silent=("v4",)),
    "dataset.max_train_samples": _LIMIT,
    "dataset.max_eval_samples": _LIMIT,
}
"""The keys that only these experiments have."""


def set_calls(config: Translation, dataset_type: str) -> None:
    """Set the rows that are used, the roles and the weights. Other data sets have none of these.

    Raises: ConfigError if a key is for another data set, or for the other of the two experiments.
    """
    if dataset_type not in CALL_TYPES:
        for key in KEYS:
            if key in config:
                raise config.error(key, f"it is for data of the type bfcl, got {dataset_type}")
        return
    for key, option in ((_CATEGORIES, "categories"), (_TYPES, "task_types")):
        if config.get(key):
            config.set(f"environment.{option}", list(config[key]), key)
    config.copy(_ROLES, "environment.roles")
    ordered = _in_order(config)
    config.set("environment.score.kind", "sequence" if ordered else "set")
    own, other = (_SEQUENCE, _SET) if ordered else (_SET, _SEQUENCE)
    for key in other:
        if key in config and key not in own:
            kind = "in their order" if ordered else "in any order"
            raise config.error(key, f"calls are scored {kind} here, without this weight: drop it")
    for key, (term, sign) in own.items():
        if key in config:
            config.set(f"environment.score.{term}", sign * config[key], key)
    if _REPEATS in config and not config[_REPEATS]:
        config.set("environment.score.repeated", 0.0, _REPEATS)
        config.ignore("{key} needs self_duplicate_mode: penalize", *_repeated())


def _repeated() -> list[str]:
    return [key for key, (term, _) in _SET.items() if term == "repeated"]


def _in_order(config: Translation) -> bool:
    if any(key in config for key in _SEQUENCE if key not in _SET):
        return True
    categories: Any = config.get(_CATEGORIES, ())
    return any(name.startswith("multi_turn") for name in categories)
