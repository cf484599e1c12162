"""The table of MAPoRL's published keys: where each goes in Motet's config, or why it does not. All stand at a config's top."""

from typing import Any

from motet.experiments.rows import AtLeast, Goes, Joins, OneOf, Refused, Row, Told, a_number, a_text, texts, yes_or_no

HORIZONS = OneOf({"discounted_sum": "discounted_sum", "last": "last", "current": "current"})
REPORTS = OneOf({name: name for name in ("wandb", "tensorboard", "none")})
SHARES = OneOf({"all": "all", "individual": "own"})


def incentives(value: Any) -> list[float]:
    """alpha0, alpha1, beta0 and beta1."""
    if not isinstance(value, list) or len(value) != 4:
        raise ValueError('expected four numbers, "[alpha0, alpha1, beta0, beta1]"')
    return [a_number(one) for one in value]


def servers(value: Any) -> dict[str, str]:
    """Model -> the address of a verifier, without its /predict."""
    if not isinstance(value, dict) or not all(
        isinstance(one, str) and one.endswith("/predict") for one in value.values()
    ):
        raise ValueError("expected model: address, where every address ends in /predict")
    return {model: address.removesuffix("/predict") for model, address in value.items()}


_NOT_PUNISHED = "only an answer without its box is punished (non_box_penalty): drop it"
_LEFT_OUT = "the published code did not do it either: drop it"
_AS_EVERY_STEP = "every step and every episode is recorded"

KEYS: tuple[Row, ...] = (
    # who plays
    Joins(("base_model",), "models: the model of the first agent, or of all", a_text),
    Joins(("sft_model_path",), "models: the same model after fine-tuning, with its tokenizer, in place of base_model", a_text),
    Joins(("agent_num",), "environment.agents, team", AtLeast(1)),
    Joins(("diff_model_training",), "models: one per agent", yes_or_no),
    Joins(("another_policy_base_model",), "models: of the second agent and those after it", texts),
    Joins(("another_policy_sft_model_path",), "models: the same after fine-tuning", texts),
    Joins(("policy_separation",), "team: a policy per turn", yes_or_no),
    Joins(("collaboration_separation",), "team: a policy for the first turn, and one for all later ones", yes_or_no),
    Joins(("task_training",), "policies.*.train: false freezes that of the first turn", yes_or_no),
    Joins(("peft",), "policies.*.train, critic.train: lora, or full", yes_or_no),
    Joins(("peft_config.r",), "policies.*.lora.rank, critic.lora.rank", AtLeast(1)),
    Joins(("peft_config.lora_alpha",), "policies.*.lora.alpha, critic.lora.alpha", a_number),
    Joins(("peft_config.target_modules",), "policies.*.lora.targets, critic.lora.targets"),
    Joins(("bf16",), "models.*.dtype: bfloat16", yes_or_no),
    Joins(("fp16",), "models.*.dtype: float16", yes_or_no),
    Joins(("load_in_8bit",), "models.*.quantize: 8bit", yes_or_no),
    Joins(("load_in_4bit",), "models.*.quantize: 4bit", yes_or_no),
    # what is played
    Joins(("dataset_name",), "environment.dataset, data", lambda value: a_text(value).lower()),
    Joins(("round_num",), "rollout.samples: one path of so many turns", AtLeast(1)),
    Joins(("no_reward_model",), "environment.score: exact in place of verifier", yes_or_no),
    Joins(("reward_feedback",), "environment.show_scores: verifier", yes_or_no),
    Joins(("server_dict",), "verifier.base_url", servers),
    Joins(("non_box_penalty",), "environment.format_penalty: -penalty_reward_value", yes_or_no),
    Joins(("penalty_reward_value",), "environment.format_penalty", a_number),
    Joins(("criteria_for_consensus_percentage",), "environment.consensus.share; 1 or more is never", a_number),
    Joins(("criteria_for_consensus_reward_threshold",), "environment.consensus.score; 1 or more is never", a_number),
    Goes(("max_output_length",), "decode.max_new_tokens"),
    Goes(("temperature",), "decode.temperature"),
    # how they learn
    Joins(("alpha",), "algorithm.incentives: alpha0, alpha1, beta0, beta1, alphas: code", incentives),
    Goes(("rule_horizon",), "algorithm.returns", HORIZONS),
    Goes(("rule_agent_share",), "algorithm.share", SHARES),
    Goes(("rule_discount",), "algorithm.discount"),
    Joins(("turn_based_training",), "schedule.kind: turns", yes_or_no),
    Joins(("turn_based_training_num",), "schedule.block", AtLeast(1)),
    Joins(("update_initial_turn",), "schedule.warmup", AtLeast(0)),
    Goes(("num_ppo_epochs",), "algorithm.epochs"),
    Joins(("num_mini_batches",), "algorithm.minibatches, train.tasks_per_step", AtLeast(1)),
    Joins(("per_device_train_batch_size",), "train.tasks_per_step: one of three factors", AtLeast(1)),
    Joins(("gradient_accumulation_steps",), "train.tasks_per_step", AtLeast(1)),
    Joins(("total_episodes",), "train.steps: that many tasks", AtLeast(1)),
    Joins(("num_train_epochs",), "train.epochs"),
    Goes(("vf_coef",), "critic.coefficient"),
    Joins(("kl_coef",), "algorithm.kl_in: reward, kl_coefficient", a_number),
    Joins(("cliprange",), "algorithm.clip_low, clip_high"),
    Goes(("cliprange_value",), "algorithm.clip_value"),
    Goes(("lam",), "algorithm.trace"),
    Goes(("learning_rate",), "optimizer.learning_rate"),
    Goes(("warmup_steps",), "optimizer.warmup_steps"),
    Joins(("adam_beta1",), "optimizer.betas", a_number),
    Joins(("adam_beta2",), "optimizer.betas", a_number),
    Goes(("random_seed",), "seed"),
    Goes(("local_rollout_forward_batch_size",), "train.rows_per_batch"),
    # what is kept
    Goes(("eval_steps",), "evaluation.every"),
    Goes(("test_len",), "evaluation.tasks"),
    Goes(("save_steps",), "train.checkpoint_every"),
    Joins(("output_dir",), "the run folder, before what --alpha adds to its name", a_text),
    Joins(("report_to",), "report.wandb, report.tensorboard", REPORTS),
    Goes(("run_name",), "report.wandb.name"),
    # what needs no key here
    Told(("peft_config.lora_dropout",), "there is no dropout; the published code turned it off too", quiet=(0, 0.0)),
    Told(("peft_config.task_type",), "every model here continues text", quiet=("CAUSAL_LM",)),
    Told(("half_precision_backend",), "bf16 and fp16 say it", quiet=(True, False)),
    Told(("max_input_length",), "a prompt may be as long as the model's context"),
    Told(("reward_model_dir",), "the server of the verifier has loaded it"),
    Told(("another_policy_base_model_name",), "another_policy_base_model says it"),
    Told(("num_sample_generations", "logging_steps", "logging_strategy"), _AS_EVERY_STEP),
    Told(("eval_batch_size", "eval_accumulation_steps"), "local_rollout_forward_batch_size bounds what is decoded at a time"),
    Told(("evaluation_strategy", "save_strategy"), "eval_steps and save_steps count steps", quiet=("steps",)),
    Told(("reload", "reload_dir"), "the flag --reload says it: it goes on with the run of this config", quiet=(False,)),
    # what is not done
    Refused(("peft_config.bias",), "an adapter has no biases: drop it", unless=(None, "none")),
    Refused(("peft_config.loftq_config",), "an adapter starts at nothing on the model as it is: drop it"),
    Refused(("special_tokens",), "new tokens need new embeddings: add them to a copy of the model", unless=(None, {})),
    Refused(("stop_token",), "an answer ends where the model ends it: say eos", unless=(None, "eos")),
    Refused(
        ("value_simplification",),
        "critics read what agents read, what others said included: a question alone does not say how a turn will end",
    ),
    Refused(("gamma",), "within an answer nothing is discounted; between turns rule_discount is", unless=(None, 1, 1.0)),
    Refused(("whiten_rewards",), "advantages are whitened: drop it"),
    Refused(("adafactor",), "AdamW steps, as it did in the published code: say false"),
    Refused(("early_stopping",), _LEFT_OUT),
    Refused(("summary",), _LEFT_OUT),
    Refused(("non_eos_penalty",), _NOT_PUNISHED),
    Refused(("score_penalty_for_nonvalid",), _NOT_PUNISHED),
    Refused(("min_output_length",), _NOT_PUNISHED, unless=(None, 0)),
    Refused(("answer_detecting",), "answers are read as they stand: say false"),
    Refused(("reward_baseline",), "a critic is the baseline: drop it", unless=(None, 0, 0.0)),
    Refused(("deepspeed",), "one process trains: drop it"),
    Refused(("debug",), "say motet.train.steps for a short run"),
)  # fmt: skip
