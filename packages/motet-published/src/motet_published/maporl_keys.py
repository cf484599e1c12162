"""The table of MAPoRL's keys. All are at the top level of a config, except those of peft_config."""

from typing import Any

from motet_published.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Renamed,
    Unsupported,
    boolean,
    number,
    one_of,
    text,
    texts,
    whole_number,
)


def incentives(value: Any) -> list[float]:
    """Read alpha0, alpha1, beta0 and beta1. One number stands for all four."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [float(value)] * 4
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError('expected one number, or four: "[alpha0, alpha1, beta0, beta1]"')
    return [number(one) for one in value]


def servers(value: Any) -> dict[str, str]:
    """Read a mapping from model to the address of a verifier, and remove /predict from each."""
    if not isinstance(value, dict) or not all(
        isinstance(one, str) and one.endswith("/predict") for one in value.values()
    ):
        raise ValueError("expected MODEL: ADDRESS, with addresses that end in /predict")
    return {model: address.removesuffix("/predict") for model, address in value.items()}


_RECORDED = NoEffect("Motet records every step and every episode")
_DECODED = NoEffect("local_rollout_forward_batch_size limits the decoding batch")
_STEPS = NoEffect("eval_steps and save_steps count steps", silent=("steps",))
_RELOAD = NoEffect("use the flag --reload, which resumes the run of this config", silent=(False,))
_NOT_PUNISHED = (
    "Motet asks no second model about the reasoning: use non_eos_penalty and non_box_penalty, and "
    "set it to false"
)
_LEFT_OUT = Unsupported("the published code does not use it either: drop it")

KEYS: KeyTable = {
    # keys that set one key of Motet's config
    "max_output_length": Renamed("decode.max_new_tokens"),
    "temperature": Renamed("decode.temperature"),
    "rule_horizon": Renamed(
        "algorithm.returns",
        one_of({"discounted_sum": "discounted_sum", "last": "last", "current": "current"}),
    ),
    "rule_agent_share": Renamed(
        "algorithm.reward_sharing", one_of({"all": "all", "individual": "own"})
    ),
    "rule_discount": Renamed("algorithm.gamma"),
    "num_ppo_epochs": Renamed("algorithm.epochs"),
    "vf_coef": Renamed("critic.coefficient"),
    "cliprange_value": Renamed("algorithm.credit.clip_value"),
    "lam": Renamed("algorithm.credit.gae_lambda"),
    "learning_rate": Renamed("optimizer.learning_rate"),
    "warmup_steps": Renamed("optimizer.warmup_steps"),
    "random_seed": Renamed("seed"),
    "local_rollout_forward_batch_size": Renamed("train.rows_per_batch"),
    "eval_steps": Renamed("evaluation.every"),
    "test_len": Renamed("evaluation.tasks"),
    "save_steps": Renamed("train.checkpoint_every"),
    "run_name": Renamed("report.wandb.name"),
    # keys that maporl.py reads together
    "base_model": Combined(text),
    "sft_model_path": Combined(text),
    "agent_num": Combined(whole_number(1)),
    "diff_model_training": Combined(boolean),
    "another_policy_base_model": Combined(texts),
    "another_policy_sft_model_path": Combined(texts),
    "policy_separation": Combined(boolean),
    "collaboration_separation": Combined(boolean),
    "task_training": Combined(boolean),
    "peft": Combined(boolean),
    "peft_config.r": Combined(whole_number(1)),
    "peft_config.lora_alpha": Combined(number),
    "peft_config.target_modules": Combined(),
    "bf16": Combined(boolean),
    "fp16": Combined(boolean),
    "load_in_8bit": Combined(boolean),
    "load_in_4bit": Combined(boolean),
    "dataset_name": Combined(lambda value: text(value).lower()),
    "round_num": Combined(whole_number(1)),
    "no_reward_model": Combined(boolean),
    "reward_feedback": Combined(boolean),
    "server_dict": Combined(servers),
    "non_box_penalty": Combined(boolean),
    "non_eos_penalty": Combined(boolean),
    "min_output_length": Combined(whole_number(0)),
    "value_simplification": Combined(boolean),
    "penalty_reward_value": Combined(number),
    "criteria_for_consensus_percentage": Combined(number),
    "criteria_for_consensus_reward_threshold": Combined(number),
    "alpha": Combined(incentives),
    "turn_based_training": Combined(boolean),
    "turn_based_training_num": Combined(whole_number(1)),
    "update_initial_turn": Combined(whole_number(0)),
    "num_mini_batches": Combined(whole_number(1)),
    "per_device_train_batch_size": Combined(whole_number(1)),
    "gradient_accumulation_steps": Combined(whole_number(1)),
    "total_episodes": Combined(whole_number(1)),
    "num_train_epochs": Combined(),
    "kl_coef": Combined(number),
    "cliprange": Combined(),
    "adam_beta1": Combined(number),
    "adam_beta2": Combined(number),
    "output_dir": Combined(text),
    "report_to": Combined(one_of({"wandb": "wandb", "tensorboard": "tensorboard", "none": "none"})),
    # keys without effect
    "peft_config.lora_dropout": NoEffect(
        "Motet uses no dropout, like the published code", silent=(0, 0.0)
    ),
    "peft_config.task_type": NoEffect(
        "every model is a causal language model", silent=("CAUSAL_LM",)
    ),
    "peft_config.loftq_config": NoEffect(
        "peft reads it only where init_lora_weights is loftq, which the published code did not set"
    ),
    "special_tokens": NoEffect(
        "the published trainer does not add them to the tokenizer either", silent=({},)
    ),
    "adafactor": NoEffect(
        "AdamW steps, as in the published code, which did not read this key", silent=(False,)
    ),
    "deepspeed": NoEffect(
        "one process trains, each model on one device; peft: true, load_in_4bit and "
        "motet.models.base.checkpointing save memory"
    ),
    "half_precision_backend": NoEffect("bf16 and fp16 set it", silent=(True, False)),
    "max_input_length": NoEffect("the limit of a prompt is the model's context"),
    "reward_model_dir": NoEffect("the server of the verifier loads the model"),
    "another_policy_base_model_name": NoEffect("another_policy_base_model sets it"),
    "num_sample_generations": _RECORDED,
    "logging_steps": _RECORDED,
    "logging_strategy": _RECORDED,
    "eval_batch_size": _DECODED,
    "eval_accumulation_steps": _DECODED,
    "evaluation_strategy": _STEPS,
    "save_strategy": _STEPS,
    "reload": _RELOAD,
    "reload_dir": _RELOAD,
    # unsupported keys
    "peft_config.bias": Unsupported("an adapter has no biases: drop it", allowed=("none",)),
    "stop_token": Unsupported(
        "an answer ends with the model's end-of-sequence token: set it to eos",
        allowed=("eos",),
    ),
    "gamma": Unsupported(
        "there is no discount within an answer: set rule_discount, the discount between turns",
        allowed=(1, 1.0),
    ),
    "whiten_rewards": Unsupported("Motet whitens advantages instead: drop it"),
    "early_stopping": _LEFT_OUT,
    "summary": _LEFT_OUT,
    "score_penalty_for_nonvalid": Unsupported(_NOT_PUNISHED),
    "answer_detecting": Unsupported("answers are used as generated: set it to false"),
    "reward_baseline": Unsupported("the critic is the baseline: drop it", allowed=(0, 0.0)),
    "debug": Unsupported("set motet.train.steps for a short run"),
}
