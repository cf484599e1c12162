"""Test every row of MAPoRL's table in every spelling, and rows that are translated together."""

import re
from pathlib import Path
from typing import Any

import pytest

from motet.config.load import make_config
from motet.config.yaml import Document
from motet.errors import ConfigError
from motet_published.keys import Combined, NoEffect, Renamed, Unsupported
from motet_published.maporl_keys import KEYS
from motet_published.translate import TRAINERS, translate
from motet_published.translation import Translation
from tests.fixtures.messages import facts, says

BASE = {
    "dataset_name": "GSM8k",
    "base_model": "some/model",
    "agent_num": 2,
    "round_num": 2,
    "per_device_train_batch_size": 1,
    "no_reward_model": True,
}
SERVER = {"no_reward_model": False, "server_dict": {"some/model": "http://there:8501/predict"}}


def translated(*layers: dict[str, Any]) -> Translation:
    """Translate layers whose keys may be dotted."""
    documents = [
        Document(written(layer), {(): f"layer {number}"})
        for number, layer in enumerate((BASE, *layers))
    ]
    return translate(documents, TRAINERS["maporl"], "run")


def written(layer: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in layer.items():
        section, dot, name = key.partition(".")
        if dot:
            out.setdefault(section, {})[name] = value
        else:
            out[key] = value
    return out


def resolved(*layers: dict[str, Any]) -> Any:
    found = translated(*layers)
    return make_config(found.config.data, found.overrides, found.config.places)


def plain(*layers: dict[str, Any]) -> dict[str, Any]:
    found = translated(*layers)
    config = make_config(found.config.data, found.overrides, found.config.places)
    algorithm = config.algorithm.model_dump(mode="json")
    return config.model_dump(mode="json") | {"algorithm": algorithm, "runs": str(found.runs)}


def at(config: Any, path: str) -> Any:
    for key in path.split("."):
        if not isinstance(config, dict) or key not in config:
            return None
        config = config[key]
    return config


DIFFERENT: dict[str, Any] = {
    "diff_model_training": True,
    "another_policy_base_model": ["other/model"],
}
CHANGES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "base_model": ("b/b", {"models.base.path": "b/b"}, {}),
    "sft_model_path": ("tuned", {"models.base.path": "tuned"}, {}),
    "agent_num": (3, {"environment.agents": 3, "team.carol.policy": ["debater"]}, {}),
    "diff_model_training": (
        True,
        {
            "models.bob.path": "other/model",
            "policies.bob_debater.model": "bob",
            "team.bob.policy": ["bob_debater"],
        },
        {"another_policy_base_model": ["other/model"]},
    ),
    "another_policy_base_model": (
        ["c/c"], {"models.bob.path": "c/c", "models.alice.path": "some/model"}, DIFFERENT,
    ),
    "another_policy_sft_model_path": (["tuned"], {"models.bob.path": "tuned"}, DIFFERENT),
    "policy_separation": (
        True, {"team.bob.policy": ["turn1", "turn2"], "policies.turn2.train": "lora"}, {},
    ),
    "collaboration_separation": (
        True, {"team.bob.policy": ["first", "later"]}, {"policy_separation": True},
    ),
    "task_training": (
        False,
        {"policies.turn1.train": "frozen", "policies.turn2.train": "lora"},
        {"policy_separation": True},
    ),
    "peft": (False, {"policies.debater.train": "full", "critic.train": "full"}, {}),
    "peft_config.r": (32, {"policies.debater.lora.rank": 32, "critic.lora.rank": 32}, {}),
    "peft_config.lora_alpha": (
        64, {"policies.debater.lora.alpha": 64, "critic.lora.alpha": 64}, {},
    ),
    "peft_config.target_modules": (["q_proj"], {"policies.debater.lora.targets": ["q_proj"]}, {}),
    "bf16": (True, {"models.base.dtype": "bfloat16"}, {}),
    "fp16": (True, {"models.base.dtype": "float16"}, {}),
    "load_in_8bit": (True, {"models.base.quantize": "8bit"}, {}),
    "load_in_4bit": (True, {"models.base.quantize": "4bit"}, {}),
    "dataset_name": (
        "ANLI", {"environment.dataset": "anli", "data.train.name": "facebook/anli"}, {},
    ),
    "round_num": (3, {"rollout.samples": [1, 1, 1]}, {}),
    "no_reward_model": (True, {"environment.score": "exact", "verifier": None}, SERVER),
    "reward_feedback": (True, {"environment.show_scores": "verifier"}, SERVER),
    "server_dict": (
        {"some/model": "http://here:1/predict"},
        {"verifier.base_url": "http://here:1"},
        {"no_reward_model": False},
    ),
    "non_box_penalty": (True, {"environment.format_penalty": 10}, {"penalty_reward_value": -10}),
    "penalty_reward_value": (-0.5, {"environment.format_penalty": 0.5}, {"non_box_penalty": True}),
    "non_eos_penalty": (
        True,
        {"environment.bad_form_score": -10, "environment.format_penalty": None},
        {"penalty_reward_value": -10, "non_box_penalty": True},
    ),
    "min_output_length": (
        50,
        {"environment.bad_form_score": -10, "environment.min_length": 50},
        {"penalty_reward_value": -10, "non_box_penalty": True},
    ),
    "value_simplification": (True, {"algorithm.credit.view": "first"}, {}),
    "criteria_for_consensus_percentage": (
        0.5, {"environment.consensus.share": 1.0, "environment.consensus.score": 0.7}, {}
    ),
    "criteria_for_consensus_reward_threshold": (0.9, {"environment.consensus.score": 0.9}, {}),
    "max_output_length": (50, {"decode.max_new_tokens": 50}, {}),
    "temperature": (1.0, {"decode.temperature": 1.0}, {}),
    "alpha": (
        [1, 2, 3, 0.5],
        {
            "algorithm.incentives": {
                "alphas": "code", "alpha0": 1.0, "alpha1": 2.0, "beta0": 3.0, "beta1": 0.5,
            },
            "name": "run_alpha_1_2_3_0.5",
        },
        {},
    ),
    "rule_horizon": ("last", {"algorithm.returns": "last"}, {}),
    "rule_agent_share": ("individual", {"algorithm.reward_sharing": "own"}, {}),
    "rule_discount": (0.9, {"algorithm.gamma": 0.9}, {}),
    "turn_based_training": (
        True, {"schedule": {"kind": "turns", "block": 40, "first_turn_steps": 20}}, {}
    ),
    "turn_based_training_num": (5, {"schedule.block": 5}, {"turn_based_training": True}),
    "update_initial_turn": (3, {"schedule.first_turn_steps": 3}, {"turn_based_training": True}),
    "num_ppo_epochs": (2, {"algorithm.epochs": 2}, {}),
    "num_mini_batches": (2, {"algorithm.minibatches": 2, "train.tasks_per_step": 2}, {}),
    "per_device_train_batch_size": (3, {"train.tasks_per_step": 24}, {}),
    "gradient_accumulation_steps": (4, {"train.tasks_per_step": 32}, {}),
    "total_episodes": (800, {"train.steps": 100, "train.epochs": None}, {}),
    "num_train_epochs": (1, {"train.epochs": 1}, {}),
    "vf_coef": (0.5, {"critic.coefficient": 0.5}, {}),
    "kl_coef": (0.0, {"algorithm.kl": None}, {}),
    "cliprange": (0.1, {"algorithm.loss.clip_low": 0.1, "algorithm.loss.clip_high": 0.1}, {}),
    "cliprange_value": (0.4, {"algorithm.credit.clip_value": 0.4}, {}),
    "lam": (1.0, {"algorithm.credit.gae_lambda": 1.0}, {}),
    "learning_rate": (3e-5, {"optimizer.learning_rate": 3e-5}, {}),
    "warmup_steps": (10, {"optimizer.warmup_steps": 10}, {}),
    "adam_beta1": (0.8, {"optimizer.betas": [0.8, 0.99]}, {"adam_beta1": 0.9, "adam_beta2": 0.99}),
    "adam_beta2": (0.99, {"optimizer.betas": [0.9, 0.99]}, {"adam_beta1": 0.9, "adam_beta2": 0.95}),
    "random_seed": (42, {"seed": 42}, {}),
    "local_rollout_forward_batch_size": (12, {"train.rows_per_batch": 12}, {}),
    "eval_steps": (300, {"evaluation.every": 300}, {}),
    "test_len": (100, {"evaluation.tasks": 100}, {}),
    "save_steps": (100, {"train.checkpoint_every": 100}, {}),
    "output_dir": ("out/mine", {"name": "mine", "runs": "out"}, {}),
    "report_to": ("wandb", {"report.wandb.project": "motet", "report.tensorboard": False}, {}),
    "run_name": ("first", {"report.wandb.name": "first"}, {"report_to": "wandb"}),
}  # fmt: skip
"""Key -> (value, expected values in Motet's config, other keys to set)."""


def keys_of(kind: type | tuple[type, ...]) -> list[str]:
    return [key for key, rule in KEYS.items() if isinstance(rule, kind)]


def test_every_row_that_goes_somewhere_has_a_case():
    assert set(keys_of((Renamed, Combined))) == set(CHANGES)


@pytest.mark.parametrize("key", keys_of((Renamed, Combined)))
def test_a_key_changes_what_it_says_it_changes(key):
    value, gives, given = CHANGES[key]
    before, after = plain(given), plain(given, {key: value})
    assert {path: at(after, path) for path in gives} == gives
    assert any(at(before, path) != at(after, path) for path in gives)


@pytest.mark.parametrize("key", keys_of(NoEffect))
def test_a_key_that_nothing_hangs_on_is_told_and_changes_nothing(key):
    with_key = translated({key: "unheard of"})
    assert with_key.notes == (f"{key}: {KEYS[key].why}",)
    assert plain({key: "unheard of"}) == plain()
    for value in KEYS[key].silent:
        assert translated({key: value}).notes == ()


@pytest.mark.parametrize("key", keys_of(Unsupported))
def test_what_cannot_be_done_is_refused_and_says_why(key):
    for value in (True, 2.0, "auto"):
        with pytest.raises(ConfigError, match=re.escape(f"layer 1: {key}: {KEYS[key].why}")):
            translated({key: value})
    for value in KEYS[key].allowed:
        assert plain({key: value}) == plain()


# --------------------------------------------------------------------------------------- defaults


def test_what_no_key_says_is_as_published():
    config = resolved()
    algorithm, optimizer = config.algorithm, config.optimizer
    assert (
        algorithm.name,
        algorithm.credit.scope,
        algorithm.credit.gae_lambda,
        algorithm.gamma,
    ) == (
        "maporl",
        "token",
        0.95,
        0.3,
    )
    assert (algorithm.loss.clip_low, algorithm.loss.clip_high, algorithm.credit.clip_value) == (
        0.2,
        0.2,
        0.2,
    )
    assert (
        algorithm.kl.kind,
        algorithm.kl.coefficient,
        algorithm.epochs,
        algorithm.minibatches,
    ) == (
        "reward",
        0.002,
        4,
        8,
    )
    assert (optimizer.learning_rate, optimizer.schedule, optimizer.final_fraction) == (
        1e-5,
        "linear",
        0.1,
    )
    assert (config.decode.temperature, config.decode.max_new_tokens) == (0.7, 300)
    assert (config.critic.train, config.critic.coefficient, config.train.epochs) == ("lora", 0.1, 3)
    assert config.policies["debater"].new_adapter.rank == 8
    assert config.policies["debater"].new_adapter.alpha == 16
    assert not algorithm.incentives.any


def test_all_agents_share_one_policy_and_one_critic():
    config = resolved({"agent_num": 3})
    assert {player.policy for player in config.team.values()} == {("debater",)}
    assert set(config.critic_of.values()) == {"critic-alice"}


def test_agents_with_one_model_share_it_and_others_have_their_own():
    config = resolved(
        {
            "agent_num": 3,
            "diff_model_training": True,
            "another_policy_base_model": ["b/b", "some/model"],
        }
    )
    assert {name: base.path for name, base in config.models.items()} == {
        "alice": "some/model",
        "bob": "b/b",
    }
    assert config.policies["carol_debater"].model == "alice"


@pytest.mark.parametrize(("name", "train", "held_out"), [
    ("gsm8k", ("openai/gsm8k", "main", "train"), "test"),
    ("TinyGSM", ("TinyGSM/TinyGSM", None, "train[:100000]"), "train[100000:101000]"),
    ("ANLI", ("facebook/anli", None, "train_r3"), "test_r3"),
])  # fmt: skip
def test_a_dataset_brings_its_splits(name, train, held_out):
    data = resolved({"dataset_name": name}).data
    assert (data.train.name, data.train.subset, data.train.split) == train
    assert data.eval.split == held_out


def test_rows_of_ones_own_lie_over_the_published_ones():
    data = resolved({"motet": {"data": {"train": {"path": "mine.jsonl"}}}}).data
    assert (data.train.path, data.train.name) == (str(Path("mine.jsonl").resolve()), None)


# --------------------------------------------------------------------------------------- together


def test_each_setting_of_the_incentives_has_a_run_folder_of_its_own():
    assert resolved({"alpha": [0, 2, 2, 0]}).name == "run_alpha_0_2_2_0"
    assert translated({"output_dir": "out/mine", "alpha": [0, 0.5, 0, 0]}).runs == Path("out")
    assert (
        resolved({"output_dir": "out/mine", "alpha": [0, 0.5, 0, 0]}).name == "mine_alpha_0_0.5_0_0"
    )


def test_a_first_turn_that_learns_nothing_leaves_the_second_to_learn_always():
    later = {"policy_separation": True, "collaboration_separation": True, "task_training": False}
    config = resolved(later, {"turn_based_training": True})
    assert config.schedule.kind == "simultaneous"
    assert {name for name, policy in config.policies.items() if policy.train == "frozen"} == {
        "first"
    }
    with pytest.raises(ConfigError, match=facts("task_training: false … blocks of turn 1")):
        resolved(later, {"turn_based_training": True, "round_num": 3})


@pytest.mark.parametrize(
    ("share", "agents", "least"), [(0.5, 2, 1.0), (0.5, 3, 2 / 3), (0.8, 5, 1.0), (0.0, 2, 0.5)]
)
def test_a_consensus_is_more_than_the_share_that_is_said(share, agents, least):
    said = {"criteria_for_consensus_percentage": share, "agent_num": agents}
    assert resolved(said).environment.options["consensus"]["share"] == pytest.approx(least)


@pytest.mark.parametrize(
    "word", ["criteria_for_consensus_percentage", "criteria_for_consensus_reward_threshold"]
)
def test_a_consensus_of_one_or_more_is_never_reached(word):
    assert "consensus" not in resolved({word: 1.1}).environment.options


@pytest.mark.parametrize(("word", "waiting", "told"), [
    ("another_policy_base_model", ["b/b"], "diff_model_training: true"),
    ("turn_based_training_num", 5, "turn_based_training: true"),
    ("penalty_reward_value", -10, "non_eos_penalty … non_box_penalty: true"),
    ("min_output_length", 50, "non_eos_penalty … non_box_penalty: true"),
    ("collaboration_separation", True, "policy_separation: true … one policy"),
    ("task_training", False, "policy_separation: true … one policy"),
    ("server_dict", {"some/model": "http://here/predict"}, "no_reward_model: false"),
    ("run_name", "first", "report_to: wandb"),
])  # fmt: skip
def test_a_key_that_waits_for_another_says_so(word, waiting, told):
    (note,) = translated({word: waiting}).notes
    assert says(note, f"{word} … {told}")
    assert plain({word: waiting}) == plain()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"alpha": [0.5]},
         'alpha … [0.5] … one number, or four … "[alpha0, alpha1, beta0, beta1]"'),
        ({"alpha": [0, -1, 0, 0]}, "alpha … algorithm.incentives.alpha1 … -1"),
        ({"dataset_name": "FANTOM"},
         "dataset_name … 'fantom' … gsm8k, tinygsm, anli"),
        ({"agent_num": 9}, "agent_num … 9 … at most 8"),
        ({"reward_feedback": True},
         "reward_feedback … drop it … motet.environment.show_scores=exact"),
        ({"bf16": True, "fp16": True}, "layer 1 … fp16 … bf16 … keep one"),
        ({"adam_beta1": 0.9}, "adam_beta1 … both … adam_beta1 and adam_beta2"),
        ({"server_dict": {"m": "http://here"}},
         "MODEL: ADDRESS … /predict"),
        ({**SERVER, "base_model": "b/b"}, "server_dict … no address … b/b"),
        ({**DIFFERENT, "agent_num": 3},
         "another_policy_base_model … 1 models … 2 … each agent … except … first"),
        ({"diff_model_training": True}, "another_policy_base_model is missing"),
        ({"rule_horizon": "first"},
         "rule_horizon … 'first' … discounted_sum, last, current"),
        ({"rule_discont": 1}, "rule_discont … 'rule_discount'"),
        ({"magrpo": {"gamma": 1}}, "magrpo: use train_magrpo.py"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_clear_line(layer, message):
    with pytest.raises(ConfigError, match=facts(message)):
        resolved(layer)


def test_each_model_family_may_have_a_verifier_of_its_own():
    servers = {"some/model": "http://a/predict", "other/model": "http://b/predict"}
    verified = {"no_reward_model": False, "server_dict": servers}
    verifier = resolved(DIFFERENT, verified).verifier
    assert {agent: one.base_url for agent, one in verifier.agents.items()} == {
        "alice": "http://a",
        "bob": "http://b",
    }
    assert resolved(verified).verifier.base_url == "http://a"


def test_one_number_is_all_four_incentives():
    incentives = resolved({"alpha": 0.5}).algorithm.incentives
    assert {incentives.alpha0, incentives.alpha1, incentives.beta0, incentives.beta1} == {0.5}


@pytest.mark.parametrize(
    "word", ["dataset_name", "base_model", "agent_num", "round_num", "per_device_train_batch_size"]
)
def test_what_has_no_default_must_be_said(word):
    without = {key: value for key, value in BASE.items() if key != word}
    with pytest.raises(ConfigError, match=f"^{word} is missing"):
        translate([Document(without, {})], TRAINERS["maporl"], "run")
