"""The table of published keys: every spelling, where it goes in Motet's config, and how its value is read, or why it is refused.

A spelling that begins with `*.` stands in the section of the trainer (`grpo`, `magrpo`, ...). A row is one of four things:

    Goes      to a place of Motet's config, by itself
    Joins     others: joins.py makes of them together what `becomes` says; null takes it back
    Told      nothing hangs on it here; the person is told why, unless the value is one of `quiet`
    Refused   it asks for what Motet does not do; an error says why, unless the value is one of `unless`
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Read: TypeAlias = Callable[[Any], Any]
"""A value as published -> as Motet has it. Raises: ValueError saying what was expected."""


def as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Goes:
    spellings: tuple[str, ...]
    to: str
    read: Read = as_it_is


@dataclass(frozen=True)
class Joins:
    spellings: tuple[str, ...]
    becomes: str
    read: Read = as_it_is


@dataclass(frozen=True)
class Told:
    spellings: tuple[str, ...]
    why: str
    quiet: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Refused:
    spellings: tuple[str, ...]
    why: str
    unless: tuple[Any, ...] = (None, False)


Row: TypeAlias = Goes | Joins | Told | Refused


# ---------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class OneOf:
    """Reads a closed choice."""

    of: Mapping[Any, Any] = field(hash=False)

    def __call__(self, value: Any) -> Any:
        try:
            return self.of[value]
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected one of {', '.join(str(name).lower() for name in self.of)}") from error


@dataclass(frozen=True)
class AtLeast:
    """Reads a whole number."""

    least: int

    def __call__(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < self.least:
            raise ValueError(f"expected a whole number of at least {self.least}")
        return value


def texts(value: Any) -> tuple[str, ...]:
    """A text, or a list of them. None is none."""
    listed = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ValueError("expected a text, or a list of them")
    return tuple(listed)


def a_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def slice_of_tests(value: Any) -> Any:
    """How many tests feedback may show: the first so many, below 0 the last so many; 0, null and `all` are all of them."""
    if value in (0, None, "all") and value is not False:
        return "all"
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("expected a whole number, or all")
    return value


def mode_of_feedback(value: Any) -> Any:
    """ClassEval's one mode has a name of its own for what the levels of a part came to."""
    return "level_feedback" if value == "code_feedback" else value


PAIRINGS = OneOf({"align": "aligned", "aligned": "aligned", "cross": "crossed", "crossed": "crossed"})
SCALES = OneOf({True: "std", False: "none"})
TYPES = OneOf(
    {
        **dict.fromkeys(("float32", "fp32"), "float32"),
        **dict.fromkeys(("float16", "fp16"), "float16"),
        # `auto` is the type of the checkpoint, and those of the published models are all bfloat16
        **dict.fromkeys(("bfloat16", "bf16", "auto"), "bfloat16"),
    }
)
MEMORIES = OneOf({"full": "own", "memoryful": "own", "last": "none"})

_NO_CRITIC = "neither grpo nor magrpo has a critic: drop it"
_CODE_OF_OTHERS = "Motet runs no code that comes with a model; transformers knows the published models by itself"


# ---------------------------------------------------------------------------------------------------- the table

KEYS: tuple[Row, ...] = (
    # who plays
    Joins(("model.name", "agent_model.name", "model_name"), "models, policies: each agent's own copy, trained in full", a_text),
    Joins(("agents",), "models: one name per agent", texts),
    Joins(("*.num_agents", "agents.num_agents"), "team, and the environment's agents", AtLeast(1)),
    Joins(
        ("model.model_kwargs.torch_dtype", "agent_model.model_kwargs.torch_dtype", "model.torch_dtype",
         "agent_model.torch_dtype", "model.dtype", "agent_model.dtype"),
        "models.*.dtype",
        TYPES,
    ),
    Joins(("*.agent_devices",), "models.*.device", texts),
    Joins(("*.parallel_training",), "models.*.device: none is one for all, mp one each", OneOf({"none": False, "mp": True})),
    # how they speak
    Goes(("*.temperature", "model.temperature", "agent_model.temperature"), "decode.temperature"),
    Goes(("*.top_p", "model.top_p", "agent_model.top_p"), "decode.top_p"),
    Goes(("*.top_k", "model.top_k", "agent_model.top_k"), "decode.top_k", lambda value: 0 if value is None else value),
    Goes(("*.max_new_tokens",), "decode.max_new_tokens"),
    # what is played
    Joins(("dataset.name",), "data.*.name, or data.*.path where such a path exists", a_text),
    Joins(("dataset.train_split",), "data.train.split", a_text),
    Joins(("dataset.eval_split",), "data.eval.split", a_text),
    Joins(("dataset.type",), "environment.name", a_text),
    Joins(("*.num_turns",), "rollout.samples: how many", AtLeast(1)),
    Joins(("*.num_generations",), "rollout.samples: each of them", AtLeast(1)),
    Goes(("*.joint_mode",), "rollout.pairing", PAIRINGS),
    Goes(("*.handoff",), "rollout.expand", OneOf({"best": "best", "random": "random"})),
    Goes(("*.early_termination_threshold", "*.termination_threshold"), "rollout.stop_at_reward"),
    Goes(("reward_processor.scale_factor",), "environment.reward.scale"),
    Goes(("reward_processor.shift", "*.reward_shift"), "environment.reward.shift", lambda value: 0.0 if value is None else value),
    Joins(("reward_processor.enabled",), "whether environment.reward is as reward_processor says", yes_or_no),
    # what is said between turns
    Goes(("external.mode", "*.external_mode"), "environment.feedback.mode", mode_of_feedback),
    Goes(("external.sandbox_slice",), "environment.feedback.sandbox_slice", slice_of_tests),
    Joins(("external.expert_model", "*.expert_model"), "expert, where external.mode is expert_edits", a_text),
    Joins(
        ("external.original_prompt", "external.previous_prompts", "*.external_original_prompt"),
        "environment.history, environment.feedback.restate_problem",
        yes_or_no,
    ),
    Joins(
        ("external.previous_response", "external.previous_responses", "*.external_previous_response"),
        "environment.history, environment.feedback.restate_answer",
        yes_or_no,
    ),
    Joins(("external.memory_mode",), "environment.history", MEMORIES),
    # how they learn
    Goes(("*.learning_rate", "*.agent_learning_rate", "*.actor_learning_rate"), "optimizer.learning_rate"),
    Joins(("*.num_train_epochs",), "train.epochs: has no default"),
    Joins(("*.rollout_buffer_size",), "train.tasks_per_step: Rounds that are gathered before an update", AtLeast(1)),
    Joins(("*.train_batch_size",), "train.tasks_per_step: Rounds of one optimiser step", AtLeast(1)),
    Joins(("*.per_device_train_batch_size",), "train.tasks_per_step: tasks at least", AtLeast(1)),
    Goes(("*.discount",), "algorithm.discount"),
    Joins(("*.turn_gradient_weights",), "algorithm.turn_weights: one per turn"),
    Goes(("*.advantage_normalization", "*.normalize_advantage"), "algorithm.scale", SCALES),
    Joins(("*.beta",), "algorithm.kl_in: loss, kl_estimator: k3, kl_coefficient"),
    Joins(("*.reference_kl_coef",), "algorithm.kl_in: reward, kl_coefficient"),
    Joins(("*.reference_kl_enabled",), "whether algorithm.kl_coefficient is reference_kl_coef", yes_or_no),
    Joins(("*.epsilon_clip",), "algorithm.policy_loss: clipped_surrogate, clip_low, clip_high"),
    Goes(("seed", "*.seed"), "seed"),
    # what is kept
    Joins(("*.eval_interval",), "evaluation.every: a number of tasks, counted in steps here", AtLeast(0)),
    Goes(("*.eval_num_samples",), "evaluation.tasks"),
    Goes(("*.save_steps",), "train.checkpoint_every"),
    Joins(("output.base_dir",), "the folder that run folders are in", a_text),
    Joins(("wandb.enabled",), "report.wandb; off unless set, for the other keys name the publishers' account", yes_or_no),
    Goes(("wandb.project",), "report.wandb.project"),
    Goes(("wandb.entity",), "report.wandb.entity"),
    Goes(("wandb.name", "wandb.run_name"), "report.wandb.name"),
    Goes(("wandb.tags",), "report.wandb.tags"),
    # what needs no key here
    Told(("wandb.dir",), "its files are in the run folder"),
    Told(("model.type", "agent_model.type"), "a model's own config says what it is"),
    Told(("model.max_length", "agent_model.max_length"), "a prompt may be as long as the model's context"),
    Told(("*.logging_steps",), "every step is recorded", quiet=(1,)),
    Told(("*.eval_batch_size",), "held-out tasks are decoded together; train.rows_per_batch bounds it"),
    Told(("output.verbose",), "every episode is in the run folder: motet play shows one", quiet=(False,)),
    Told(("output.save_final_model",), "the trained team is always saved, in the folder `team` of the run", quiet=(True,)),
    Told(("output.save_path",), "the trained team is in the folder `team` of the run"),
    Told(("output.keep_tmp", "output.tmp_base_dir"), "code runs in the sandbox, which leaves no files", quiet=(False, None)),
    Told(
        ("external.external_prompt_passthrough", "*.external_prompt_passthrough"),
        "what later prompts hold of earlier ones is environment.history",
    ),
    Told(
        ("model.model_kwargs.trust_remote_code", "agent_model.model_kwargs.trust_remote_code",
         "model.tokenizer_kwargs.trust_remote_code", "agent_model.tokenizer_kwargs.trust_remote_code"),
        _CODE_OF_OTHERS,
        quiet=(False, None),
    ),
    Told(("tokenizer.padding_side",), "nothing that is learnt or sampled hangs on padding", quiet=("left",)),
    # what is not done
    Refused(
        ("*.early_termination_weight",),
        "the trainers stopped reading it when rewards became returns; here a branch that ends early earns its last reward "
        "again on the turns it does not play (algorithm.absorb): drop it",
    ),
    Refused(
        ("model.model_kwargs.device_map", "agent_model.model_kwargs.device_map"),
        "a model is on one device: say agent_devices, or let Motet choose",
    ),
    Refused(
        ("model.special_tokens", "agent_model.special_tokens"),
        "new tokens need new embeddings: add them to a copy of the model, and give its folder as model.name",
        unless=(None, {}),
    ),
    Refused(
        ("critic_model", "critics", "critic", "*.critic_model", "*.critic_type", "*.critic_devices", "*.critic_learning_rate",
         "*.use_separate_critic", "*.value_loss_coef", "*.value_clip_range"),
        _NO_CRITIC,
    ),
    Refused(("*.num_return_sequences",), "an answer per prompt is num_generations: say that", unless=(None, 1)),
    Refused(("*.reference_devices",), "a reference stands on its model's device: drop it"),
    Refused(("dataset.size", "dataset.eval_size"), "say how many rows in the split: train_split: train[:128]"),
    Refused(("patches",), "they mended another trainer: drop them", unless=(None, {})),
)  # fmt: skip


def spellings_of(row: Row, sections: tuple[str, ...]) -> list[str]:
    """Every way to write a row's key where the trainer's section has one of these names; the later ones give way to the first."""
    return [
        spelling.replace("*", section, 1)
        for spelling in row.spellings
        for section in (sections if spelling.startswith("*.") else sections[:1])
    ]
