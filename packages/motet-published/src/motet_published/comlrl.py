"""Translate the configs of CoMLRL's trainers: grpo, magrpo, ac, iac and maac.

The keys that set one key of Motet's config by themselves are in comlrl_keys.py. Here are those that
have a meaning only together.
"""

from collections.abc import Sequence
from pathlib import Path

from motet.settings import Plan
from motet_published.benchmarks import (
    BUILD_TYPES,
    CODE_TYPES,
    DATASET_TYPES,
    TRAVEL_TYPES,
    WRITING_TYPES,
    environment_of,
    inferred_type,
)
from motet_published.comlrl_calls import set_calls
from motet_published.comlrl_experts import set_expert
from motet_published.comlrl_minecraft import set_building, set_building_data
from motet_published.comlrl_models import Critics, ModelOnDevice, set_agents, set_critics
from motet_published.comlrl_travel import set_travel, set_travel_data
from motet_published.translation import Translation

# Defaults of the published trainers, for the keys of these names
NUM_TURNS, ROLLOUT_BUFFER_SIZE, REFERENCE_KL_COEF = 1, 1, 0.1
ADAM_BETA1, ADAM_BETA2 = 0.9, 0.999
COLLABORATION, EVALUATED = "trainer.collaboration_mode", "trainer.eval_num_samples"
WEIGHT, THRESHOLD = "trainer.early_termination_weight", "trainer.early_termination_threshold"
TERMINATION_REWARD, TERMINATION_REWARD_ALONE = 4.0, 2.1
"""The most that a team earns, and a single agent: the first trainers stopped there."""


def grpo(config: Translation, name: str) -> None:
    _translate(config, name, "grpo", default_agents=1)


def magrpo(config: Translation, name: str) -> None:
    _translate(config, name, "magrpo")


def ac(config: Translation, name: str) -> None:
    if config.get("trainer.num_agents", 1) != 1:
        raise config.error("trainer.num_agents", "ac trains one agent: use train_iac.py")
    _translate(config, name, "iac", default_agents=1, critics="one per agent")


def iac(config: Translation, name: str) -> None:
    _translate(config, name, "iac", critics="one per agent")


def maac(config: Translation, name: str) -> None:
    _translate(config, name, "maac", critics="one for all agents")


def _translate(
    config: Translation,
    name: str,
    algorithm: str,
    default_agents: int = 2,
    critics: Critics | None = None,
) -> None:
    generations: int = config.get("trainer.num_generations", 4 if critics is None else 1)
    samples = [generations] * config.get("trainer.num_turns", NUM_TURNS)
    agents, models = set_task(config, name, algorithm, samples, default_agents)
    set_updates(config, samples, agents, models, critics)
    ignore_sections_that_are_off(config)


def set_task(
    config: Translation, name: str, algorithm: str, samples: Sequence[int], default_agents: int = 2
) -> tuple[int, list[ModelOnDevice]]:
    """Set what is played: the data, the environment, the models and the plan.

    Returns the number of agents, and the model of each.
    """
    dataset_type = _dataset_type(config)
    listed = len(config["agents"]) if "agents" in config else default_agents
    agents: int = config.get("trainer.num_agents", listed)
    config.set("name", name)
    config.runs = Path(config.get("output.base_dir", config.runs))
    config.set("algorithm.name", algorithm)
    config.set("rollout.samples", list(samples))
    parts = _parts(config, dataset_type)
    if dataset_type in BUILD_TYPES:
        set_building_data(config, dataset_type, parts)
    elif dataset_type in TRAVEL_TYPES:
        set_travel_data(config, parts)
    else:
        _set_data(config, parts)
    set_building(config, dataset_type, agents)
    set_calls(config, dataset_type)
    agent_names = _set_environment(config, dataset_type, agents)
    if config.get(COLLABORATION, False):
        config.set("centralized.agent", "joint", COLLABORATION)
        if dataset_type in CODE_TYPES and agents == 2:
            tags = dict(zip(agent_names, ("auxiliary", "main"), strict=True))
            config.set("centralized.tags", tags, COLLABORATION)
        agent_names = ["joint"]
    models = set_agents(config, agent_names)
    set_travel(config, dataset_type, agent_names)
    if dataset_type not in WRITING_TYPES and WEIGHT in config and len(samples) > 1:
        config.set("environment.stop_when_solved", False, WEIGHT)
    _set_optimizer(config)
    _set_feedback(config)
    set_expert(config, is_default=WEIGHT in config and len(samples) > 1)
    return agents, models


def set_updates(
    config: Translation,
    samples: Sequence[int],
    agents: int,
    models: Sequence[ModelOnDevice],
    critics: Critics | None,
    default_buffer: int = ROLLOUT_BUFFER_SIZE,
) -> None:
    """Set how a policy-gradient algorithm learns: the batches, the credit and the critics."""
    tasks = _tasks_per_step(config, samples, agents, critics is not None, default_buffer)
    _set_batch(config, tasks)
    _set_credit(config, turns=len(samples))
    _set_early_termination(config, turns=len(samples), agents=agents)
    _set_kl_penalty(config)
    if "trainer.epsilon_clip" in config:
        config.set("algorithm.loss.kind", "clipped_surrogate", "trainer.epsilon_clip")
        config.copy("trainer.epsilon_clip", "algorithm.loss.clip_low", "algorithm.loss.clip_high")
    normalization = "trainer.advantage_normalization"
    if critics is None and normalization in config:
        scale = "std" if config[normalization] else "none"
        config.set("algorithm.credit.scale", scale, normalization)
    elif normalization in config:
        # As published, advantages are not normalised if a step has only one sample per agent and
        # turn: that would make the advantage zero.
        whiten = config[normalization] and tasks * samples[0] > 1
        config.set("algorithm.credit.whiten", whiten, normalization)
    if critics is not None:
        set_critics(config, critics, models)


# --------------------------------------------------------------------------- data and environment


def _dataset_type(config: Translation) -> str:
    """Return the type of the data set.

    Raises ConfigError if it is not one of the published data sets and dataset.type is not set.
    """
    name: str = config["dataset.name"]
    expected = ", ".join(DATASET_TYPES)
    if "dataset.type" in config:
        written: str = config["dataset.type"]
        if written.lower() not in DATASET_TYPES:
            raise config.error("dataset.type", f"got {written!r}, expected one of {expected}")
        return written.lower()
    inferred = inferred_type(name)
    if inferred is None:
        raise config.error(
            "dataset.name",
            f"got {name!r}, which does not imply the type of the dataset: set dataset.type to one "
            f"of {expected}",
        )
    return inferred


def _parts(config: Translation, dataset_type: str) -> Sequence[str]:
    """Return the parts of the data that are used. eval_num_samples: 0 evaluates nothing."""
    if config.get(EVALUATED) == 0:
        config.ignore("{key} is 0, so no held-out data is read", EVALUATED)
        return ("train",)
    config.copy(EVALUATED, "evaluation.tasks")
    held_out = "dataset.eval_split" in config or dataset_type in TRAVEL_TYPES
    return ("train", "eval") if held_out else ("train",)


def _set_data(config: Translation, parts: Sequence[str]) -> None:
    """Set the data sets.

    A name that exists as a path is a path. A file has one split, whatever its name, and slices of
    this split are used.
    """
    source = "path" if Path(config["dataset.name"]).exists() else "name"
    for part in parts:
        split = f"dataset.{part}_split"
        config.copy("dataset.name", f"data.{part}.{source}")
        config.set(f"data.{part}.split", config[split], split)


def _set_environment(config: Translation, dataset_type: str, agents: int) -> Sequence[str]:
    """Set the environment, and return the names of its agents."""
    try:
        environment = environment_of(dataset_type, agents)
    except ValueError as error:
        key = "trainer.num_agents" if "trainer.num_agents" in config else "agents"
        raise config.error(key, f"got {agents}, {error}") from error
    config.set("environment.name", environment.name)
    for option, value in environment.options.items():
        config.set(f"environment.{option}", value)
    for option, value in environment.sandbox.items():
        config.set(f"sandbox.{option}", value)
    return environment.agents


def _set_feedback(config: Translation) -> None:
    """Set what a later turn's prompt contains of the turn before."""
    if config.get("external.sandbox_slice") == "all":  # then no test is held back for grading
        config.set("environment.feedback.grade_shown", True, "external.sandbox_slice")
    config.copy("external.memory_mode", "environment.history")
    # These two keys date from a version in which a later prompt contained only them, and no history
    for key, option in (
        ("external.original_prompt", "restate_problem"),
        ("external.previous_response", "restate_answer"),
    ):
        if config.get("external.memory_mode", "none") != "none":
            if not config.get(key, True):
                config.ignore(
                    "{key} needs external.memory_mode: last; a full history contains all previous "
                    "turns",
                    key,
                )
        elif key in config:
            config.set("environment.history", "none", key)
            config.copy(key, f"environment.feedback.{option}")


# -------------------------------------------------------------------------------------- learning


def _tasks_per_step(
    config: Translation,
    samples: Sequence[int],
    agents: int,
    has_critic: bool,
    default_buffer: int,
) -> int:
    """Return the number of tasks per step.

    The published trainers gather rollout_buffer_size Rounds (with a critic: samples of one agent).
    Then they take one step per train_batch_size of them, and only the first of these steps is on
    policy. Motet plays whole tasks in a step, as many as give that many Rounds, but at least one.
    All of its optimizer steps are on policy.
    """
    plan = Plan(
        samples=tuple(samples),
        pairing=config.get("trainer.joint_mode", "aligned"),
        expand=config.get("trainer.handoff", "best" if WEIGHT in config else "all"),
        max_nodes=10**9,
    )
    rounds = plan.rounds(agents)
    if has_critic:
        rounds = tuple(count * each for count, each in zip(rounds, samples, strict=True))
    buffer: int = config.get("trainer.rollout_buffer_size", default_buffer)
    batch: int = config.get("trainer.train_batch_size", buffer)
    least: int = config.get("trainer.per_device_train_batch_size", 1)
    return max(least, min(buffer, batch) // sum(rounds))


def _set_batch(config: Translation, tasks: int) -> None:
    """Set the tasks per step. eval_interval counts tasks and is converted to steps."""
    config.set("train.epochs", config["trainer.num_train_epochs"], "trainer.num_train_epochs")
    config.set("train.tasks_per_step", tasks)
    if "trainer.eval_interval" in config:
        interval: int = config["trainer.eval_interval"]
        every = max(1, interval // tasks) if interval else 0  # 0 turns evaluation off
        config.set("evaluation.every", every, "trainer.eval_interval")


def _set_credit(config: Translation, turns: int) -> None:
    config.copy("trainer.discount", "algorithm.gamma")
    if "trainer.handoff" in config:
        # one joint action per Round is expanded; its siblings get credit for what follows from it
        config.copy("trainer.handoff", "rollout.expand")
        config.set("algorithm.pruned", "sibling_mean", "trainer.handoff")
    key = "trainer.turn_gradient_weights"
    if key in config:
        weights = config[key] if isinstance(config[key], list) else [config[key]]
        if len(weights) != turns:
            raise config.error(
                key, f"got {len(weights)} weights for {turns} turn(s), expected one each"
            )
        config.set("algorithm.turn_weights", weights, key)


def _set_early_termination(config: Translation, turns: int, agents: int) -> None:
    """Set what the first trainers of several turns did, which read early_termination_weight.

    They paid a turn its own reward only. The best joint sample of a turn went on. If the mean
    reward of a turn was the highest possible, the task was over, and the loss of that turn was
    multiplied with the weight.
    """
    if turns == 1:
        config.ignore("{key} is for several turns", WEIGHT)
    if turns == 1 or WEIGHT not in config:
        return
    if "trainer.handoff" not in config:
        config.set("rollout.expand", "best", WEIGHT)
    if "trainer.discount" not in config:
        config.set("algorithm.returns", "current", WEIGHT)
    if config.get(THRESHOLD, TERMINATION_REWARD) is None:
        config.ignore("{key} needs early_termination_threshold", WEIGHT)
        return
    if THRESHOLD not in config:
        reward = TERMINATION_REWARD if agents > 1 else TERMINATION_REWARD_ALONE
        config.set("rollout.stop_at_reward", reward, WEIGHT)
    config.set("rollout.stop_by", "round", WEIGHT)
    config.copy(WEIGHT, "algorithm.stopped_weight")


def _set_kl_penalty(config: Translation) -> None:
    """Set the KL penalty in the reward."""
    if config.get("trainer.reference_kl_enabled", False):
        coefficient = config.get("trainer.reference_kl_coef", REFERENCE_KL_COEF)
        config.set("algorithm.kl.kind", "reward", "trainer.reference_kl_enabled")
        config.set("algorithm.kl.coefficient", coefficient, "trainer.reference_kl_enabled")
    else:
        config.ignore("{key} needs reference_kl_enabled: true", "trainer.reference_kl_coef")


def _set_optimizer(config: Translation) -> None:
    first, second = "trainer.adam_beta1", "trainer.adam_beta2"
    if first in config or second in config:
        betas = [config.get(first, ADAM_BETA1), config.get(second, ADAM_BETA2)]
        config.set("optimizer.betas", betas, first if first in config else second)


def ignore_sections_that_are_off(config: Translation) -> None:
    if not config.get("reward_processor.enabled", True):
        keys = [  # as written: trainer.reward_shift is another spelling, and not of this section
            key
            for key, written in config.values.items()
            if written.key.startswith("reward_processor.")
        ]
        config.ignore("reward_processor.enabled is false, so rewards are not changed", *keys)
    if not config.get("wandb.enabled", False):
        config.ignore(
            "wandb is off: to turn it on, set wandb.enabled=true and wandb.entity, and run pip "
            "install 'motet[wandb]'",
            *(key for key in config.values if key.startswith("wandb.")),
        )
