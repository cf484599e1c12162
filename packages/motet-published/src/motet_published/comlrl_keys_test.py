"""Test that every row of the table, in every spelling, changes what it says it changes."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from motet.config.load import make_config
from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published.comlrl_keys import CRITIC_KEYS, GROUP_KEYS, KEYS, SECTIONS
from motet_published.keys import Combined, NoEffect, Renamed, Unsupported, spellings_of
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation
from tests.fixtures.messages import facts

BASE = {
    "model": {"name": "some/model"},
    "dataset": {"name": "some/humaneval", "train_split": "test[9:]"},
}
SECTION = {"num_turns": 2, "num_generations": 3, "num_train_epochs": 1}


def translated(*layers: dict[str, Any], trainer: str = "magrpo") -> Translation:
    first = {**BASE, trainer: SECTION}
    documents = [
        Document(layer, {(): f"layer {number}"}) for number, layer in enumerate((first, *layers))
    ]
    return translate(documents, TRAINERS[trainer], "run")


def reader_of(key: str) -> str:
    """Return a trainer that has this key."""
    return "iac" if key in CRITIC_KEYS else "magrpo"


def motet_config(translation: Translation) -> dict[str, Any]:
    config = make_config(translation.config.data, translation.overrides, translation.config.places)
    plain = config.model_dump(mode="json")
    return plain | {
        "algorithm": config.algorithm.model_dump(mode="json"),
        "runs": str(translation.runs),
    }


def at(config: Any, path: str) -> Any:
    """Return the value at a dotted path; None if there is none."""
    for key in path.split("."):
        if not isinstance(config, dict) or key not in config:
            return None
        config = config[key]
    return config


def written(key: str, trainer: str = "magrpo") -> str:
    """Return the key in the section of a trainer."""
    return re.sub(r"^trainer\.", f"{trainer}.", key)


def layer(key: str, value: Any, trainer: str = "magrpo") -> dict[str, Any]:
    for name in reversed(written(key, trainer).split(".")):
        value = {name: value}
    return value


@dataclass(frozen=True)
class Case:
    """A value of a key, the expected values in Motet's config, and other keys.

    The other keys are set in an earlier layer, or in the same layer as the value.
    """

    value: Any
    gives: dict[str, Any]
    given: dict[str, Any] = field(default_factory=dict)
    together: dict[str, Any] = field(default_factory=dict)


WANDB = {"wandb.enabled": True}
STRINGS, HOUSES = {"dataset.type": "str_build"}, {"dataset.type": "house_build"}
CALLS = {"dataset.type": "bfcl"}
TRIPS = {"dataset.type": "travelplanner"}
TRIP_FILE = {**TRIPS, "dataset.name": __file__}
ATTACKED = {**HOUSES, "task.spider.atk": 4}
CHANGES = {
    "model.name": Case("other/model", {"models.base.path": "other/model"}),
    "agents": Case(
        ["a/a", "b/b"],
        {"models.helper.path": "a/a", "models.main.path": "b/b", "policies.main.model": "main"},
    ),
    "trainer.num_agents": Case(
        3,
        {
            "environment.helpers": 2,
            "team.helper2.policy": ["helper2"],
            "policies.main.train": "full",
        },
    ),
    "model.model_kwargs.torch_dtype": Case("auto", {"models.base.dtype": "bfloat16"}),
    "model.model_kwargs.attn_implementation": Case("eager", {"models.base.attention": "eager"}),
    "model.gradient_checkpointing": Case(True, {"models.base.checkpointing": True}),
    "trainer.agent_devices": Case(["cuda:1"], {"models.base.device": "cuda:1"}),
    "trainer.parallel_training": Case(
        "mp",
        {
            "models.helper.device": "cuda:0",
            "models.main.device": "cuda:1",
            "models.main.path": "some/model",
        },
        together={"trainer.agent_devices": ["cuda:0", "cuda:1"]},
    ),
    "trainer.temperature": Case(0.3, {"decode.temperature": 0.3}),
    "trainer.top_p": Case(0.5, {"decode.top_p": 0.5}),
    "trainer.top_k": Case(20, {"decode.top_k": 20}),
    "trainer.max_new_tokens": Case(77, {"decode.max_new_tokens": 77}),
    "dataset.name": Case("other/mbpp", {"data.train.name": "other/mbpp"}),
    "dataset.train_split": Case("train[:1000]", {"data.train.split": "train[:1000]"}),
    "dataset.eval_split": Case(
        "test[:9]", {"data.eval.split": "test[:9]", "data.eval.name": "some/humaneval"},
    ),
    "dataset.type": Case(
        "tldr",
        {
            "environment.name": "writing",
            "environment.kind": "tldr",
            "team.detail.policy": ["detail"],
        },
    ),
    "trainer.num_turns": Case(3, {"rollout.samples": [3, 3, 3]}),
    "trainer.num_generations": Case(5, {"rollout.samples": [5, 5]}),
    "trainer.joint_mode": Case("cross", {"rollout.pairing": "crossed"}),
    "trainer.handoff": Case("best", {"rollout.expand": "best", "algorithm.pruned": "sibling_mean"}),
    "trainer.early_termination_threshold": Case(-0.2, {"rollout.stop_at_reward": -0.2}),
    "reward_processor.scale_factor": Case(0.5, {"environment.reward.scale": 0.5}),
    "reward_processor.shift": Case(-4, {"environment.reward.shift": -4}),
    "reward_processor.enabled": Case(
        False, {"environment.reward": None}, {"reward_processor.shift": -4},
    ),
    "external.mode": Case("passed", {"environment.feedback.mode": "passed"}),
    "external.sandbox_slice": Case(-2, {"environment.feedback.sandbox_slice": -2}),
    "external.expert_model": Case(
        "claude-x",
        {"expert.model": "claude-x", "expert.base_url": "https://api.anthropic.com/v1",
         "expert.key_variable": "ANTHROPIC_API_KEY"},
        {"external.mode": "expert_edits"},
    ),
    "external.original_prompt": Case(
        False, {"environment.history": "none", "environment.feedback.restate_problem": False},
    ),
    "external.previous_response": Case(
        False, {"environment.history": "none", "environment.feedback.restate_answer": False},
    ),
    "external.memory_mode": Case("last", {"environment.history": "none"}),
    "trainer.learning_rate": Case(3e-6, {"optimizer.learning_rate": 3e-6}),
    "trainer.num_train_epochs": Case(7, {"train.epochs": 7}),
    "trainer.rollout_buffer_size": Case(8, {"train.tasks_per_step": 2}),  # a task has 1 + 3 Rounds
    "trainer.train_batch_size": Case(
        8, {"train.tasks_per_step": 2}, {"trainer.rollout_buffer_size": 16},
    ),
    "trainer.per_device_train_batch_size": Case(5, {"train.tasks_per_step": 5}),
    "trainer.discount": Case(0.9, {"algorithm.gamma": 0.9}),
    "trainer.turn_gradient_weights": Case([1.2, 0.8], {"algorithm.turn_weights": [1.2, 0.8]}),
    "trainer.advantage_normalization": Case(True, {"algorithm.credit.scale": "std"}),
    "trainer.advantage_mode": Case("rloo", {"algorithm.credit.baseline": "leave_one_out"}),
    "trainer.early_termination_weight": Case(
        2.0, {
            "algorithm.stopped_weight": 2.0,
            "algorithm.returns": "current",
            "rollout.expand": "best",
            "rollout.stop_by": "round",
            "rollout.stop_at_reward": 4.0,
            "environment.stop_when_solved": False,
        }
    ),
    "trainer.weight_decay": Case(0.01, {"optimizer.weight_decay": 0.01}),
    "trainer.adam_beta1": Case(0.8, {"optimizer.betas": [0.8, 0.999]}),
    "trainer.adam_beta2": Case(0.98, {"optimizer.betas": [0.9, 0.98]}),
    "trainer.adam_epsilon": Case(1e-6, {"optimizer.epsilon": 1e-6}),
    "trainer.max_grad_norm": Case(0.5, {"optimizer.clip_norm": 0.5}),
    "trainer.reference_kl_coef": Case(
        0.3, {"algorithm.kl.kind": "reward", "algorithm.kl.coefficient": 0.3},
        {"trainer.reference_kl_enabled": True}
    ),
    "trainer.reference_kl_enabled": Case(
        True, {"algorithm.kl.kind": "reward", "algorithm.kl.coefficient": 0.1},
    ),
    "trainer.epsilon_clip": Case(
        0.1, {"algorithm.loss.kind": "clipped_surrogate", "algorithm.loss.clip_high": 0.1},
    ),
    "critic_model.name": Case(
        "other/critic", {"models.critic.path": "other/critic", "critic.model": "critic"},
    ),
    "critics": Case(
        ["c/c", "c/c"], {
            "models.critic.path": "c/c", "critic.model": "critic", "models.critic.device": "auto",
        }
    ),
    "critic_model.model_kwargs.torch_dtype": Case(
        "bfloat16", {
            "models.critic.dtype": "bfloat16",
            "models.critic.path": "some/model",
            "models.base.dtype": "float32",
        }
    ),
    "critic_model.model_kwargs.attn_implementation": Case(
        "eager", {"models.critic.attention": "eager", "models.base.attention": "auto"},
    ),
    "trainer.critic_devices": Case(
        ["cuda:1"], {"models.critic.device": "cuda:1", "critic.model": "critic"},
    ),
    "trainer.use_separate_critic": Case(False, {"critic.train": "policy"}),
    "trainer.critic_learning_rate": Case(3e-4, {"critic.optimizer.learning_rate": 3e-4}),
    "trainer.value_loss_coef": Case(0.6, {"critic.coefficient": 1.2}),
    "trainer.value_clip_range": Case(
        0.3, {"algorithm.credit.clip_value": 0.3}, {"trainer.use_separate_critic": False},
    ),
    "trainer.entropy_coef": Case(0.01, {"algorithm.entropy_coefficient": 0.01}),
    "seed": Case(42, {"seed": 42}),
    "trainer.eval_interval": Case(20, {"evaluation.every": 20}),
    "trainer.eval_num_samples": Case(16, {"evaluation.tasks": 16}),
    "trainer.save_steps": Case(100, {"train.checkpoint_every": 100}),
    "output.base_dir": Case("somewhere/else", {"runs": "somewhere/else"}),
    "wandb.enabled": Case(True, {"report.wandb.project": "p"}, {"wandb.project": "p"}),
    "wandb.project": Case("p", {"report.wandb.project": "p"}, WANDB),
    "wandb.entity": Case("me", {"report.wandb.entity": "me"}, WANDB),
    "wandb.name": Case("first", {"report.wandb.name": "first"}, WANDB),
    "wandb.tags": Case(["a", "b"], {"report.wandb.tags": ["a", "b"]}, WANDB),
    "dataset.csv_path": Case("/data/a.csv", {"data.train.path": "/data/a.csv"}, STRINGS),
    "dataset.json_path": Case("/data/a.json", {"data.train.path": "/data/a.json"}, HOUSES),
    "dataset.spacing": Case(2, {"environment.spacing": 2}, STRINGS),
    "dataset.local_z": Case(1, {"environment.z": 1}, STRINGS),
    "task.block_agent1": Case(
        ["white_wool"],
        {"environment.palettes": [["white_wool"]]},
        {**STRINGS, "trainer.num_agents": 1},
    ),
    "task.block_agent2": Case(
        ["oak_planks"],
        {"environment.palettes": [["white_wool"], ["oak_planks"]]},
        {**STRINGS, "task.block_agent1": ["white_wool"]},
    ),
    "task.max_commands": Case(33, {"environment.max_commands": 33}, HOUSES),
    "task.limited_resource": Case(True, {"environment.limited_resources": True}, HOUSES),
    "task.player.hp": Case(30, {"environment.health": 30}, HOUSES),
    "task.spider.num": Case(3, {"environment.spiders.count": 3}, HOUSES),
    "task.spider.atk_low": Case(1, {"environment.spiders.attack": [1, 4]}, ATTACKED),
    "task.spider.atk_high": Case(9, {"environment.spiders.attack": [4, 9]}, ATTACKED),
    "task.spider.atk": Case(4, {"environment.spiders.attack": [4, 4]}, HOUSES),
    "prompt.provide_graph": Case(True, {"environment.show_target": True}, HOUSES),
    "prompt.include_air_rects": Case(True, {"environment.show_air": True}, HOUSES),
    "external.lim": Case(
        7,
        {"environment.feedback.limit": 7},
        {**HOUSES, "external.mode": "position_feedback"},
    ),
    "dataset.categories": Case(["parallel"], {"environment.categories": ["parallel"]}, CALLS),
    "dataset.task_types": Case("travel", {"environment.task_types": ["travel"]}, CALLS),
    "bfcl.role_mode": Case("odd_even", {"environment.roles": "odd_even"}, CALLS),
    "bfcl_reward.self_duplicate_mode": Case("dedupe", {"environment.score.repeated": 0.0}, CALLS),
    **{
        f"bfcl_reward.{key}": Case(0.5, {f"environment.score.{term}": 0.5}, CALLS)
        for key, term in (
            ("parse_weight", "parsed"), ("function_weight", "names"), ("exact_bonus", "exact"),
            ("argument_weight", "arguments"), ("count_weight", "count"), ("max_reward", "highest"),
            ("balance_weight", "balance"), ("min_reward", "lowest"),
            ("sequence_function_weight", "names"), ("sequence_argument_weight", "arguments"),
            ("sequence_order_weight", "order"), ("sequence_prefix_weight", "prefix"),
            ("sequence_count_weight", "count"), ("sequence_balance_weight", "balance"),
            ("sequence_exact_bonus", "exact"),
        )
    },
    **{
        f"bfcl_reward.{key}": Case(0.5, {f"environment.score.{term}": -0.5}, CALLS)
        for key, term in (
            ("overlap_penalty", "overlap"), ("lazy_agent_penalty", "silent"),
            ("extra_call_penalty", "extra"), ("self_duplicate_penalty", "repeated"),
            ("sequence_overlap_penalty", "overlap"), ("sequence_lazy_agent_penalty", "silent"),
            ("sequence_extra_call_penalty", "extra"),
        )
    },
    "dataset.config_name": Case("train", {"data.train.subset": "train"}, TRIPS),
    "dataset.source_split": Case("train", {"data.train.split": "train"}, TRIPS),
    "dataset.filters.days": Case([3, 5], {"environment.days": [3, 5]}, TRIPS),
    "dataset.filters.levels": Case("easy", {"environment.levels": ["easy"]}, TRIPS),
    "dataset.filters.visiting_city_numbers": Case([1], {"environment.cities": [1]}, TRIPS),
    "dataset.train_samples": Case(5, {"data.train.split": "validation[:5]"}, TRIP_FILE),
    "dataset.eval_samples": Case(5, {"data.eval.split": "validation[16:21]"}, TRIP_FILE),
    "travel.system_prompt": Case("Plan.", {"team.logistics.system": "Plan."}, TRIPS),
    "travel.normalize_value_log_probs": Case(
        True, {"algorithm.reduce": "sequence_mean"}, TRIPS
    ),
    **{
        f"travel_reward.{key}": Case(0.5, {f"environment.weights.{term}": 0.5}, TRIPS)
        for key, term in (
            ("protocol_progress_weight", "form"), ("recovered_semantic_weight", "recovered"),
            ("action_validity_weight", "valid"), ("team_action_weight", "team_valid"),
            ("strict_balance_weight", "balance"), ("strict_quality_weight", "quality"),
            ("strict_grounding_weight", "grounded"), ("budget_pass_bonus", "in_budget"),
            ("commonsense_macro_bonus", "all_sensible"), ("hard_macro_bonus", "all_wished"),
            ("final_success_bonus", "success"), ("assignment_coverage_weight", "plan.coverage"),
            ("required_grounded_weight", "plan.grounded"), ("grounding_f1_weight", "plan.f1"),
            ("commonsense_weight", "plan.sensible"), ("hard_constraint_weight", "plan.wished"),
            ("grounding_support_floor", "plan.floor"), ("min_reward", "lowest"),
            ("max_reward", "highest"),
        )
    },
    **{
        f"travel_reward.{key}": Case(0.5, {f"environment.weights.{term}": -0.5}, TRIPS)
        for key, term in (
            ("invalid_action_penalty", "wrong"), ("conflict_penalty", "conflict"),
            ("overlap_penalty", "overlap"), ("reference_copy_penalty", "copied"),
            ("overlong_penalty", "long"),
        )
    },
}  # fmt: skip


ALL_KEYS = {**KEYS, **GROUP_KEYS, **CRITIC_KEYS}


def spelt(kind: type | tuple[type, ...], keys: Any = ALL_KEYS) -> list[Any]:
    return [
        pytest.param(key, spelling, id=spelling)
        for key, rule in keys.items()
        if isinstance(rule, kind)
        for spelling in spellings_of(key, rule, SECTIONS)
    ]


def test_every_row_that_goes_somewhere_has_a_case_and_every_spelling_is_one_rows():
    named = {key for key, rule in ALL_KEYS.items() if isinstance(rule, Renamed | Combined)}
    assert named == set(CHANGES)
    spellings = [param.id for param in spelt((Renamed, Combined, NoEffect, Unsupported))]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(("key", "spelling"), spelt((Renamed, Combined)))
def test_a_key_changes_what_it_says_it_changes_under_every_spelling(key, spelling):
    case, trainer = CHANGES[key], reader_of(key)
    given = [layer(key, value, trainer) for key, value in case.given.items()]
    before = motet_config(translated(*given, trainer=trainer))
    together = [layer(key, value, trainer) for key, value in case.together.items()]
    after = motet_config(
        translated(*given, *together, layer(spelling, case.value, trainer), trainer=trainer)
    )
    assert {path: at(after, path) for path in case.gives} == case.gives
    assert any(at(before, path) != at(after, path) for path in case.gives)
    assert before["runs"] == "runs"


@pytest.mark.parametrize(("key", "spelling"), spelt(NoEffect))
def test_a_key_that_nothing_hangs_on_is_told_and_changes_nothing(key, spelling):
    rule, trainer = ALL_KEYS[key], reader_of(key)
    with_key = translated(layer(spelling, "unheard of", trainer), trainer=trainer)
    assert [note for note in with_key.notes if rule.why in note]
    assert motet_config(with_key) == motet_config(translated(trainer=trainer))
    for value in rule.silent:
        assert translated(layer(spelling, value, trainer), trainer=trainer).notes == ()


@pytest.mark.parametrize(("key", "spelling"), spelt(Unsupported))
def test_what_cannot_be_done_is_refused_and_says_why(key, spelling):
    rule, trainer = ALL_KEYS[key], reader_of(key)
    place = f"layer 1: {written(spelling, trainer)}: {rule.why}"
    for value in (True, 2.0, "auto", {"name": "some/model"}):
        with pytest.raises(ConfigError, match=re.escape(place)):
            translated(layer(spelling, value, trainer), trainer=trainer)
    for value in rule.allowed:
        with_key = translated(layer(spelling, value, trainer), trainer=trainer)
        assert motet_config(with_key) == motet_config(translated(trainer=trainer))


@pytest.mark.parametrize(
    ("key", "spelling"), spelt((Renamed, Combined, NoEffect, Unsupported), CRITIC_KEYS)
)
def test_a_critics_key_is_refused_by_trainers_without_one(key, spelling):
    with pytest.raises(
        ConfigError,
        match=facts(f"layer 1 … {written(spelling)} … magrpo has no critic … drop it"),
    ):
        translated(layer(spelling, 0.5))
    assert motet_config(translated(layer(spelling, None))) == motet_config(translated())


# ----------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("value", [0, None, "all"])
def test_a_slice_of_no_size_is_all_tests_and_then_they_all_grade(value):
    feedback = at(
        motet_config(translated(layer("external.sandbox_slice", value))), "environment.feedback"
    )
    assert feedback == {"sandbox_slice": "all", "grade_shown": True}


def test_every_published_word_for_a_choice_is_known():
    pairings = {"align": "aligned", "aligned": "aligned", "cross": "crossed", "crossed": "crossed"}
    for word, pairing in pairings.items():
        assert (
            at(motet_config(translated(layer("trainer.joint_mode", word))), "rollout.pairing")
            == pairing
        )
    assert at(motet_config(translated(layer("trainer.top_k", None))), "decode.top_k") == 0
    assert (
        at(
            motet_config(translated(layer("trainer.normalize_advantage", False))),
            "algorithm.credit.scale",
        )
        == "none"
    )


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "trainer.num_turns",
            0,
            "layer 1 … magrpo.num_turns … 0 … whole number … at least 1",
        ),
        (
            "trainer.joint_mode",
            "both",
            "'both' … align, aligned, cross, crossed",
        ),
        ("trainer.handoff", ["best"], "best, random"),
        ("external.sandbox_slice", "some", "external.sandbox_slice … 'some' … whole number … all"),
        ("model.torch_dtype", "int8", "model.torch_dtype … 'int8' … float32"),
        ("wandb.enabled", "yes", "expected true or false"),
        ("agents", [1], "agents … 1 … a string … list of strings"),
        ("dataset.name", 5, "expected a string"),
        ("dataset.eval_split", "test[", "layer 1 … dataset.eval_split … 'test['"),
        ("external.mode", "bandit", "layer 1 … external.mode … 'bandit' … plain"),
        ("trainer.max_grad_norm", 0, "a number above 0 … always clipped"),
        (
            "trainer.eval_interval",
            -1,
            "magrpo.eval_interval … -1 … whole number … at least 0",
        ),
    ],
)
def test_a_value_that_cannot_be_read_names_its_key_and_place(key, value, message):
    with pytest.raises(ConfigError, match=facts(message)):
        translated(layer(key, value))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "trainer.agent_learning_rate",
            -1,
            "layer 1 … magrpo.agent_learning_rate … optimizer.learning_rate … -1",
        ),
        (
            "trainer.save_steps",
            -1,
            "layer 1 … magrpo.save_steps … train.checkpoint_every … -1",
        ),
        (
            "trainer.weight_decay",
            "much",
            "layer 1 … magrpo.weight_decay … optimizer.weight_decay … 'much' … a number",
        ),
    ],
)
def test_motets_own_complaint_about_a_value_names_the_key_as_it_was_written(key, value, message):
    with pytest.raises(ConfigError, match=facts(message)):
        motet_config(translated(layer(key, value)))
