"""Translate the keys of CoMLRL's Travel experiments, whose preference trainers are called MAPL."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from motet_published.benchmarks import TRAVEL_TYPES
from motet_published.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Unsupported,
    boolean,
    number,
    text,
    whole_number,
)
from motet_published.translation import Translation

MAPL = "mapl"
"""The section that all preference trainers of these experiments read."""
ALGORITHM = "algorithm"
"""The key that says which of these trainers a config is for."""
SUBSET, SPLIT = "dataset.config_name", "dataset.source_split"
_TRAINED, _HELD_OUT = "dataset.train_samples", "dataset.eval_samples"
_SYSTEM, _MEAN = "travel.system_prompt", "travel.normalize_value_log_probs"
TRAIN_ROWS, EVAL_ROWS = 16, 4
"""Published defaults."""


def listed(value: Any) -> list[Any]:
    """Convert a value or a list of values. None is an empty list."""
    return [] if value is None else list(value) if isinstance(value, list | tuple) else [value]


_FILTERS = {
    "dataset.filters.days": "days",
    "dataset.filters.levels": "levels",
    "dataset.filters.visiting_city_numbers": "cities",
}
_WEIGHTS = {
    "protocol_progress_weight": ("form", 1),
    "recovered_semantic_weight": ("recovered", 1),
    "action_validity_weight": ("valid", 1),
    "team_action_weight": ("team_valid", 1),
    "strict_balance_weight": ("balance", 1),
    "strict_quality_weight": ("quality", 1),
    "strict_grounding_weight": ("grounded", 1),
    "budget_pass_bonus": ("in_budget", 1),
    "commonsense_macro_bonus": ("all_sensible", 1),
    "hard_macro_bonus": ("all_wished", 1),
    "final_success_bonus": ("success", 1),
    "assignment_coverage_weight": ("plan.coverage", 1),
    "required_grounded_weight": ("plan.grounded", 1),
    "grounding_f1_weight": ("plan.f1", 1),
    "commonsense_weight": ("plan.sensible", 1),
    "hard_constraint_weight": ("plan.wished", 1),
    "grounding_support_floor": ("plan.floor", 1),
    "invalid_action_penalty": ("wrong", -1),
    "conflict_penalty": ("conflict", -1),
    "overlap_penalty": ("overlap", -1),
    "reference_copy_penalty": ("copied", -1),
    "overlong_penalty": ("long", -1),
    "min_reward": ("lowest", 1),
    "max_reward": ("highest", 1),
}
"""Published weight -> the key of `environment.weights`, and its sign."""
_WRITTEN = NoEffect("the model writes the whole JSON; motet.decode.format restricts what it writes")
_AT_END = NoEffect("the team is evaluated before and after training")
_ALL_ROWS = NoEffect("all rows that the filters leave are used")
KEYS: KeyTable = {
    SUBSET: Combined(text),
    SPLIT: Combined(text),
    _TRAINED: Combined(whole_number(1)),
    _HELD_OUT: Combined(whole_number(1)),
    **dict.fromkeys(_FILTERS, Combined(listed)),
    "dataset.filters.select_shortest": _ALL_ROWS,
    "dataset.filters.max_reference_chars": _ALL_ROWS,
    "dataset.partition.stratify_by": _ALL_ROWS,
    "dataset.partition.interleave_eval": _ALL_ROWS,
    "dataset.revision": NoEffect("the newest revision of the data is read"),
    _SYSTEM: Combined(text),
    _MEAN: Combined(boolean),
    "travel.role_mode": Unsupported(
        "each agent has slots of its own: use partitioned_roles", allowed=("partitioned_roles",)
    ),
    "travel.use_chat_template": NoEffect("agents read chats", silent=(True,)),
    "travel.force_json_prefix": _WRITTEN,
    "travel.constrain_json_skeleton": _WRITTEN,
    "travel.stop_after_complete_json": _WRITTEN,
    "travel.max_value_tokens": _WRITTEN,
    "travel.greedy_eval": NoEffect("evaluations sample as training does"),
    "travel.curriculum_short_epochs": NoEffect("every epoch has all rows", silent=(0,)),
    "travel.curriculum_days": NoEffect("every epoch has all rows"),
    "travel.preference_generation_batch_size": NoEffect("train.rows_per_batch limits the batch"),
    "travel.offload_inactive_actors": NoEffect("no model leaves its device", silent=(False,)),
    **{f"travel_reward.{key}": Combined(number) for key in _WEIGHTS},
    "evaluation.at_end": _AT_END,
    "evaluation.final_num_samples": _AT_END,
    "trainer.eval_at_end": _AT_END,
    "trainer.final_eval_num_samples": _AT_END,
    "trainer.rotate_eval_subset": NoEffect("the same tasks are evaluated", silent=(False,)),
}
"""The keys that only these experiments have."""


def set_travel(config: Translation, dataset_type: str, agents: Sequence[str]) -> None:
    """Set the rows that are used, the weights, the system prompt and the log-probabilities.

    Raises: ConfigError if a key is for another data set.
    """
    if dataset_type not in TRAVEL_TYPES:
        for key in KEYS:
            if key in config:
                raise config.error(key, f"it is for travelplanner, got {dataset_type}")
        return
    for key, option in _FILTERS.items():
        if config.get(key):
            config.set(f"environment.{option}", config[key], key)
    for key, (term, sign) in _WEIGHTS.items():
        published = f"travel_reward.{key}"
        if published in config:
            config.set(f"environment.weights.{term}", sign * config[published], published)
    for agent in agents:
        config.copy(_SYSTEM, f"team.{agent}.system")
    if config.get(_MEAN, False):
        config.set("algorithm.reduce", "sequence_mean", _MEAN)


def set_travel_data(config: Translation, parts: Sequence[str]) -> None:
    """Set the data. The published split is a random one, which needs all rows at once.

    Of a file, the first rows are trained on, and the next ones are held out. On the hub, the rows
    of the other subset are held out.
    """
    name, split = config["dataset.name"], config.get(SPLIT, "validation")
    trained, held_out = config.get(_TRAINED, TRAIN_ROWS), config.get(_HELD_OUT, EVAL_ROWS)
    if Path(name).exists():
        slices = {"train": f"[:{trained}]", "eval": f"[{trained}:{trained + held_out}]"}
        for part in parts:
            config.set(f"data.{part}.path", name, "dataset.name")
            config.set(f"data.{part}.split", f"{split}{slices[part]}", SPLIT)
        config.tell(
            f"the first {trained} rows of the file are trained on and the next {held_out} held "
            "out; published is a random split of the rows that the filters leave"
        )
        return
    subset = config.get(SUBSET, "validation")
    other = "train" if subset == "validation" else "validation"
    for part, one in (("train", subset), ("eval", other)):
        if part in parts:
            config.set(f"data.{part}.name", name, "dataset.name")
            config.set(f"data.{part}.subset", one, SUBSET)
            config.set(f"data.{part}.split", split if part == "train" else other, SPLIT)
    config.tell(
        f"all rows of {subset} that the filters leave are trained on, and rows of {other} are held "
        "out; published is a random split of the former"
    )


def check_algorithm(config: Translation, trainer: str) -> None:
    """Raises: ConfigError if the config is for another trainer."""
    named = config.get(ALGORITHM, trainer)
    if named != trainer:
        raise config.error(
            ALGORITHM, f"got {named}, this is train_{trainer}.py: use train_{named}.py"
        )
