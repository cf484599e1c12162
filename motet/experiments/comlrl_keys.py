"""The table of CoMLRL's keys.

`trainer.` stands for the trainer's own section, such as `magrpo`. `model` and `critic_model` stand
for all names in SECTIONS.
"""

from typing import Any

from motet.experiments.keys import (
    Combined,
    KeyTable,
    NoEffect,
    Renamed,
    Unsupported,
    boolean,
    number,
    one_of,
    spellings_of,
    text,
    texts,
    whole_number,
)

SECTIONS = {"model": ("model", "agent_model"), "critic_model": ("critic_model", "critic")}
"""Section in the table -> its names in a published config."""


def sandbox_slice(value: Any) -> Any:
    """Return how many tests feedback may show.

    A positive number means the first tests, a negative number the last ones. 0, null and `all` mean
    all tests.
    """
    if value in (0, None, "all") and value is not False:
        return "all"
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("expected a whole number, or all")
    return value


def feedback_mode(value: Any) -> Any:
    """Translate ClassEval's only feedback mode, which has its own name for level feedback."""
    return "level_feedback" if value == "code_feedback" else value


dtype = one_of(
    {
        **dict.fromkeys(("float32", "fp32"), "float32"),
        **dict.fromkeys(("float16", "fp16"), "float16"),
        # `auto` is the dtype of the checkpoint, and all published models have bfloat16 checkpoints
        **dict.fromkeys(("bfloat16", "bf16", "auto"), "bfloat16"),
    }
)
pairing = one_of(
    {"align": "aligned", "aligned": "aligned", "cross": "crossed", "crossed": "crossed"}
)
_MODEL_TYPE = NoEffect("the type follows from the model's own config")
_REMOTE_CODE = NoEffect(
    "Motet never runs code from a model folder; transformers supports the published models "
    "without it",
    silent=(None, False),
)
_TEMPORARY_FILES = NoEffect("code runs in the sandbox, which keeps no files", silent=(None, False))
_PASSTHROUGH = NoEffect("environment.history sets what later prompts contain of earlier ones")
_ROWS = Unsupported("set the number of rows in the split: train_split: train[:128]")

KEYS: KeyTable = {
    # keys that set one key of Motet's config
    "trainer.temperature": Renamed("decode.temperature", also=("model.temperature",)),
    "trainer.top_p": Renamed("decode.top_p", also=("model.top_p",)),
    "trainer.top_k": Renamed(
        "decode.top_k", lambda value: 0 if value is None else value, also=("model.top_k",)
    ),
    "trainer.max_new_tokens": Renamed("decode.max_new_tokens"),
    "trainer.joint_mode": Renamed("rollout.pairing", pairing),
    "trainer.early_termination_threshold": Renamed(
        "rollout.stop_at_reward", also=("trainer.termination_threshold",)
    ),
    "reward_processor.scale_factor": Renamed("environment.reward.scale"),
    "reward_processor.shift": Renamed(
        "environment.reward.shift",
        lambda value: 0.0 if value is None else value,
        also=("trainer.reward_shift",),
    ),
    "external.mode": Renamed(
        "environment.feedback.mode", feedback_mode, also=("trainer.external_mode",)
    ),
    "external.sandbox_slice": Renamed("environment.feedback.sandbox_slice", sandbox_slice),
    "trainer.learning_rate": Renamed(
        "optimizer.learning_rate",
        also=("trainer.agent_learning_rate", "trainer.actor_learning_rate"),
    ),
    "trainer.discount": Renamed("algorithm.gamma"),
    "seed": Renamed("seed", also=("trainer.seed",)),
    "trainer.eval_num_samples": Renamed("evaluation.tasks"),
    "trainer.save_steps": Renamed("train.checkpoint_every"),
    "wandb.project": Renamed("report.wandb.project"),
    "wandb.entity": Renamed("report.wandb.entity"),
    "wandb.name": Renamed("report.wandb.name", also=("wandb.run_name",)),
    "wandb.tags": Renamed("report.wandb.tags"),
    # keys that comlrl.py reads together
    "model.name": Combined(text, also=("model_name",)),
    "agents": Combined(texts),
    "trainer.num_agents": Combined(whole_number(1), also=("agents.num_agents",)),
    "model.model_kwargs.torch_dtype": Combined(dtype, also=("model.torch_dtype", "model.dtype")),
    "trainer.agent_devices": Combined(texts),
    "trainer.parallel_training": Combined(one_of({"none": False, "auto": False, "mp": True})),
    "dataset.name": Combined(text),
    "dataset.train_split": Combined(text),
    "dataset.eval_split": Combined(text),
    "dataset.type": Combined(text),
    "trainer.num_turns": Combined(whole_number(1)),
    "trainer.num_generations": Combined(whole_number(1)),
    "trainer.handoff": Combined(one_of({"best": "best", "random": "random"})),
    "reward_processor.enabled": Combined(boolean),
    "external.expert_model": Combined(text, also=("trainer.expert_model",)),
    "external.original_prompt": Combined(
        boolean, also=("external.previous_prompts", "trainer.external_original_prompt")
    ),
    "external.previous_response": Combined(
        boolean, also=("external.previous_responses", "trainer.external_previous_response")
    ),
    "external.memory_mode": Combined(one_of({"full": "own", "memoryful": "own", "last": "none"})),
    "trainer.num_train_epochs": Combined(),
    "trainer.rollout_buffer_size": Combined(whole_number(1)),
    "trainer.train_batch_size": Combined(whole_number(1), also=("trainer.mini_batch_size",)),
    "trainer.per_device_train_batch_size": Combined(whole_number(1)),
    "trainer.turn_gradient_weights": Combined(),
    "trainer.advantage_normalization": Combined(boolean, also=("trainer.normalize_advantage",)),
    "trainer.beta": Combined(),
    "trainer.reference_kl_coef": Combined(),
    "trainer.reference_kl_enabled": Combined(boolean),
    "trainer.epsilon_clip": Combined(),
    "trainer.eval_interval": Combined(whole_number(0)),
    "output.base_dir": Combined(text),
    "wandb.enabled": Combined(boolean),
    # keys without effect
    "wandb.dir": NoEffect("the files of wandb are in the run folder"),
    "model.type": _MODEL_TYPE,
    "model.max_length": NoEffect("the limit of a prompt is the model's context"),
    "trainer.logging_steps": NoEffect("every step is recorded", silent=(1,)),
    "trainer.eval_batch_size": NoEffect(
        "all held-out tasks are decoded together; train.rows_per_batch limits the batch"
    ),
    "output.verbose": NoEffect(
        "every episode is recorded in the run folder; motet play shows one", silent=(False,)
    ),
    "output.save_final_model": NoEffect(
        "the trained team is always saved, in the folder `team` of the run", silent=(True,)
    ),
    "output.save_path": NoEffect("the trained team is in the folder `team` of the run"),
    "output.keep_tmp": _TEMPORARY_FILES,
    "output.tmp_base_dir": _TEMPORARY_FILES,
    "external.external_prompt_passthrough": _PASSTHROUGH,
    "trainer.external_prompt_passthrough": _PASSTHROUGH,
    "model.model_kwargs.trust_remote_code": _REMOTE_CODE,
    "model.tokenizer_kwargs.trust_remote_code": _REMOTE_CODE,
    "tokenizer.padding_side": NoEffect(
        "padding has no effect on sampling or training", silent=("left",)
    ),
    # unsupported keys
    "trainer.early_termination_weight": Unsupported(
        "the published trainers no longer read it. In Motet, a branch that ends early gets its "
        "last reward again for each turn not played (algorithm.repeat_last_reward): drop it"
    ),
    "model.model_kwargs.device_map": Unsupported(
        "a model is on one device: set agent_devices, or drop it"
    ),
    "model.special_tokens": Unsupported(
        "new tokens need new embeddings: add them to a copy of the model, and set model.name to "
        "its folder",
        allowed=(None, {}),
    ),
    "trainer.num_return_sequences": Unsupported(
        "the number of answers per prompt is num_generations: set that instead", allowed=(None, 1)
    ),
    "trainer.reference_devices": Unsupported(
        "a reference model is on the device of its policy: drop it"
    ),
    "dataset.size": _ROWS,
    "dataset.eval_size": _ROWS,
    "patches": Unsupported("the patches are for another trainer: drop it", allowed=(None, {})),
}
"""The keys of all trainers."""

CRITIC_KEYS: KeyTable = {
    "trainer.entropy_coef": Renamed("algorithm.entropy_coefficient"),
    "critic_model.name": Combined(
        text, also=("trainer.critic_model", "trainer.critic_model_name_or_path")
    ),
    "critics": Combined(texts),
    "critic_model.model_kwargs.torch_dtype": Combined(
        dtype, also=("critic_model.torch_dtype", "critic_model.dtype")
    ),
    "trainer.critic_devices": Combined(texts),
    "trainer.use_separate_critic": Combined(boolean),
    "trainer.critic_learning_rate": Combined(),
    "trainer.value_loss_coef": Combined(number),
    "trainer.value_clip_range": Combined(),
    "critic_model.type": _MODEL_TYPE,
    **dict.fromkeys(
        (f"critic_model.{name}" for name in ("temperature", "top_p", "top_k", "max_length")),
        NoEffect("a critic does not generate text, and its limit is the context of its model"),
    ),
    "trainer.reward_norm_eps": NoEffect(
        "Motet uses its own epsilon for the standard deviation of advantages"
    ),
    "trainer.critic_type": Unsupported(
        "a critic that also reads the answer (q) would bias the gradient as a baseline: use v",
        allowed=(None, "v"),
    ),
    "trainer.ac_epochs": Unsupported(
        "a policy gradient without a ratio allows one epoch: for more, set "
        "motet.algorithm.name=ippo (maac: mappo)",
        allowed=(None, 1),
    ),
    **dict.fromkeys(
        ("trainer.value_head_hidden_dim", "trainer.critic_value_head_hidden_dim"),
        Unsupported("a value head is one linear layer: drop it"),
    ),
}
"""The keys of trainers with a critic. The others refuse them."""


def keys_of(trainer: str, *, critic: bool) -> KeyTable:
    if critic:
        return {**KEYS, **CRITIC_KEYS}
    why = f"{trainer} has no critic: drop it, or use train_iac.py or train_maac.py"
    spellings = [one for key, rule in CRITIC_KEYS.items() for one in spellings_of(key, rule, {})]
    return {**KEYS, **dict.fromkeys(spellings, Unsupported(why))}
