"""Test the published keys of the function calling experiments."""

import re
from typing import Any

import pytest

from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published.command import config_of
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation
from tests.fixtures.messages import says

ROWS = {"name": "OpenMLRL/BFCL-V4-Parallel-Native", "type": "bfcl", "train_split": "train[:160]"}


def translated(**sections: Any) -> Translation:
    data = {
        "agent_model": {"name": "some/model"},
        "magrpo": {"num_train_epochs": 4, "num_agents": 2},
        **sections,
        "dataset": {**ROWS, **sections.get("dataset", {})},
    }
    return translate([Document(data, {(): "file"})], TRAINERS["magrpo"], "run")


def environment(**sections: Any) -> dict[str, Any]:
    return config_of(translated(**sections)).environment.options


def test_the_type_follows_from_the_name_of_the_data() -> None:
    found = environment(dataset={"type": None})
    assert (found["agents"], found["score"]) == (2, {"kind": "set"})


def test_penalties_are_negative_weights() -> None:
    weights = {"overlap_penalty": 0.2, "self_duplicate_penalty": 0.1, "min_reward": -0.4}
    score = {"kind": "set", "overlap": -0.2, "repeated": -0.1, "lowest": -0.4}
    assert environment(bfcl_reward=weights)["score"] == score


def test_repeated_calls_cost_nothing_where_they_are_only_dropped() -> None:
    weights = {"self_duplicate_penalty": 0.1, "self_duplicate_mode": "dedupe"}
    config = translated(bfcl_reward=weights)
    assert config_of(config).environment.options["score"] == {"kind": "set", "repeated": 0.0}
    assert any(says(note, "self_duplicate_penalty … penalize") for note in config.notes)
    weights["self_duplicate_mode"] = "penalize"
    assert environment(bfcl_reward=weights)["score"]["repeated"] == -0.1


@pytest.mark.parametrize(
    "sections",
    [
        {"bfcl_reward": {"sequence_order_weight": 0.25}},
        {"dataset": {"categories": ["multi_turn_base_step"]}},
    ],
)
def test_steps_of_several_turns_are_scored_in_their_order(sections: dict[str, Any]) -> None:
    assert environment(**sections)["score"]["kind"] == "sequence"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dataset": {"type": "humaneval", "categories": ["parallel"]}},
     "dataset.categories: it is for data of the type bfcl, got humaneval"),
    ({"bfcl_reward": {"sequence_order_weight": 0.25, "function_weight": 0.2}},
     "bfcl_reward.function_weight: calls are scored in their order here, without this weight"),
    ({"bfcl": {"role_mode": "first"}}, "expected one of self_select"),
    ({"dataset": {"max_train_samples": 5}}, "train_split: train[:160]"),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "message"), REFUSED)
def test_what_does_not_fit_is_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        translated(**sections)
