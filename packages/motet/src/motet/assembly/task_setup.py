"""Build and check the environment, team, tasks and sandbox of a run.

All errors in them are found here, before any expensive work.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from transformers.utils.logging import disable_progress_bar

from motet.algorithms import credit_function, plays_absent
from motet.assembly.derived import with_groups, with_rewards_at_end
from motet.assembly.objects import refuse_missing_objects
from motet.assembly.parts import comparator_of, environment_of, reward_of
from motet.assembly.services import Services
from motet.assembly.task_levels import check_weights, task_levels
from motet.assembly.tasks import Tasks, tasks_of
from motet.assembly.tools import with_tools
from motet.config.no_effect import refuse_keys_without_effect
from motet.config.schema import RunConfig, check_trainable
from motet.config.yaml import KeyPath, place_of
from motet.core import Environment, Task, Team, class_name
from motet.environments.centralized import Centralized
from motet.environments.mixture import Mixture
from motet.environments.registry import check_is_environment
from motet.environments.rewarded import Rewarded
from motet.environments.tool_use import ToolGame
from motet.errors import ConfigError
from motet.models.compute import DTYPES, check_attention, check_dtype, check_quantize
from motet.models.devices import resolve_device
from motet.models.optimizers import check_optimizer
from motet.rollout.play import check_plan
from motet.trainer.trackers import TRACKERS, check_tracker
from motet.user_code.plugins import nearest


@dataclass(frozen=True)
class TaskSetup:
    """The environment of a run and everything around it, already checked."""

    config: RunConfig
    environment: Environment[Any]
    team: Team
    tasks: Tasks
    """Split ("train", "eval") -> its tasks. A split without a source is absent."""
    sandbox_level: str | None
    """The protection level of the sandbox. None if the environment asked for no sandbox."""
    task_levels: Mapping[str, int | str] = field(default_factory=dict)
    """Training task -> its level, if `train.task_sampling` reads levels."""
    derived: Sequence[str] = ()
    """Which options of the algorithm were derived for training, and from what."""
    warnings: list[str] = field(default_factory=list)
    """Warnings about the models, found when they are prepared."""
    notes: list[str] = field(default_factory=list)
    """What a user should know: which agent has which tools, and about the models, found when they
    are prepared."""


@contextmanager
def open_task_setup(
    config: RunConfig,
    environment: Environment[Any] | None = None,
    *,
    train: bool,
    asks: Collection[str] = (),
    reads_tasks: bool = True,
) -> Iterator[TaskSetup]:
    """Build and check the task setup. The sandbox, if there is one, is closed at the end.

    Args:
        environment: replaces the configured one.
        asks: names of services that the command itself uses, besides the environment.
        reads_tasks: whether the command plays tasks; a team that a person asks needs no data.

    Raises: ConfigError.
    """
    refuse_missing_objects(config, train=train)
    derived: list[str] = []
    if train:
        config, derived = with_groups(config)
        check_trainable(config)
        if config.algorithm.own_credit is not None:
            credit_function(config.algorithm.own_credit)
        refuse_keys_without_effect(config)
        _check_devices(config)
        _check_report(config)
        comparator_of(config)
    else:
        config = config.without_teachers()
    services = Services(config, train)
    try:
        if environment is not None:
            check_is_environment(environment, "environment")
        stage = environment_of(config, services, asks) if environment is None else environment
        if config.reward is not None:
            stage = Rewarded(stage, reward_of(config), config.rollout.retries)
        if config.centralized is not None:
            stage = Centralized(stage, config.centralized.agent, config.centralized.tags)
        team = team_of(config, stage)
        stage, notes = with_tools(config, stage, services)
        absent = plays_absent(config.algorithm) if train else "none"
        check_plan(config.rollout, stage, team, absent)
        if train:
            config, more = with_rewards_at_end(config, stage)
            derived += more
            _check_rewards(config, stage)
        tasks = tasks_of(config, stage, train=train) if reads_tasks else Tasks(config, stage)
        levels: Mapping[str, int | str] = {}
        if train and reads_tasks:
            check_weights(config, stage)
            levels = task_levels(config, stage, tasks["train"])
        yield TaskSetup(
            config, stage, team, tasks, services.sandbox_level, levels, derived, notes=notes
        )
    finally:
        services.close()


def _check_rewards(config: RunConfig, stage: Environment[Any]) -> None:
    """Check that the algorithm fits when the environment rewards, and what it says of answers.

    Raises: ConfigError.
    """
    algorithm, turns = config.algorithm, len(config.rollout.samples)
    repeats = algorithm.repeat_last_reward and algorithm.returns == "tree" and turns > 1
    if repeats and stage.rewards_at_end:
        why = (
            "the calls of tools take turns"
            if isinstance(stage, ToolGame)
            else "games of a mixture differ in length, or are rewarded at their end only"
            if class_name(stage) == Mixture.__name__
            else f"{class_name(stage)} gives a reward only at the end of an episode"
        )
        raise ConfigError(
            f"{why}, but algorithm.repeat_last_reward: true repeats it for every turn not played: "
            "set algorithm.repeat_last_reward: false, or leave it out"
        )
    if algorithm.incentives.any:
        _check_incentives(config, stage)


def _check_incentives(config: RunConfig, stage: Environment[Any]) -> None:
    """Check the environment and the plan for incentives.

    Raises: ConfigError if the environment does not report which agent is right, or if the plan has
    fewer than two turns, so that no answer can change.
    """
    if not stage.says_right:
        raise ConfigError(
            f"algorithm.incentives need to know who is right, but {class_name(stage)} does not "
            "report it: use an environment with says_right, such as debate, or drop "
            "algorithm.incentives"
        )
    if len(config.rollout.samples) < 2:
        raise ConfigError(
            "algorithm.incentives need at least two turns, but rollout.samples "
            f"{list(config.rollout.samples)} has one: use more turns, or drop algorithm.incentives"
        )


def _check_devices(config: RunConfig) -> None:
    """Check devices and dtypes now, not after a warm-up that may take an hour."""
    for name, base in config.models.items():
        full = any(
            policy.train == "full" for policy in config.policies.values() if policy.model == name
        )
        with _set_at(config, ("models", name, "device")):
            device = resolve_device(base.device)
        check_dtype(base.dtype, device, trainable_full=full or config.warmup is not None)
        check_attention(base.attention, device, DTYPES[base.dtype])
        with _set_at(config, ("models", name, "quantize")):
            check_quantize(base.quantize, device)
        for kind in _optimizers_on(config, name):
            check_optimizer(kind, device)


def _check_report(config: RunConfig) -> None:
    """Check now that the trackers can be made, not after a warm-up that may take an hour."""
    for name in TRACKERS:
        with _set_at(config, ("report", name)):
            check_tracker(config.report, name)


@contextmanager
def _set_at(config: RunConfig, key: KeyPath) -> Iterator[None]:
    """Put the place where `key` is set before the message of an error about its value."""
    try:
        yield
    except ConfigError as error:
        place = place_of(config.places, key)
        raise ConfigError(f"{place}: {error}" if place else str(error)) from error


def _optimizers_on(config: RunConfig, model: str) -> set[str]:
    """Return the kinds of optimizer that train policies on a model, or warm it up.

    Critics are left out: they have no warm-up, so their own check comes early enough.
    """
    kinds: set[str] = {
        config.optimizer_of(name).kind
        for name, policy in config.policies.items()
        if policy.model == model and policy.train != "frozen"
    }
    if config.warmup is not None:
        kinds.add(config.warmup.kind)
    return kinds


def team_of(config: RunConfig, environment: Environment[Any]) -> Team:
    """Return the team: how each agent of the environment is played.

    Raises: ConfigError if the agents of the config and of the environment differ.
    """
    expected = set(environment.agents)
    if set(config.team) != expected:
        wrong = sorted(set(config.team) - expected)
        hint = nearest(wrong[0], expected) if wrong else ""
        raise ConfigError(
            f"team names {', '.join(config.team)}{hint}; environment {config.environment.name} "
            f"has the agents {', '.join(environment.agents)}; expected the same agents: "
            "team.AGENT=POLICY adds one, team.AGENT=null removes one"
        )
    return Team(
        agents={agent: config.team[agent].policy for agent in environment.agents},
        decode={agent: config.decode_of(agent) for agent in environment.agents},
        system={
            agent: text
            for agent in environment.agents
            if (text := config.team[agent].system) is not None
        },
        frozen=config.frozen,
        critics=config.critic_of,
        teachers=config.teachers,
    )


def use_threads(config: RunConfig) -> None:
    """Set the number of CPU threads. Call it before any model runs.

    Bit-exact results depend on the number of threads. The function also turns off the progress bars
    of transformers, because Motet shows its own.
    """
    disable_progress_bar()
    if config.threads is not None:
        torch.set_num_threads(config.threads)


class TeamSetup(Protocol):
    """The part of a `TaskSetup` that the models of a run depend on."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def team(self) -> Team: ...

    @property
    def tasks(self) -> Mapping[str, Sequence[Task]]: ...


def steps_of(setup: TeamSetup) -> int:
    """Return the number of training steps of the run."""
    length = setup.config.train
    if length.steps is not None:
        return length.steps
    assert length.epochs is not None
    return -(-length.epochs * len(setup.tasks["train"]) // tasks_per_step_of(setup))


def tasks_per_step_of(setup: TeamSetup) -> int:
    """Return the number of tasks of one training step."""
    chosen = setup.config.train.tasks_per_step
    return len(setup.tasks["train"]) if chosen == "all" else chosen
