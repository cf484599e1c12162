"""The table of CoMLRL's keys.

`trainer.` stands for the trainer's own section, such as `magrpo`. `model` and `critic_model` stand
for all names in SECTIONS.
"""

from collections.abc import Mapping
from typing import Any

from motet.data.split import parse_split
from motet.errors import ConfigError
from motet.user_code.plugins import is_reference
from motet_published.comlrl_calls import KEYS as CALL_KEYS
from motet_published.comlrl_minecraft import KEYS as MINECRAFT_KEYS
from motet_published.comlrl_minecraft import sliced
from motet_published.comlrl_travel import KEYS as TRAVEL_KEYS
from motet_published.keys import (
    Combined,
    KeyRule,
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
from motet_tasks.feedback_modes import MODES

SECTIONS = {"model": ("model", "agent_model"), "critic_model": ("critic_model", "critic")}
"""Section in the table -> its names in a published config."""


BUILD_MODES = (
    *("score_feedback", "position_feedback", "perfect_feedback", "position_modification"),
    *("rect_modification", "resource_schedule"),
)
"""The feedback modes of the Minecraft environments."""


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
    """Check a feedback mode. ClassEval's only mode has its own name for level feedback."""
    known = (*MODES, "expert_edits", "human", *BUILD_MODES)
    if value == "code_feedback":
        return "level_feedback"
    if value not in known and not (isinstance(value, str) and is_reference(value)):
        raise ValueError(
            f"expected one of {', '.join(known)}, package.module:NAME or ./file.py:NAME"
        )
    return value


def split(value: Any) -> str:
    """Check the expression of a split, such as test[:32]."""
    named = sliced(text(value))
    try:
        parse_split(named)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return str(named)


def gradient_norm(value: Any) -> float:
    if number(value) <= 0:
        raise ValueError("expected a number above 0: gradients are always clipped")
    return number(value)


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
attention = one_of({name: name for name in ("sdpa", "flash_attention_2", "eager")})
advantage_mode = one_of(
    {"mean": "group_mean", "raw": "none", "max": "group_max", "rloo": "leave_one_out"}
)
_MODEL_TYPE = NoEffect("the type follows from the model's own config")
_REMOTE_CODE = NoEffect(
    "Motet never runs code from a model folder; transformers supports the published models "
    "without it",
    silent=(False,),
)
_PADDING = NoEffect("padding has no effect on sampling or training", silent=("left",))
_TOKENIZER = {
    "trust_remote_code": _REMOTE_CODE,
    "padding_side": _PADDING,
    "truncation_side": NoEffect("no prompt is truncated"),
    "model_max_length": NoEffect("a prompt may be as long as the model's context"),
    "use_fast": NoEffect("transformers chooses the tokenizer of a model", silent=(True,)),
}
"""Keys of tokenizer_kwargs."""
_LOADING = {
    "trust_remote_code": _REMOTE_CODE,
    "device_map": NoEffect(
        "a whole model is on one device, the first GPU if there is one: agent_devices and "
        "critic_devices name others"
    ),
    "low_cpu_mem_usage": NoEffect("models are loaded tensor by tensor", silent=(True,)),
    "use_cache": NoEffect("sampling always caches, training never does"),
}
"""Keys of model_kwargs, besides the dtype and the attention."""


def _nested(section: str, rules: Mapping[str, KeyRule]) -> dict[str, KeyRule]:
    return {f"{section}.{name}": rule for name, rule in rules.items()}


_TEMPORARY_FILES = NoEffect("code runs in the sandbox, which keeps no files", silent=(False,))
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
    "trainer.weight_decay": Renamed("optimizer.weight_decay"),
    "trainer.adam_epsilon": Renamed("optimizer.epsilon"),
    "trainer.max_grad_norm": Renamed("optimizer.clip_norm", gradient_norm),
    "trainer.discount": Combined(number),
    "seed": Renamed("seed", also=("trainer.seed",)),
    "trainer.save_steps": Renamed("train.checkpoint_every"),
    "wandb.project": Renamed("report.wandb.project"),
    "wandb.entity": Renamed("report.wandb.entity"),
    "wandb.name": Renamed("report.wandb.name", also=("wandb.run_name",)),
    "wandb.tags": Renamed("report.wandb.tags"),
    # keys that comlrl.py reads together
    "model.name": Combined(text, also=("model_name",)),
    "agents": Combined(texts),
    "trainer.num_agents": Combined(whole_number(1), also=("agents.num_agents",)),
    "model.model_kwargs.torch_dtype": Combined(
        dtype, also=("model.model_kwargs.dtype", "model.torch_dtype", "model.dtype")
    ),
    "model.model_kwargs.attn_implementation": Combined(
        attention, also=("model.attn_implementation",)
    ),
    "model.gradient_checkpointing": Combined(boolean),
    "trainer.agent_devices": Combined(texts),
    "trainer.parallel_training": Combined(one_of({"none": False, "auto": False, "mp": True})),
    "dataset.name": Combined(text),
    "dataset.train_split": Combined(split),
    "dataset.eval_split": Combined(split),
    "dataset.type": Combined(text),
    "trainer.num_turns": Combined(whole_number(1)),
    "trainer.num_generations": Combined(whole_number(1)),
    "trainer.handoff": Combined(one_of({"best": "best", "random": "random"})),
    "reward_processor.enabled": Combined(boolean),
    "external.expert_model": Combined(
        text, also=("external.expert_edits_model", "trainer.expert_model")
    ),
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
    "trainer.early_termination_weight": Combined(number),
    "trainer.adam_beta1": Combined(number),
    "trainer.adam_beta2": Combined(number),
    "trainer.reference_kl_coef": Combined(),
    "trainer.reference_kl_enabled": Combined(boolean),
    "trainer.epsilon_clip": Combined(),
    "trainer.eval_interval": Combined(whole_number(0)),
    "trainer.eval_num_samples": Combined(whole_number(0)),
    "output.base_dir": Combined(text),
    "wandb.enabled": Combined(boolean),
    # keys without effect
    "wandb.dir": NoEffect("the files of wandb are in the run folder"),
    "model.type": _MODEL_TYPE,
    "model.max_length": NoEffect("the limit of a prompt is the model's context"),
    "trainer.logging_steps": NoEffect("every step is recorded", silent=(1,)),
    "trainer.log_code_levels": NoEffect(
        "every term of the reward is recorded (play/terms/...)", silent=(False,)
    ),
    "trainer.save_epochs": NoEffect(
        "checkpoints are written every motet.train.checkpoint_every steps"
    ),
    "output.log_completions": NoEffect(
        "every completion is in the folder `episodes` of the run", silent=(True,)
    ),
    "trainer.eval_batch_size": NoEffect(
        "all held-out tasks are decoded together; train.rows_per_batch limits the batch"
    ),
    "output.verbose": NoEffect(
        "every episode is recorded in the run folder; motet play shows one", silent=(False,)
    ),
    "output.save_final_model": NoEffect(
        "the trained team is always saved, in the folder `team` of the run", silent=(True,)
    ),
    "output.save_model": NoEffect(
        "the trained team is always saved, in the folder `team` of the run", silent=(True,)
    ),
    "output.save_path": NoEffect("the trained team is in the folder `team` of the run"),
    "output.keep_tmp": _TEMPORARY_FILES,
    "output.tmp_base_dir": _TEMPORARY_FILES,
    "external.external_prompt_passthrough": _PASSTHROUGH,
    "trainer.external_prompt_passthrough": _PASSTHROUGH,
    **_nested("model.model_kwargs", _LOADING),
    **_nested("model.tokenizer_kwargs", _TOKENIZER),
    "tokenizer.padding_side": _PADDING,
    "trainer.beta": NoEffect(
        "the published trainers hold it and never read it, so the loss has no KL penalty: "
        "reference_kl_enabled puts one into the reward",
        silent=(0, 0.0),
    ),
    "dataset.private": NoEffect(
        "the hub knows you by your token: hf auth login, or the variable HF_TOKEN",
        silent=(False,),
    ),
    **MINECRAFT_KEYS,
    **CALL_KEYS,
    **TRAVEL_KEYS,
    "patches": NoEffect("they mended an older version of the trainer", silent=({},)),
    # unsupported keys
    "model.special_tokens": Unsupported(
        "new tokens need new embeddings: add them to a copy of the model, and set model.name to "
        "its folder",
        allowed=({},),
    ),
    "trainer.num_return_sequences": Unsupported(
        "the number of answers per prompt is num_generations: set that instead", allowed=(1,)
    ),
    "trainer.reference_devices": Unsupported(
        "a reference model is on the device of its policy: drop it"
    ),
    "dataset.size": _ROWS,
    "dataset.eval_size": _ROWS,
}
"""The keys of all trainers."""

CRITIC_KEYS: KeyTable = {
    "trainer.entropy_coef": Renamed("algorithm.entropy_coefficient"),
    "critic_model.name": Combined(
        text, also=("trainer.critic_model", "trainer.critic_model_name_or_path")
    ),
    "critics": Combined(texts),
    "critic_model.model_kwargs.torch_dtype": Combined(
        dtype,
        also=("critic_model.model_kwargs.dtype", "critic_model.torch_dtype", "critic_model.dtype"),
    ),
    "critic_model.model_kwargs.attn_implementation": Combined(
        attention, also=("critic_model.attn_implementation",)
    ),
    **_nested("critic_model.model_kwargs", _LOADING),
    **_nested("critic_model.tokenizer_kwargs", _TOKENIZER),
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
        allowed=("v",),
    ),
    "trainer.ac_epochs": Unsupported(
        "a policy gradient without a ratio allows one epoch: for more, set "
        "motet.algorithm.name=ippo (maac: mappo)",
        allowed=(1,),
    ),
    **dict.fromkeys(
        ("trainer.value_head_hidden_dim", "trainer.critic_value_head_hidden_dim"),
        Unsupported("a value head is one linear layer: drop it"),
    ),
}
"""The keys of trainers with a critic. The others refuse them."""


GROUP_KEYS: KeyTable = {
    "trainer.advantage_mode": Renamed("algorithm.credit.baseline", advantage_mode),
}
"""The keys of trainers that compare the samples of a group. The others refuse them."""


def keys_of(trainer: str, *, critic: bool) -> KeyTable:
    own, others = (CRITIC_KEYS, GROUP_KEYS) if critic else (GROUP_KEYS, CRITIC_KEYS)
    why = (
        f"{trainer} has a critic, whose value is subtracted: drop it"
        if critic
        else f"{trainer} has no critic: drop it, or use train_iac.py or train_maac.py"
    )
    spellings = [one for key, rule in others.items() for one in spellings_of(key, rule, {})]
    return {**KEYS, **own, **dict.fromkeys(spellings, Unsupported(why))}
