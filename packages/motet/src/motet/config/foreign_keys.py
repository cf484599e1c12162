"""Keys of TRL, verl and CoMLRL, and where their meaning is in Motet."""

from collections.abc import Mapping

_SAMPLES = (
    "rollout.samples",
    "a list with the completions per prompt and agent at each turn, such as [8]",
)
_TASKS = ("train.tasks_per_step", "the number of tasks in a step, over all devices")
_MICRO = (
    "train.token_budget",
    "micro-batches are cut by tokens; gradients accumulate",
)
_STEPS = ("train.steps", "the number of training steps")
_KL = ("algorithm.kl.coefficient", "with algorithm.kl.kind: loss or reward")
_LONGEST = ("decode.max_new_tokens", "the maximum length of a completion in tokens")
_PROMPT = ("rollout.on_long_prompt", "prompts are not truncated; the limit is the model's context")
_ENGINE = (
    "cluster.samplers.engine",
    "vllm, with a section cluster; without it Motet's own sampler works in the same process",
)
_DISTRIBUTED = (
    "cluster.learners.gpus",
    "the GPUs of each model, which divide its weights with FSDP2, in a section cluster",
)
_MACHINES = ("cluster.address", "the address of a Ray cluster, whose machines are used")
_TENSOR_PARALLEL = ("cluster.samplers.gpus", "the GPUs of each vLLM engine, in a section cluster")
_MEMORY = ("cluster.samplers.memory", "the share of a GPU's memory that a vLLM engine takes")
_MODEL = ("models.NAME.path", "a folder or a name of the hub")
_DTYPE = ("models.NAME.dtype", "float32, bfloat16 or float16")
_REPORT = ("report.tensorboard", "true or false; report.wandb, report.mlflow or report.trackio: {}")
_CHECKPOINT = ("train.checkpoint_every", "the number of steps between checkpoints")
_CHECKPOINTING = ("models.NAME.checkpointing", "true or false")
_DATA = ("data.train", "path or name, and split")
_REWARD = ("reward", "./file.py:NAME, a function (task, texts) -> number")
_NORM = ("algorithm.credit.scale", "none or std")
_AGENTS = ("team", "a mapping agent -> policy; the environment sets the agents")
_LENGTH = ("rollout.samples", "one entry per turn, such as [4, 1] for two turns")
_RATE = ("optimizer.learning_rate", "for all trained policies")
_CLIP = ("algorithm.loss.clip_low", "and clip_high, with algorithm.loss.kind: clipped_surrogate")
_EPOCHS = ("algorithm.epochs", "passes over the samples of a step")
_MINIBATCHES = ("algorithm.minibatches", "optimizer steps per pass")

FOREIGN_KEYS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("num_generations", "n", "rollout_n", "group_size", "num_samples"), _SAMPLES),
    **dict.fromkeys(("num_turns", "max_turns", "turns"), _LENGTH),
    **dict.fromkeys(
        ("per_device_train_batch_size", "train_batch_size", "batch_size", "rollout_batch_size"),
        _TASKS,
    ),
    **dict.fromkeys(
        (
            "gradient_accumulation_steps",
            "gradient_accumulation",
            "micro_batch_size",
            "ppo_micro_batch_size",
            "ppo_micro_batch_size_per_gpu",
            "train_micro_batch_size",
        ),
        _MICRO,
    ),
    **dict.fromkeys(("max_steps", "total_training_steps", "num_steps", "steps"), _STEPS),
    **dict.fromkeys(
        ("num_train_epochs", "total_epochs"), ("train.epochs", "passes over the training tasks")
    ),
    **dict.fromkeys(("beta", "kl_coef", "kl_loss_coef", "kl_penalty", "init_kl_coef"), _KL),
    **dict.fromkeys(
        (
            "max_completion_length",
            "max_response_length",
            "max_tokens",
            "response_length",
            "max_new_tokens",
        ),
        _LONGEST,
    ),
    **dict.fromkeys(("max_prompt_length", "truncation"), _PROMPT),
    **dict.fromkeys(
        (
            "vllm",
            "use_vllm",
            "vllm_mode",
            "sglang",
            "rollout_engine",
        ),
        _ENGINE,
    ),
    **dict.fromkeys(("vllm_gpu_memory_utilization", "gpu_memory_utilization"), _MEMORY),
    **dict.fromkeys(
        (
            "deepspeed",
            "fsdp",
            "fsdp_config",
            "n_gpus_per_node",
            "device_map",
            "ddp",
        ),
        _DISTRIBUTED,
    ),
    "nnodes": _MACHINES,
    **dict.fromkeys(("tensor_parallel_size", "tensor_model_parallel_size"), _TENSOR_PARALLEL),
    **dict.fromkeys(("model", "model_name", "model_name_or_path", "model_path"), _MODEL),
    **dict.fromkeys(("torch_dtype", "bf16", "fp16"), _DTYPE),
    **dict.fromkeys(
        ("load_in_4bit", "load_in_8bit", "quantization_config"),
        ("models.NAME.quantize", "none, 8bit or 4bit"),
    ),
    **dict.fromkeys(
        ("attn_implementation", "use_flash_attention_2"),
        ("models.NAME.attention", "auto, sdpa, flash_attention_2 or eager"),
    ),
    **dict.fromkeys(("report_to", "wandb", "logger", "logging"), _REPORT),
    "log_completions": ("report.log_completions", "true or false, on a terminal"),
    **dict.fromkeys(
        ("output_dir", "run_name", "experiment_name", "project_name"),
        ("name", "the run folder is runs/NAME; --runs FOLDER replaces runs"),
    ),
    **dict.fromkeys(("save_steps", "save_freq", "save_strategy"), _CHECKPOINT),
    "save_total_limit": ("train.keep_checkpoints", "how many of the newest checkpoints are kept"),
    **dict.fromkeys(
        ("eval_steps", "test_freq", "eval_strategy", "evaluation_strategy", "eval_interval"),
        ("evaluation.every", "the number of steps between evaluations"),
    ),
    **dict.fromkeys(("gradient_checkpointing", "enable_gradient_checkpointing"), _CHECKPOINTING),
    **dict.fromkeys(("dataset", "dataset_name", "train_files", "train_dataset"), _DATA),
    **dict.fromkeys(("eval_dataset", "val_files"), ("data.eval", "path or name, and split")),
    **dict.fromkeys(("reward_funcs", "reward_function", "reward_fn"), _REWARD),
    **dict.fromkeys(("scale_rewards", "norm_adv_by_std_in_grpo"), _NORM),
    **dict.fromkeys(("num_agents", "agents", "n_agents"), _AGENTS),
    **dict.fromkeys(("lr", "learning_rate", "actor_lr", "agent_learning_rate"), _RATE),
    **dict.fromkeys(
        ("lr_scheduler_type", "lr_scheduler"), ("optimizer.schedule", "constant or linear")
    ),
    **dict.fromkeys(
        ("warmup_steps", "warmup_ratio", "lr_warmup_steps"),
        ("optimizer.warmup_steps", "a number of optimizer steps"),
    ),
    **dict.fromkeys(
        ("max_grad_norm", "grad_clip", "clip_grad"),
        ("optimizer.clip_norm", "the maximum norm of the gradient"),
    ),
    **dict.fromkeys(("adam_beta1", "adam_beta2"), ("optimizer.betas", "[beta1, beta2]")),
    "optim": ("optimizer.kind", "adamw or adamw_8bit"),
    **dict.fromkeys(("epsilon", "clip_ratio", "cliprange", "clip_range", "clip_eps"), _CLIP),
    "epsilon_high": ("algorithm.loss.clip_high", "the upper end of the clip range"),
    **dict.fromkeys(("num_iterations", "ppo_epochs", "num_ppo_epochs"), _EPOCHS),
    **dict.fromkeys(("ppo_mini_batch_size", "num_mini_batches"), _MINIBATCHES),
    **dict.fromkeys(
        ("adv_estimator", "loss_type", "advantage_estimator", "trainer"),
        ("algorithm.name", "a row of the table in docs/algorithms.md"),
    ),
    **dict.fromkeys(
        ("entropy_coeff", "entropy_coef", "ent_coef"),
        ("algorithm.entropy_coefficient", "the weight of the entropy bonus"),
    ),
    **dict.fromkeys(
        ("lam", "lambda", "gae_lam"), ("algorithm.credit.gae_lambda", "λ of TD(λ) and GAE")
    ),
    "discount": ("algorithm.gamma", "the discount between turns"),
    **dict.fromkeys(("temperature", "top_p", "top_k"), ("decode", "temperature, top_p and top_k")),
    **dict.fromkeys(("stop_sequences", "stop_strings"), ("decode.stop", "a list of strings")),
    **dict.fromkeys(
        ("eos_token", "eos_token_id", "stop_token_ids", "stop_tokens"),
        ("models.NAME.end_tokens", "tokens, or their numbers, that end a completion"),
    ),
    **dict.fromkeys(("lora_r", "lora_rank", "r"), ("policies.NAME.lora.rank", "with train: lora")),
    "lora_alpha": ("policies.NAME.lora.alpha", "with train: lora"),
    **dict.fromkeys(
        ("target_modules", "lora_target_modules"),
        ("policies.NAME.lora.targets", "with train: lora"),
    ),
    **dict.fromkeys(
        ("use_peft", "peft", "peft_config", "lora"), ("policies.NAME.train", "full, lora or frozen")
    ),
    **dict.fromkeys(
        ("ref_model", "reference_model"),
        ("algorithm.kl.kind", "the reference is where each policy started, if loss or reward"),
    ),
    **dict.fromkeys(
        ("num_workers", "dataloader_num_workers"), ("sandbox.workers", "for programs of models")
    ),
    "system_prompt": ("team.AGENT.system", "a message before the environment's prompt"),
}
"""Name elsewhere -> (Motet's key, or "" if there is none; what it takes)."""


def foreign_advice(name: str) -> str | None:
    """Return where the meaning of another library's key is in Motet; None if it is not known."""
    found = FOREIGN_KEYS.get(name.lower().replace("-", "_"))
    if found is None:
        return None
    key, takes = found
    return f"in Motet this is {key} ({takes})" if key else takes
