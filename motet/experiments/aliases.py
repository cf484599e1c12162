"""The table of published keys: every spelling, where it goes in Motet's config, or why it does not.

The experiments of CoMLRL have this one, MAPoRL's have `maporl_aliases`; `rows` says what a row is.
"""

from typing import Any

from motet.experiments.rows import (
    TYPES,
    AtLeast,
    Goes,
    Joins,
    OneOf,
    Refused,
    Row,
    Told,
    a_number,
    a_text,
    texts,
    yes_or_no,
)

NO_CRITIC = "has no critic: drop it, or use train_iac.py or train_maac.py"
_KNOWN_BY_ITSELF = "a model's own config says what it is"
_CODE_OF_OTHERS = "Motet runs no code that comes with a model; transformers knows the published models by itself"


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
PARALLEL = OneOf({"none": False, "auto": False, "mp": True})
MEMORIES = OneOf({"full": "own", "memoryful": "own", "last": "none"})


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
    Joins(("*.parallel_training",), "models.*.device: none is one for all, mp one each", PARALLEL),
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
    Joins(("*.handoff",), "rollout.expand, and algorithm.pruned: lend", OneOf({"best": "best", "random": "random"})),
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
    Joins(("*.train_batch_size", "*.mini_batch_size"), "train.tasks_per_step: Rounds of one optimiser step", AtLeast(1)),
    Joins(("*.per_device_train_batch_size",), "train.tasks_per_step: tasks at least", AtLeast(1)),
    Goes(("*.discount",), "algorithm.discount"),
    Joins(("*.turn_gradient_weights",), "algorithm.turn_weights: one per turn"),
    Joins(
        ("*.advantage_normalization", "*.normalize_advantage"), "algorithm.scale, or algorithm.whiten with a critic", yes_or_no
    ),
    Joins(("*.beta",), "algorithm.kl_in: loss, kl_estimator: k3, kl_coefficient"),
    Joins(("*.reference_kl_coef",), "algorithm.kl_in: reward, kl_coefficient"),
    Joins(("*.reference_kl_enabled",), "whether algorithm.kl_coefficient is reference_kl_coef", yes_or_no),
    Joins(("*.epsilon_clip",), "algorithm.policy_loss: clipped_surrogate, clip_low, clip_high"),
    Goes(("seed", "*.seed"), "seed"),
    # critics
    Joins(
        ("critic_model.name", "critic.name", "*.critic_model", "*.critic_model_name_or_path"),
        "critic.model: for all critics, or each agent's own",
        a_text,
        critic=True,
    ),
    Joins(("critics",), "critic.model: one name per critic", texts, critic=True),
    Joins(
        ("critic_model.model_kwargs.torch_dtype", "critic.model_kwargs.torch_dtype", "critic_model.torch_dtype",
         "critic.torch_dtype", "critic_model.dtype", "critic.dtype"),
        "models.critic.dtype",
        TYPES,
        critic=True,
    ),
    Joins(("*.critic_devices",), "models.critic.device", texts, critic=True),
    Joins(("*.use_separate_critic",), "critic.train: full, or a head on the policy itself", yes_or_no, critic=True),
    Joins(("*.critic_learning_rate",), "critic.optimizer.learning_rate", critic=True),
    Joins(("*.value_loss_coef",), "critic.coefficient: twice it, the loss is half the squared error", a_number, critic=True),
    Joins(("*.value_clip_range",), "algorithm.clip_value, where a critic is a head on the policy", critic=True),
    Goes(("*.entropy_coef",), "algorithm.entropy_coefficient", critic=True),
    Told(("critic_model.type", "critic.type"), _KNOWN_BY_ITSELF, critic=True),
    Told(
        tuple(f"{section}.{name}" for section in ("critic_model", "critic")
              for name in ("temperature", "top_p", "top_k", "max_length")),
        "a critic says nothing, and reads as much as its model can",
        critic=True,
    ),
    Told(("*.reward_norm_eps",), "the spread of advantages has a floor of its own", critic=True),
    Refused(
        ("*.critic_type",),
        "a critic that reads the answer too (q) would bias the gradient when it is subtracted from the return: use v",
        unless=(None, "v"),
        critic=True,
    ),
    Refused(
        ("*.ac_epochs",),
        "a policy gradient without a ratio allows one pass: for more, say motet.algorithm.name=ippo (maac: mappo)",
        unless=(None, 1),
        critic=True,
    ),
    Refused(("*.value_head_hidden_dim", "*.critic_value_head_hidden_dim"), "a value head is one linear layer", critic=True),
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
    Told(("model.type", "agent_model.type"), _KNOWN_BY_ITSELF),
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
    Refused(("*.num_return_sequences",), "an answer per prompt is num_generations: say that", unless=(None, 1)),
    Refused(("*.reference_devices",), "a reference stands on its model's device: drop it"),
    Refused(("dataset.size", "dataset.eval_size"), "say how many rows in the split: train_split: train[:128]"),
    Refused(("patches",), "they mended another trainer: drop them", unless=(None, {})),
)  # fmt: skip
