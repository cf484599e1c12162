"""Translate MAPoRL's configs.

The keys that set one key of Motet's config by themselves are in maporl_keys.py. Here are those that
have a meaning only together.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet_published.translation import Translation
from motet_tasks.debate.game import Debate

DEFAULTS: Mapping[str, Any] = {
    "algorithm.name": "maporl",
    "environment.name": "debate",
    "decode.temperature": 0.7,
    "decode.max_new_tokens": 300,
    "optimizer.learning_rate": 1e-5,
    "optimizer.schedule": "linear",
    "optimizer.final_fraction": 0.1,
    "critic.coefficient": 0.1,
}
"""Values if no key sets them. The published code sets a temperature per model, 0.7 for most."""
# Defaults of the published trainer, for keys of nearly the same names
CONSENSUS_PERCENTAGE, CONSENSUS_REWARD_THRESHOLD = 0.8, 0.7
UPDATE_INITIAL_TURN, TURN_BASED_TRAINING_NUM = 20, 40
NUM_TRAIN_EPOCHS, GRADIENT_ACCUMULATION_STEPS, NUM_MINI_BATCHES = 3, 1, 8
DATASETS: Mapping[str, Mapping[str, str]] = {
    "gsm8k": {"name": "openai/gsm8k", "subset": "main", "train": "train", "eval": "test"},
    "tinygsm": {
        "name": "TinyGSM/TinyGSM", "train": "train[:100000]", "eval": "train[100000:101000]",
    },
    "anli": {"name": "facebook/anli", "train": "train_r3", "eval": "test_r3"},
}  # fmt: skip
"""dataset_name in lower case, which is also the environment's name for it -> its source, and its
splits for training and evaluation."""


def maporl(config: Translation, name: str) -> None:
    for path, value in DEFAULTS.items():
        config.set(path, value)
    _set_run_folder(config, name)
    _set_data(config)
    _set_agents(config)
    _set_score(config)
    _set_consensus(config)
    _set_schedule(config)
    _set_batch(config)
    _set_algorithm(config)
    _set_reports(config)


def _set_run_folder(config: Translation, name: str) -> None:
    """As published, each setting of the incentives has its own run folder."""
    folder = Path(config.get("output_dir", config.runs / name))
    alpha = "_".join(f"{value:g}" for value in config.get("alpha", ()))
    config.runs = folder.parent
    config.set("name", f"{folder.name}_alpha_{alpha}" if alpha else folder.name)


# -------------------------------------------------------------------- environment, data, rewards


def _set_data(config: Translation) -> None:
    dataset: str = config["dataset_name"]
    if dataset not in DATASETS:
        raise config.error(
            "dataset_name", f"got {dataset!r}, expected one of {', '.join(DATASETS)}"
        )
    source = DATASETS[dataset]
    config.set("environment.dataset", dataset, "dataset_name")
    for part in ("train", "eval"):
        config.set(f"data.{part}.name", source["name"], "dataset_name")
        config.set(f"data.{part}.split", source[part], "dataset_name")
        if "subset" in source:
            config.set(f"data.{part}.subset", source["subset"], "dataset_name")


def _set_score(config: Translation) -> None:
    """Set what scores an answer: its gold label, or a verifier."""
    labels: bool = config.get("no_reward_model", False)
    config.set("environment.score", "exact" if labels else "verifier", "no_reward_model")
    if config.get("reward_feedback", False):
        if labels:
            raise config.error(
                "reward_feedback",
                "it would tell the agents who is right: drop it, or set "
                "motet.environment.show_scores=exact",
            )
        config.set("environment.show_scores", "verifier", "reward_feedback")
    if labels:
        config.ignore("{key} needs no_reward_model: false", "server_dict")
    _set_penalty(config)


def _set_penalty(config: Translation) -> None:
    """Set the penalty of an answer in bad form.

    With min_output_length or non_eos_penalty, an answer that is too short, repeats itself or has no
    box gets penalty_reward_value in place of its score. The published code does this under
    non_eos_penalty, and cannot run without it. With non_box_penalty alone, only the box matters.
    """
    if not (config.get("non_eos_penalty", False) or config.get("non_box_penalty", False)):
        config.ignore(
            "{key} needs non_eos_penalty or non_box_penalty: true",
            "penalty_reward_value",
            "min_output_length",
        )
    elif "penalty_reward_value" in config:
        penalty: float = config["penalty_reward_value"]
        if config.get("non_eos_penalty", False) or config.get("min_output_length", 0):
            config.set("environment.bad_form_score", penalty, "penalty_reward_value")
            config.copy("min_output_length", "environment.min_length")
        else:
            config.set("environment.format_penalty", -penalty, "penalty_reward_value")


def _set_verifier(config: Translation, agents: Sequence[str]) -> None:
    """Set the verifier's address, or one per agent if the models have verifiers of their own."""
    if "server_dict" not in config or config.get("no_reward_model", False):
        return
    servers: Mapping[str, str] = config["server_dict"]
    models = _model_per_agent(config, "base_model", "another_policy_base_model")
    missing = [model for model in models if model not in servers]
    if missing:
        raise config.error("server_dict", f"got no address for {missing[0]}, expected one")
    if len({servers[model] for model in models}) == 1:
        config.set("verifier.base_url", servers[models[0]], "server_dict")
        return
    for agent, model in zip(agents, models, strict=True):
        config.set(f"verifier.agents.{agent}.base_url", servers[model], "server_dict")


def _set_consensus(config: Translation) -> None:
    """Set the consensus. The published comparisons are strict.

    The share of the agents must exceed its threshold, and a threshold of 1 or more is never met.
    """
    keys = ("criteria_for_consensus_percentage", "criteria_for_consensus_reward_threshold")
    source = next((key for key in keys if key in config), None)
    share = config.get(keys[0], CONSENSUS_PERCENTAGE)
    score = config.get(keys[1], CONSENSUS_REWARD_THRESHOLD)
    if source is not None and share < 1 and score < 1:
        agents = config["agent_num"]
        config.set("environment.consensus.share", (int(share * agents) + 1) / agents, source)
        config.set("environment.consensus.score", score, source)


# ----------------------------------------------------------------------------- agents and models


def _set_agents(config: Translation) -> None:
    """Set the team, with the models and policies of each agent."""
    count: int = config["agent_num"]
    turns: int = config["round_num"]
    config.set("environment.agents", count, "agent_num")
    config.set("rollout.samples", [1] * turns, "round_num")
    try:
        agents = Debate.Options(agents=count).names
    except ValueError as error:
        raise config.error("agent_num", f"got {count}, expected at most 8") from error
    _set_verifier(config, agents)
    paths = _model_paths(config)
    if not config.get("policy_separation", False):
        waiting = [
            key
            for key, off in (("collaboration_separation", False), ("task_training", True))
            if config.get(key, off) is not off
        ]
        config.ignore(
            "{key} needs policy_separation: true: one policy plays and learns all turns",
            *waiting,
        )
    different_models: bool = config.get("diff_model_training", False)
    if not different_models:
        config.ignore(
            "{key} needs diff_model_training: true",
            "another_policy_base_model",
            "another_policy_sft_model_path",
        )
    for agent, path in zip(agents, paths, strict=True):
        model = agents[paths.index(path)] if different_models else "base"
        _set_model(config, model, path)
        policies = [
            f"{agent}_{policy}" if different_models else policy
            for policy in _policy_names(config)[:turns]
        ]
        config.set(f"team.{agent}.policy", policies)
        for turn, policy in enumerate(policies):
            config.set(f"policies.{policy}.model", model)
            if turn == 0 and _first_turn_is_frozen(config):
                config.set(f"policies.{policy}.train", "frozen", "task_training")
            else:
                _set_training(config, f"policies.{policy}")
    _set_training(config, "critic")


def _model_paths(config: Translation) -> list[str]:
    """Return the path of each agent's model: the fine-tuned one if it is set."""
    first, others = "sft_model_path", "another_policy_sft_model_path"
    return _model_per_agent(
        config,
        first if first in config else "base_model",
        others if others in config else "another_policy_base_model",
    )


def _model_per_agent(config: Translation, first: str, others: str) -> list[str]:
    """Return the model of each agent, where two keys have the first one and the others."""
    count: int = config["agent_num"]
    if not config.get("diff_model_training", False):
        return [config[first]] * count
    if len(config[others]) != count - 1:
        raise config.error(
            others,
            f"got {len(config[others])} models, expected {count - 1}: one for each agent except "
            "the first",
        )
    return [config[first], *config[others]]


def _set_model(config: Translation, model: str, path: str) -> None:
    config.set(f"models.{model}.path", path, "base_model")
    for setting, choices in (
        ("dtype", {"bf16": "bfloat16", "fp16": "float16"}),
        ("quantize", {"load_in_8bit": "8bit", "load_in_4bit": "4bit"}),
    ):
        chosen = [key for key in choices if config.get(key, False)]
        if len(chosen) > 1:
            raise config.error(chosen[1], f"{chosen[0]} is also true: keep one of both")
        for key in chosen:
            config.set(f"models.{model}.{setting}", choices[key], key)


def _policy_names(config: Translation) -> Sequence[str]:
    """Return the names of an agent's policies, one per turn. The last one repeats."""
    per_turn: bool = config.get("policy_separation", False)
    if not per_turn:
        return ["debater"]
    if config.get("collaboration_separation", False):
        return ["first", "later"]
    return [f"turn{turn}" for turn in range(1, config["round_num"] + 1)]


def _first_turn_is_frozen(config: Translation) -> bool:
    """Test whether the policy of the first turn is frozen."""
    separated: bool = config.get("policy_separation", False)
    return separated and not config.get("task_training", True)


def _set_training(config: Translation, section: str) -> None:
    """Set how a policy or the critics are trained: with an adapter, or in full."""
    lora: bool = config.get("peft", True)
    config.set(f"{section}.train", "lora" if lora else "full", "peft")
    for key, setting in (("r", "rank"), ("lora_alpha", "alpha"), ("target_modules", "targets")):
        if lora:
            config.copy(f"peft_config.{key}", f"{section}.lora.{setting}")
        else:
            config.ignore("{key} needs peft: true", f"peft_config.{key}")


# -------------------------------------------------------------------------------------- learning


def _set_schedule(config: Translation) -> None:
    turn_based = "turn_based_training"
    if not config.get(turn_based, False):
        config.ignore(
            "{key} needs turn_based_training: true",
            "turn_based_training_num",
            "update_initial_turn",
        )
        return
    if _first_turn_is_frozen(config):
        if config["round_num"] > 2:
            raise config.error(
                turn_based,
                "with task_training: false, nothing is trained in the blocks of turn 1: remove "
                "one of the two keys",
            )
        return  # only the second turn learns, so there is nothing to alternate
    first = config.get("update_initial_turn", UPDATE_INITIAL_TURN)
    block = config.get("turn_based_training_num", TURN_BASED_TRAINING_NUM)
    config.set("schedule.kind", "turns", turn_based)
    config.set("schedule.first_turn_steps", first, "update_initial_turn")
    config.set("schedule.block", block, "turn_based_training_num")


def _set_batch(config: Translation) -> None:
    """Set the batch: what one process samples for one update."""
    minibatches: int = config.get("num_mini_batches", NUM_MINI_BATCHES)
    accumulation_steps: int = config.get("gradient_accumulation_steps", GRADIENT_ACCUMULATION_STEPS)
    tasks = config["per_device_train_batch_size"] * accumulation_steps * minibatches
    config.set("algorithm.minibatches", minibatches, "num_mini_batches")
    config.set("train.tasks_per_step", tasks)
    if "total_episodes" in config:
        steps = max(1, config["total_episodes"] // tasks)
        config.set("train.steps", steps, "total_episodes")
    else:
        epochs = config.get("num_train_epochs", NUM_TRAIN_EPOCHS)
        config.set("train.epochs", epochs, "num_train_epochs")


def _set_algorithm(config: Translation) -> None:
    if config.get("value_simplification", False):
        config.set("algorithm.credit.view", "first", "value_simplification")
    if "alpha" in config:
        config.set("algorithm.incentives.alphas", "code", "alpha")
        names = ("alpha0", "alpha1", "beta0", "beta1")
        for name, value in zip(names, config["alpha"], strict=True):
            config.set(f"algorithm.incentives.{name}", value, "alpha")
    if "kl_coef" in config:
        if config["kl_coef"] == 0:
            config.set("algorithm.kl", None, "kl_coef")
        else:
            config.copy("kl_coef", "algorithm.kl.coefficient")
    config.copy("cliprange", "algorithm.loss.clip_low", "algorithm.loss.clip_high")
    betas = [key for key in ("adam_beta1", "adam_beta2") if key in config]
    if len(betas) == 1:
        raise config.error(betas[0], "expected both, adam_beta1 and adam_beta2")
    if betas:
        config.set("optimizer.betas", [config[key] for key in betas], betas[0])


def _set_reports(config: Translation) -> None:
    report_to = config.get("report_to")
    if report_to is not None:
        config.set("report.tensorboard", report_to == "tensorboard", "report_to")
    if report_to == "wandb":
        config.set("report.wandb", {}, "report_to")
    else:
        config.ignore("{key} needs report_to: wandb", "run_name")
