import json
import re

import pytest

from motet.config.load import make_config
from motet.config.sections import EmbeddedModel
from motet.config.yaml import Document
from motet.errors import ConfigError
from motet.settings import TinyModel
from motet_published.translate import TRAINERS, translate
from tests.fixtures.messages import facts, says

MODEL = {"model": {"name": "some/model"}}
HUMANEVAL = {
    "dataset": {
        "name": "openai/openai_humaneval",
        "train_split": "test[33:163]",
        "eval_split": "test[:32]",
    }
}
ONE_EPOCH = {"num_train_epochs": 1}


def resolved(*layers, trainer="magrpo"):
    translated = translate([Document(layer, {}) for layer in layers], TRAINERS[trainer], "run")
    return make_config(translated.config.data, translated.overrides, translated.config.places)


def placed(first, over):
    """Like `resolved`, but for two layers, where error messages name the second."""
    translated = translate(
        [Document(first, {}), Document(over, {(): "over"})], TRAINERS["magrpo"], "run"
    )
    return make_config(translated.config.data, translated.overrides, translated.config.places)


def notes(*layers, trainer="magrpo"):
    return translate([Document(layer, {}) for layer in layers], TRAINERS[trainer], "run").notes


def magrpo(**keys):
    return {**MODEL, **HUMANEVAL, "magrpo": {**ONE_EPOCH, **keys}}


# -------------------------------------------------------------------------------------- who plays


def test_magrpo_is_two_agents_with_a_full_model_each():
    config = resolved(magrpo())
    assert config.environment.options["helpers"] == 1
    assert {agent: player.policy for agent, player in config.team.items()} == {
        "helper": ("helper",),
        "main": ("main",),
    }
    assert {name: policy.train for name, policy in config.policies.items()} == {
        "helper": "full",
        "main": "full",
    }
    assert {policy.model for policy in config.policies.values()} == {"base"}
    assert (config.algorithm.name, config.algorithm.credit.baseline) == ("magrpo", "group_mean")


def test_an_empty_section_of_motets_own_is_said_too():
    own = {"motet": {"models": {"base": {"path": None, "embedded": {}}}}}
    base = resolved(magrpo(), own).models["base"]
    assert base == EmbeddedModel(embedded=TinyModel())
    assert resolved(magrpo(), {"motet": {}}) == resolved(magrpo())


def test_grpo_is_main_alone():
    config = resolved({**MODEL, **HUMANEVAL, "grpo": ONE_EPOCH}, trainer="grpo")
    assert config.environment.options["helpers"] == 0
    assert list(config.team) == ["main"]
    assert config.algorithm.name == "grpo"


def test_the_section_of_another_trainer_is_refused_with_the_right_one():
    with pytest.raises(
        ConfigError,
        match=facts("magrpo … section grpo … set the key there … train_magrpo.py"),
    ):
        resolved(magrpo(), trainer="grpo")


def test_a_list_of_agents_gives_their_number_and_a_model_each():
    config = resolved(magrpo(), {"agents": ["a/a", "b/b", "a/a"]})
    assert {name: base.path for name, base in config.models.items()} == {
        "helper1": "a/a",
        "helper2": "b/b",
        "main": "a/a",
    }
    assert config.environment.options["helpers"] == 2
    assert "model.name is overridden by agents" in notes(magrpo(), {"agents": ["a/a", "b/b"]})
    with pytest.raises(ConfigError, match=facts("agents … 2 models … 3 agent … one each")):
        resolved(magrpo(num_agents=3), {"agents": ["a/a", "b/b"]})


def test_devices_are_one_for_all_or_one_each():
    with pytest.raises(ConfigError, match=facts("2 devices … one … parallel_training: mp")):
        resolved(magrpo(agent_devices=["cuda:0", "cuda:1"]))
    with pytest.raises(
        ConfigError, match=facts("1 devices … one per agent … parallel_training: mp")
    ):
        resolved(magrpo(agent_devices="cuda:0", parallel_training="mp"))
    assert (
        resolved(magrpo(agent_devices=["cuda:0"], parallel_training="none")).models["base"].device
        == "cuda:0"
    )


def test_motets_own_keys_lie_over_what_is_translated():
    own = {
        "motet": {
            "policies": {"helper": {"train": "lora", "lora": {"rank": 4}}},
            "train": {"max_fault_share": 1.0},
        }
    }
    config = resolved(magrpo(), own)
    assert config.policies["helper"].train == "lora"
    assert config.policies["helper"].model == "base"
    assert config.policies["main"].train == "full"
    assert config.train.max_fault_share == 1.0


def test_steps_are_unbounded_as_in_published_trainers_unless_own_keys_bound_them():
    assert resolved(magrpo()).train.max_step_kl is None
    assert resolved(magrpo(), {"motet": {"train": {"max_step_kl": 0.2}}}).train.max_step_kl == 0.2


# ----------------------------------------------------------------------------------------- layers


def test_a_later_layer_lies_over_an_earlier_one_under_any_spelling():
    for spelling in ("model_name", "agent_model.name", "model.name"):
        first, _, rest = spelling.partition(".")
        config = resolved(magrpo(), {first: {rest: "other/model"} if rest else "other/model"})
        assert config.models["base"].path == "other/model", spelling
    config = resolved(magrpo(learning_rate=1e-5), {"mt_magrpo": {"actor_learning_rate": 2e-5}})
    assert config.optimizer.learning_rate == 2e-5


def test_null_in_a_later_layer_takes_a_key_back():
    assert (
        resolved(magrpo(epsilon_clip=0.2), {"magrpo": {"epsilon_clip": None}}).algorithm.loss.kind
        == "policy_gradient"
    )


def test_an_override_takes_a_refused_key_back():
    refused = magrpo(reference_devices="cuda:1")
    with pytest.raises(ConfigError, match=r"magrpo\.reference_devices: a reference model"):
        resolved(refused)
    assert resolved(refused, {"magrpo": {"reference_devices": None}}) == resolved(magrpo())
    again = {"magrpo": {"reference_devices": "cuda:0"}}
    with pytest.raises(ConfigError, match=r"magrpo\.reference_devices"):
        resolved(refused, {"magrpo": {"reference_devices": None}}, again)


def test_an_override_takes_an_unknown_key_back():
    unknown = magrpo(made_up=3)
    with pytest.raises(ConfigError, match=r"magrpo\.made_up: unknown key"):
        resolved(unknown)
    assert resolved(unknown, {"magrpo": {"made_up": None}}) == resolved(magrpo())
    with pytest.raises(ConfigError, match=r"magrpo\.num_turn: unknown key"):
        resolved(magrpo(), {"magrpo": {"num_turn": None}})


def test_no_evaluation_samples_leave_the_held_out_data_away():
    config = resolved(magrpo(eval_num_samples=0))
    assert (config.data.eval, config.data.train.split) == (None, "test[33:163]")
    assert notes(magrpo(eval_num_samples=0)) == (
        "magrpo.eval_num_samples is 0, so no held-out data is read",
    )


def test_an_override_takes_back_what_has_no_effect():
    assert notes(magrpo(beta=0.02), {"magrpo": {"beta": None}}) == ()


def test_in_one_layer_the_trainers_section_goes_before_the_model_and_says_so():
    layer = magrpo(temperature=0.6) | {"model": {"name": "some/model", "temperature": 0.7}}
    assert resolved(layer).decode.temperature == 0.6
    assert notes(layer) == ("model.temperature is overridden by magrpo.temperature",)
    assert resolved(layer, {"model": {"temperature": 0.2}}).decode.temperature == 0.2


def test_two_spellings_of_one_key_must_agree():
    assert (
        resolved(magrpo(learning_rate=1e-5, agent_learning_rate=1e-5)).optimizer.learning_rate
        == 1e-5
    )
    message = "magrpo.agent_learning_rate … magrpo.learning_rate … different value … keep one"
    with pytest.raises(ConfigError, match=facts(message)):
        resolved(magrpo(agent_learning_rate=2e-5, learning_rate=1e-5))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            {"magrpo": {"num_generation": 4}},
            "magrpo.num_generation: unknown key (did you mean 'magrpo.num_generations'?)",
        ),
        ({"modle": {"name": "x"}}, "modle: unknown key"),
        (
            {"model": {"model_kwargs": {"quantize": True}}},
            "model.model_kwargs.quantize: unknown key",
        ),
        ({"magrpo": 5}, "magrpo: unknown key"),
    ],
)
def test_a_key_that_nobody_knows_is_refused_with_the_nearest(layer, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolved(magrpo(), layer)


def test_empty_sections_say_nothing():
    empty = {
        "model": {"special_tokens": {}, "tokenizer_kwargs": {}},
        "external": None,
        "agents": None,
        "critic_model": None,
    }
    assert resolved(magrpo(), empty) == resolved(magrpo())


def test_a_section_that_a_later_layer_makes_null_says_nothing_any_more():
    said = magrpo(num_turns=2) | {"external": {"mode": "passed", "sandbox_slice": 2}}
    assert "feedback" in resolved(said).environment.options
    assert resolved(said, {"external": None}) == resolved(magrpo(num_turns=2))
    assert resolved(said, {"external": None}, {"external": {"mode": "plain"}}).environment.options[
        "feedback"
    ] == {"mode": "plain"}


@pytest.mark.parametrize(
    "word", ["model.name", "dataset.name", "dataset.train_split", "num_train_epochs"]
)
def test_what_has_no_default_must_be_said(word):
    section, _, name = word.rpartition(".")
    section = section or "magrpo"
    without = {key: dict(value) for key, value in magrpo().items()}
    del without[section][name]
    with pytest.raises(ConfigError, match=f"^{word} is missing"):
        resolved(without)


# --------------------------------------------------------------------------------- what is played


def test_a_dataset_that_exists_as_a_path_is_a_path(tmp_path):
    file = tmp_path / "humaneval.jsonl"
    file.write_text(json.dumps({"prompt": ""}))
    config = resolved(magrpo(), {"dataset": {"name": str(file)}})
    assert (config.data.train.path, config.data.train.name, config.data.train.split) == (
        str(file),
        None,
        "test[33:163]",
    )
    assert (config.data.eval.path, config.data.eval.split) == (str(file), "test[:32]")


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        ("openai/openai_humaneval", "code_generation"),
        ("OpenMLRL/CoopHumanEval", "code_generation"),
        ("OpenMLRL/MBPP", "code_generation"),
        ("FudanSELab/ClassEval", "code_completion"),
        ("trl-lib/tldr", "writing"),
        ("OpenMLRL/arXiv_abstract", "writing"),
    ],
)
def test_the_type_of_a_published_dataset_is_known_by_its_name(name, environment):
    assert resolved(magrpo(), {"dataset": {"name": name}}).environment.name == environment


def test_another_dataset_must_say_its_type():
    with pytest.raises(
        ConfigError,
        match=facts("'my/rows' … type of the dataset … dataset.type … humaneval"),
    ):
        resolved(magrpo(), {"dataset": {"name": "my/rows"}})
    with pytest.raises(ConfigError, match=facts("dataset.type … 'chess' … humaneval")):
        resolved(magrpo(), {"dataset": {"type": "chess"}})


def test_writing_has_two_parts_and_one_or_two_agents():
    rows = {"dataset": {"name": "trl-lib/tldr"}}
    assert list(resolved(magrpo(), rows).team) == ["summary", "detail"]
    assert list(resolved(magrpo(num_agents=1), rows).team) == ["writer"]
    with pytest.raises(
        ConfigError,
        match=facts("magrpo.num_agents … 3 … 1 or 2 … two parts"),
    ):
        resolved(magrpo(num_agents=3), rows)
    with pytest.raises(ConfigError, match=facts("agents … 3 … 1 or 2 … two parts")):
        resolved(magrpo(), rows, {"agents": ["a/a", "b/b", "c/c"]})


def test_classeval_shares_out_methods_as_published_where_two_agents_write():
    rows = {"dataset": {"name": "FudanSELab/ClassEval"}, "external": {"mode": "code_feedback"}}
    config = resolved(magrpo(), rows)
    assert list(config.team) == ["coder1", "coder2"]
    assert config.environment.options == {
        "agents": 2,
        "share": "by_parameters",
        "feedback": {"mode": "level_feedback"},
    }
    assert (config.sandbox.packages, config.sandbox.cpu_seconds) == (("numpy",), 10)
    assert resolved(magrpo(num_agents=3), rows).environment.options["share"] == "fair"


def test_what_another_environment_has_not_is_named_by_the_key_that_makes_it():
    said = magrpo(num_turns=2) | {"external": {"mode": "plain"}}
    translated = translate(
        [Document(said, {("external",): "file:9"}), Document({"dataset": {"type": "tldr"}}, {})],
        TRAINERS["magrpo"],
        "run",
    )
    assert translated.config.places["environment", "feedback"] == "file:9: external.mode"


# --------------------------------------------------------------------------------- how they learn


@pytest.mark.parametrize(
    ("keys", "tasks"),
    [
        ({}, 1),
        ({"rollout_buffer_size": 6}, 6),  # one turn: a task is one Round
        ({"rollout_buffer_size": 6, "train_batch_size": 2}, 2),
        ({"rollout_buffer_size": 2, "train_batch_size": 6}, 2),
        ({"rollout_buffer_size": 10, "num_turns": 2, "num_generations": 4}, 2),  # 1 + 4 Rounds
        ({"rollout_buffer_size": 2, "num_turns": 2, "num_generations": 4}, 1),
        (
            {
                "rollout_buffer_size": 10,
                "num_turns": 2,
                "num_generations": 3,
                "joint_mode": "crossed",
            },
            1,
        ),  # 1 + 9
        (
            {"rollout_buffer_size": 8, "num_turns": 2, "num_generations": 4, "handoff": "random"},
            4,
        ),  # 1 + 1
        ({"rollout_buffer_size": 2, "per_device_train_batch_size": 4}, 4),
    ],
)
def test_a_step_plays_as_many_tasks_as_make_the_rounds_of_an_update(keys, tasks):
    assert resolved(magrpo(**keys)).train.tasks_per_step == tasks


@pytest.mark.parametrize(("interval", "every"), [(0, 0), (20, 5), (3, 1)])
def test_an_interval_of_tasks_becomes_one_of_steps(interval, every):
    assert resolved(magrpo(rollout_buffer_size=4, eval_interval=interval)).evaluation.every == every


def test_turn_weights_are_one_per_turn():
    two = magrpo(num_turns=2, turn_gradient_weights=[1.5, 0.5])
    assert resolved(two).algorithm.turn_weights == (1.5, 0.5)
    with pytest.raises(
        ConfigError,
        match=facts("turn_gradient_weights … 2 weights … 3 turn … one each"),
    ):
        resolved(two, {"magrpo": {"num_turns": 3}})


def test_a_beta_that_no_trainer_read_is_no_divergence_and_says_so():
    assert resolved(magrpo(beta=0.02)).algorithm == resolved(magrpo()).algorithm
    (note,) = notes(magrpo(beta=0.02))
    assert says(note, "magrpo.beta … published … never read")


def test_a_divergence_is_in_the_reward_where_it_is_enabled():
    off = magrpo(reference_kl_coef=0.3)
    assert resolved(off).algorithm.kl is None
    assert notes(off) == ("magrpo.reference_kl_coef needs reference_kl_enabled: true",)


# ---------------------------------------------------------------------------------- between turns


def feedback(**external):
    return resolved(magrpo(num_turns=2), {"external": external}).environment.options


def test_the_older_switches_mean_a_prompt_without_history():
    both = feedback(original_prompt=True, previous_response=True)
    assert (both["history"], both["feedback"]) == (
        "none",
        {"restate_problem": True, "restate_answer": True},
    )
    assert feedback(memory_mode="full", previous_response=True)["history"] == "own"
    assert feedback(memory_mode="last", previous_response=False)["feedback"] == {
        "restate_answer": False
    }
    full = {"external": {"memory_mode": "full", "original_prompt": False}}
    assert resolved(magrpo(), full).environment.options["history"] == "own"
    (note,) = notes(magrpo(), full)
    assert says(note, "external.original_prompt … external.memory_mode: last … full")
    assert "history" not in feedback(mode="plain")


def test_an_expert_is_asked_by_name_and_only_in_its_mode():
    asked = resolved(magrpo(), {"external": {"mode": "expert_edits"}}).expert
    assert (asked.model, asked.key_variable) == ("deepseek-coder", "DEEPSEEK_API_KEY")
    idle = {"external": {"mode": "plain", "expert_model": "deepseek-coder"}}
    assert resolved(magrpo(), idle).expert is None
    assert notes(magrpo(), idle) == ("external.expert_model needs external.mode: expert_edits",)


def test_an_expert_that_nobody_knows_needs_an_address():
    own = {"external": {"mode": "expert_edits", "expert_model": "mine"}}
    with pytest.raises(
        ConfigError, match=r"^over: external\.expert_model: expert\.base_url: missing"
    ):
        placed(magrpo(), own)
    served = {"motet": {"expert": {"base_url": "http://localhost:8000/v1"}}}
    assert resolved(magrpo(), own, served).expert.model == "mine"


# ----------------------------------------------------------------------------------- what is kept


def test_weights_and_biases_is_off_until_it_is_asked_for():
    section = {"wandb": {"project": "comlrl", "entity": "OpenMLRL"}}
    assert resolved(magrpo(), section).report.wandb is None
    assert len(notes(magrpo(), section)) == 1
    asked = resolved(magrpo(), section, {"wandb": {"enabled": True, "entity": "me"}}).report.wandb
    assert (asked.project, asked.entity) == ("comlrl", "me")


def test_a_reward_processor_that_is_off_does_nothing_and_says_so():
    off = {"reward_processor": {"enabled": False, "shift": -4}}
    assert "reward" not in resolved(magrpo(), off).environment.options
    (note,) = notes(magrpo(), off)
    assert says(note, "reward_processor.enabled … false … rewards … not changed")
    assert resolved(
        magrpo(reward_shift=-2.1), {"reward_processor": {"enabled": False}}
    ).environment.options["reward"] == {"shift": -2.1}
