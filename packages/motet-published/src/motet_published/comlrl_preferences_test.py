"""Test that every key of the preference trainers changes what it says it changes."""

from typing import Any

import pytest

from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published import comlrl_comparators
from motet_published.comlrl_keys import CRITIC_KEYS, KEYS
from motet_published.comlrl_preferences import keys_of_preferences
from motet_published.command import config_of
from motet_published.keys import Combined, NoEffect, Renamed
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation
from tests.fixtures.messages import facts, says

ONE_SHOT, ITERATIVE = ("madpo", "marlhf"), ("madpo_iter", "marlhf_iter")
NAMES = (*ONE_SHOT, *ITERATIVE)
BASE: dict[str, Any] = {
    "agent_model": {"name": "some/model"},
    "dataset": {"name": "some/humaneval", "train_split": "test[9:]"},
}


def translated(trainer: str, **keys: Any) -> Translation:
    section = {"num_train_epochs": 3, **keys}
    return translate([Document({**BASE, trainer: section}, {(): "file"})], TRAINERS[trainer], "run")


def resolved(trainer: str, **keys: Any) -> RunConfig:
    return config_of(translated(trainer, **keys))


def plain(trainer: str, **keys: Any) -> dict[str, Any]:
    config = resolved(trainer, **keys)
    found = config.model_dump(mode="json")
    return found | {"algorithm": config.algorithm.model_dump(mode="json")}


def at(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


def test_madpo_is_one_step_on_all_tasks_with_the_published_defaults() -> None:
    config = resolved("madpo")
    preference = config.algorithm.credit
    assert config.rollout.samples == (80,)
    assert (preference.select, preference.pairs, preference.beta) == ("reward_gap", 16, 0.1)
    assert (config.algorithm.epochs, preference.batch_size) == (3, 2)
    assert (config.train.steps, config.train.tasks_per_step) == (1, "all")


def test_an_iteration_of_madpo_is_a_step_that_compares_two_halves() -> None:
    config = resolved("madpo_iter")
    preference = config.algorithm.credit
    assert config.rollout.samples == (40,), "20 of each side"
    assert (preference.compare, preference.select) == ("halves", "comparator_reward")
    assert (preference.pairs, preference.replay.mode) == (4, "current")
    assert (config.train.steps, config.train.tasks_per_step) == (6, "all")
    assert config.evaluation.every == 1


def test_marlhf_learns_a_reward_and_then_plays_its_epochs() -> None:
    config = resolved("marlhf")
    learnt = config.reward_model
    assert (learnt.samples, learnt.select, learnt.pairs) == (80, "reward_gap", 16)
    assert (learnt.epochs, learnt.batch_size, learnt.iterations) == (1, 1, 1)
    assert learnt.optimizer.learning_rate == 1e-5
    assert (config.algorithm.name, config.rollout.samples) == ("magrpo", (4,))
    assert (config.train.epochs, config.train.tasks_per_step) == (3, 2)


def test_marlhf_iter_learns_the_reward_again_in_every_iteration() -> None:
    config = resolved("marlhf_iter", num_iterations=4)
    learnt = config.reward_model
    assert (learnt.samples, learnt.compare, learnt.select) == (40, "halves", "comparator_reward")
    assert (learnt.epochs, learnt.iterations, config.train.epochs) == (2, 4, 12)


MADPO, MARLHF = "algorithm.credit", "reward_model"
BOTH = {
    "preference_num_candidates": (6, {"madpo": ("rollout.samples", [6]),
                                      "marlhf": ("reward_model.samples", 6)}),
    "preference_pairs_per_sample": (3, {"madpo": (f"{MADPO}.pairs", 3),
                                        "marlhf": (f"{MARLHF}.pairs", 3)}),
    "pair_selection": ("random", {"madpo": (f"{MADPO}.select", "random"),
                                  "marlhf": (f"{MARLHF}.select", "random")}),
    "num_train_epochs": (5, {"madpo": ("algorithm.epochs", 5), "marlhf": ("train.epochs", 5)}),
    "train_batch_size": (1, {"madpo": (f"{MADPO}.batch_size", 1),
                             "marlhf": ("train.tasks_per_step", 1)}),
    "rollout_buffer_size": (6, {"madpo": (f"{MADPO}.batch_size", 6),
                                "marlhf": ("train.tasks_per_step", 6)}),
    "collaboration_mode": ("centralized", {
        "madpo": ("centralized.tags", {"helper": "auxiliary", "main": "main"}),
        "marlhf": ("team", {"joint": {
            "policy": ["joint"], "teacher": None, "system": None, "decode": None,
            "tools": []}})}),
    "dpo_beta": (0.3, {"madpo": (f"{MADPO}.beta", 0.3)}),
    "rl_algorithm": ("maac", {"marlhf": ("algorithm.credit.kind", "critic")}),
    "reward_model_name": ("other/model", {"marlhf": ("models.reward.path", "other/model")}),
    "reward_model_device": ("cpu", {"marlhf": ("models.reward.device", "cpu")}),
    "reward_learning_rate": (1e-4, {"marlhf": ("reward_model.optimizer.learning_rate", 1e-4)}),
    "reward_num_train_epochs": (7, {"marlhf": ("reward_model.epochs", 7)}),
    "reward_train_batch_size": (7, {"marlhf": ("reward_model.batch_size", 7)}),
    "reward_freeze_backbone": (True, {"marlhf": ("reward_model.train", "head")}),
}  # fmt: skip
"""Key -> (a value, trainer -> (the key of Motet, its value))."""
LATER = {
    "num_iterations": (3, {"madpo_iter": ("train.steps", 3), "marlhf_iter": ("train.epochs", 9)}),
    "comparator_num_candidates": (5, {"madpo_iter": ("rollout.samples", [10]),
                                      "marlhf_iter": ("reward_model.samples", 10)}),
}  # fmt: skip
CASES = [
    (trainer, key, value, *gives)
    for key, (value, of) in (BOTH | LATER).items()
    for trainer, gives in of.items()
]


@pytest.mark.parametrize(("trainer", "key", "value", "path", "expected"), CASES)
def test_a_key_changes_what_it_says_it_changes(trainer, key, value, path, expected) -> None:
    assert at(plain(trainer, **{key: value}), path) == expected
    before = plain(trainer)
    if path.split(".")[0] in before and "models" not in path and "centralized" not in path:
        assert at(before, path) != expected


def test_every_key_that_goes_somewhere_has_a_case() -> None:
    for trainer in NAMES:
        own = {
            key.removeprefix("trainer.")
            for key, rule in keys_of_preferences(trainer).items()
            if isinstance(rule, Renamed | Combined) and key not in KEYS and key not in CRITIC_KEYS
        }
        replay = {name for name in own if name.startswith("preference_replay")}
        assert len(replay) == (4 if trainer in ITERATIVE else 0)
        comparators = {key.removeprefix("trainer.") for key in comlrl_comparators.KEYS}
        # `algorithm` is in comlrl_travel_test.py
        assert own - replay - comparators <= {*BOTH, *LATER, "algorithm"}


@pytest.mark.parametrize("trainer", ITERATIVE)
def test_replay_is_as_published(trainer) -> None:
    section = MADPO if trainer == "madpo_iter" else MARLHF
    decayed = plain(
        trainer,
        preference_replay_mode="td_lambda",
        preference_replay_lambda=0.8,
        preference_replay_sample_size=264,
    )
    assert at(decayed, f"{section}.replay") == {
        "mode": "lambda_decay", "k": None, "decay": 0.8, "size": 264,
    }  # fmt: skip
    nearest = plain(trainer, preference_replay_mode="recent_k", preference_replay_k=2)
    assert at(nearest, f"{section}.replay.k") == 2


def test_null_pairs_are_all_pairs() -> None:
    assert at(plain("marlhf", preference_pairs_per_sample=None), f"{MARLHF}.pairs") is None
    everything = plain("madpo", preference_pairs_per_sample=None, pair_selection="all")
    assert at(everything, f"{MADPO}.select") == "all"


@pytest.mark.parametrize("trainer", NAMES)
def test_all_pairs_need_no_number_of_pairs(trainer) -> None:
    section = MADPO if trainer.startswith("madpo") else MARLHF
    everything = plain(trainer, pair_selection="all")
    assert at(everything, f"{section}.select") == "all"
    assert make_config(everything, (), {})
    with pytest.raises(ConfigError) as refused:
        translated(trainer, pair_selection="all", preference_pairs_per_sample=4)
    assert says(
        refused.value,
        f"{trainer}.preference_pairs_per_sample … 4 … null … {trainer}.pair_selection: all",
    )


def test_a_critics_keys_need_an_algorithm_with_a_critic() -> None:
    config = resolved("marlhf", rl_algorithm="iac", critic_learning_rate=3e-4, num_generations=1)
    assert config.critic.optimizer.learning_rate == 3e-4
    notes = translated("marlhf", critic_learning_rate=3e-4).notes
    assert "marlhf.critic_learning_rate is for an rl_algorithm with a critic" in notes


@pytest.mark.parametrize("trainer", NAMES)
def test_a_key_without_effect_is_told(trainer) -> None:
    told = {
        key: rule for key, rule in keys_of_preferences(trainer).items() if key not in KEYS
        and key not in CRITIC_KEYS and isinstance(rule, NoEffect)
    }  # fmt: skip
    assert told
    for key, rule in told.items():
        name = key.removeprefix("trainer.")
        assert [one for one in translated(trainer, **{name: "unheard of"}).notes if rule.why in one]
        for silent in rule.silent:
            assert translated(trainer, **{name: silent}).notes == translated(trainer).notes


@pytest.mark.parametrize("trainer", NAMES)
def test_pairs_are_of_one_turn(trainer) -> None:
    with pytest.raises(ConfigError, match=facts("got 2 … expected 1 … pairs … one turn")):
        translated(trainer, num_turns=2)


def test_the_other_sides_candidates_beyond_the_smaller_number_are_not_played() -> None:
    found = translated("madpo_iter", preference_num_candidates=8, comparator_num_candidates=3)
    assert make_config(found.config.data, (), {}).rollout.samples == (6,)
    assert any(says(note, "both sides … smaller number") for note in found.notes)
