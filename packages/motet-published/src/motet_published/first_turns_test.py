"""The multi-turn files of CoMLRL's first trainers, with their keys."""

import pytest

from motet.algorithms import check_plan
from motet.config.load import make_config
from motet.config.schema import check_trainable
from motet.config.yaml import Document, read_yaml
from motet_published.translate import TRAINERS, translate
from tests.fixtures.messages import says

FIRST = """\
model: {name: Qwen/Qwen2.5-Coder-3B, type: qwen, temperature: 0.7, top_p: 0.9, max_length: 2048}
dataset:
  name: openai/openai_humaneval
  type: humaneval
  train_split: "test[33:133]"
  eval_split: "test[:32]"
magrpo:
  num_turns: 2
  num_train_epochs: 7
  per_device_train_batch_size: 1
  learning_rate: 1.0e-5
  num_generations: 4
  max_new_tokens: 256
  beta: 0.02
  turn_gradient_weights: [1.2, 0.8]
  num_turns: 2
  expert_model: deepseek-coder
  early_termination_weight: 2.0
agents: {num_agents: 2}
"""
"""The keys of the oldest files: an expert, and one key said twice."""
LATER = """\
model: {name: Qwen/Qwen2.5-Coder-3B, type: qwen, temperature: 0.7, top_p: 0.9}
dataset:
  name: CoMLRL/CoopHumanEval
  type: coophumaneval
  train_split: "test[16:]"
  eval_split: "test[:16]"
external: {mode: level_feedback, sandbox_slice: 1, original_prompt: true, previous_response: true}
grpo:
  num_turns: 2
  num_train_epochs: 8
  per_device_train_batch_size: 1
  learning_rate: 2.0e-5
  num_generations: 4
  temperature: 0.8
  top_p: 0.95
  handoff: random
  turn_gradient_weights: [1.2, 0.8]
  early_termination_weight: 2.0
  early_termination_threshold: 2.1
"""
"""The keys of the files between: feedback by mode, a random hand-off, and the reward to stop at."""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for variable in ("DEEPSEEK_API_KEY", "ANTHROPIC_API_KEY", "DASHSCOPE_API_KEY"):
        monkeypatch.delenv(variable, raising=False)


def translated(text, tmp_path, trainer="magrpo", **override):
    file = tmp_path / "mt.yaml"
    file.write_text(text)
    layers = [read_yaml(file, last_counts=True)]
    layers += [Document({trainer: override}, {(): "override"})] if override else []
    return translate(layers, TRAINERS[trainer], "mt")


def resolved(translation):
    config = make_config(translation.config.data, translation.overrides, translation.config.places)
    check_trainable(config)
    return config


def test_the_oldest_files_go_on_with_the_best_sample_and_stop_at_the_termination_reward(tmp_path):
    config = resolved(translated(FIRST, tmp_path))
    plan, algorithm = config.rollout, config.algorithm
    assert (plan.samples, plan.expand) == ((4, 4), "best")
    assert (plan.stop_at_reward, plan.stop_by) == (4.0, "round")
    assert (algorithm.turn_weights, algorithm.stopped_weight) == ((1.2, 0.8), 2.0)
    assert algorithm.returns == "current"
    assert algorithm.kl is None
    assert config.environment.options["stop_when_solved"] is False
    assert config.train.tasks_per_step == 1
    check_plan(algorithm, plan, 2)


def test_the_expert_is_asked_where_its_key_is(tmp_path, monkeypatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "secret")
    translation = translated(FIRST, tmp_path)
    config = resolved(translation)
    assert config.environment.options["feedback"]["mode"] == "expert_edits"
    assert (config.expert.model, config.expert.key_variable) == (
        "deepseek-coder",
        "DEEPSEEK_API_KEY",
    )
    assert not [note for note in translation.notes if "the expert" in note]


def test_without_an_expert_agents_read_level_feedback_and_a_note_says_what_differs(tmp_path):
    translation = translated(FIRST, tmp_path)
    config = resolved(translation)
    assert config.expert is None
    assert "mode" not in config.environment.options.get("feedback", {})
    (note,) = [note for note in translation.notes if "the expert" in note]
    assert says(note, "DEEPSEEK_API_KEY … not set … level_feedback")


def test_a_file_without_a_name_asks_the_default_of_its_time(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    config = resolved(translated(FIRST.replace("  expert_model: deepseek-coder\n", ""), tmp_path))
    assert config.expert.model == "claude-3-5-sonnet-20241022"


def test_a_key_said_twice_counts_the_last_time_with_a_warning(tmp_path):
    twice = FIRST.replace("num_turns: 2", "num_turns: 5", 1)
    translation = translated(twice, tmp_path)
    assert resolved(translation).rollout.samples == (4, 4)
    assert any(
        says(note, "mt.yaml:16: magrpo.num_turns … twice … line 8 … last")
        for note in translation.notes
    )


def test_the_files_between_keep_their_hand_off_their_feedback_and_their_reward(tmp_path):
    translation = translated(LATER, tmp_path, "grpo")
    config = resolved(translation)
    assert config.rollout.expand == "random"
    assert (config.rollout.stop_at_reward, config.rollout.stop_by) == (2.1, "round")
    assert config.algorithm.stopped_weight == 2.0
    assert config.environment.options["feedback"]["mode"] == "level_feedback"
    assert config.expert is None
    assert not [note for note in translation.notes if "early_termination" in note]


def test_one_agent_stops_at_the_most_that_it_can_earn(tmp_path):
    alone = LATER.replace("  early_termination_threshold: 2.1\n", "")
    assert resolved(translated(alone, tmp_path, "grpo")).rollout.stop_at_reward == 2.1


def test_an_override_takes_the_weight_back(tmp_path):
    config = resolved(translated(FIRST, tmp_path, early_termination_weight=None))
    assert config.algorithm.stopped_weight == 1.0
    assert (config.rollout.expand, config.rollout.stop_at_reward) == ("all", None)


def test_where_one_turn_is_played_or_nothing_stops_the_weight_has_no_effect(tmp_path):
    once = translated(FIRST, tmp_path, num_turns=1, turn_gradient_weights=[1.0])
    assert resolved(once).algorithm.stopped_weight == 1.0
    assert "magrpo.early_termination_weight is for several turns" in once.notes
    never = translated(FIRST, tmp_path, early_termination_threshold=None)
    assert resolved(never).algorithm.stopped_weight == 1.0
    assert resolved(never).rollout.expand == "best"
    assert "magrpo.early_termination_weight needs early_termination_threshold" in never.notes
