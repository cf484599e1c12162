"""Test the published keys of the Travel experiments, and the files that extend others."""

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from motet.config.schema import RunConfig
from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published.command import config_of, translated_from
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation
from tests.fixtures.messages import facts, says

BASE = """\
agent_model: {name: some/model}
dataset: {name: osunlp/TravelPlanner, config_name: validation, source_split: validation,
  filters: {days: [3, 5], levels: [easy]}, train_samples: 60, eval_samples: 20}
travel: {role_mode: partitioned_roles, system_prompt: Plan., normalize_value_log_probs: true}
travel_reward: {strict_balance_weight: 0.14, invalid_action_penalty: 0.1}
magrpo: {num_train_epochs: 25, num_generations: 4, rollout_buffer_size: 10}
"""
MAPL = """\
extends: base.yaml
mapl:
  agent_devices: [cuda:0, cuda:0]
  num_agents: 2
  rollout_buffer_size: 10
  train_batch_size: 10
  preference_num_candidates: 20
  preference_pairs_per_sample: 6
  dpo_beta: 0.1
"""
ITERATED = """\
extends: mapl.yaml
algorithm: madpo_iter
mapl: {num_iterations: 7, num_train_epochs: 1, pair_selection: comparator_reward,
  comparator_policy: current_copy, comparator_devices: [cuda:0, cuda:0],
  preference_replay_mode: lambda_decay, preference_replay_lambda: 0.8}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in (("base", BASE), ("mapl", MAPL), ("iter", ITERATED)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def read(path: Path, trainer: str, *overrides: str) -> Translation:
    none = dict.fromkeys(
        ("model_name", "output_base_dir", "num_epochs", "num_turns", "turn_gradient_weights")
    )
    return translated_from(
        trainer, argparse.Namespace(config=path, override=list(overrides), **none)
    )


def translated(**sections: Any) -> RunConfig:
    data = {
        "agent_model": {"name": "some/model"},
        "dataset": {"name": "osunlp/TravelPlanner"},
        "magrpo": {"num_train_epochs": 1},
        **sections,
    }
    return config_of(translate([Document(data, {(): "file"})], TRAINERS["magrpo"], "run"))


def test_a_mapl_config_is_madpo_with_its_candidates_pairs_and_iterations(files: Path) -> None:
    config = config_of(read(files / "iter.yaml", "madpo_iter"))
    pairs = config.algorithm.credit
    assert config.rollout.samples == (40,), "20 of each side"
    assert (pairs.compare, pairs.select, pairs.pairs) == ("halves", "comparator_reward", 6)
    assert (pairs.beta, pairs.batch_size, pairs.replay.decay) == (0.1, 10, 0.8)
    assert (config.train.steps, config.train.tasks_per_step) == (7, "all")
    assert config.algorithm.reduce == "sequence_mean"
    assert config.models["base"].device == "cuda:0", "both agents on one device"
    assert config.environment.name == "travel_plan"
    assert config.environment.options["days"] == [3, 5]
    assert config.environment.options["weights"] == {"balance": 0.14, "wrong": -0.1}
    assert config.team["experience"].system == "Plan."


def test_a_file_that_another_one_extends_may_be_for_magrpo(files: Path) -> None:
    config = config_of(read(files / "base.yaml", "magrpo"))
    assert (config.algorithm.name, config.rollout.samples) == ("magrpo", (4,))
    assert config.train.tasks_per_step == 10
    with pytest.raises(ConfigError, match=facts("magrpo … use train_magrpo.py")):
        read(files / "base.yaml", "madpo")


def test_an_override_replaces_what_the_lowest_file_says(files: Path) -> None:
    config = read(files / "iter.yaml", "madpo_iter", "mapl.dpo_beta=0.2", "seed=42")
    assert config_of(config).algorithm.credit.beta == 0.2
    assert config_of(config).seed == 42


def test_a_config_of_another_trainer_is_refused(files: Path) -> None:
    (files / "other.yaml").write_text("extends: mapl.yaml\nalgorithm: madpo_iter\n")
    with pytest.raises(ConfigError, match=facts("algorithm … madpo_iter … train_madpo.py")):
        read(files / "other.yaml", "madpo")


@pytest.mark.parametrize("base", ["iter.yaml", "mapl.yaml", 3])
def test_a_file_does_not_extend_itself(files: Path, base: str | int) -> None:
    (files / "mapl.yaml").write_text(f"extends: {base}\n")
    with pytest.raises(ConfigError, match=facts("extends … expected the path of a file")):
        read(files / "iter.yaml", "madpo_iter")


def test_the_rows_of_the_other_subset_are_held_out() -> None:
    data = translated().data
    assert (data.train.subset, data.train.split) == ("validation", "validation")
    assert (data.eval.subset, data.eval.split) == ("train", "train")
    assert translated(magrpo={"num_train_epochs": 1, "eval_num_samples": 0}).data.eval is None


def test_a_file_is_divided(tmp_path: Path) -> None:
    file = tmp_path / "travelplanner.jsonl"
    file.write_text("{}")
    data = {
        "agent_model": {"name": "some/model"},
        "dataset": {"name": str(file), "train_samples": 6, "eval_samples": 2},
        "magrpo": {"num_train_epochs": 1},
    }
    config = translate([Document(data, {(): "file"})], TRAINERS["magrpo"], "run")
    found = config_of(config).data
    assert found.train.split == "validation[:6]"
    assert found.eval.split == "validation[6:8]"
    assert any(says(note, "first 6 rows … next 2 … random") for note in config.notes)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"dataset": {"name": "some/humaneval", "train_split": "test", "train_samples": 3}},
     "dataset.train_samples: it is for travelplanner, got humaneval"),
    ({"travel": {"role_mode": "soft_roles"}}, "each agent has slots of its own"),
    ({"magrpo": {"num_train_epochs": 1, "num_agents": 3}}, "expected 2, because a plan has two"),
]  # fmt: skip


@pytest.mark.parametrize(("sections", "message"), REFUSED)
def test_what_does_not_fit_is_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        translated(**sections)
