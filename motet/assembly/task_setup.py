"""Build and check the environment, team, tasks and sandbox of a run.

All errors in them are found here, before any expensive work.
"""

import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from motet.assembly.tasks import Tasks, asking, tasks_of
from motet.assembly.terminal import Terminal, someone_is_there
from motet.config.parts import ExpertConfig, VerifierConfig
from motet.config.schema import RunConfig, check_trainable
from motet.config.yaml import validate_options
from motet.core import Environment, Prompt, Task, Team
from motet.endpoint import Endpoint
from motet.environments.centralized import Centralized
from motet.environments.registry import check_is_environment, create
from motet.environments.registry import resolve as resolve_environment
from motet.environments.rewarded import Rewarded
from motet.errors import ConfigError
from motet.models.attention_choice import check_attention
from motet.models.loading import DTYPES, check_dtype, load_tokenizer, resolve_device
from motet.models.optimizers import check_optimizer
from motet.models.prompts import encode
from motet.models.quantized import check_quantize
from motet.plugins import is_reference, load_object, nearest
from motet.reward_server import AnswerScorer, ConstantScores, Ensemble, RewardServer
from motet.rollout.play import check_plan
from motet.rollout.prompts import with_system
from motet.sandbox import Level, Limits, Sandbox
from motet.seeding import derive
from motet.timeouts import at_once, guarded, within
from motet.verifier.model import Verifier, check_folder
from motet.verifier.scorer import LocalScorer


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


@contextmanager
def open_task_setup(
    config: RunConfig,
    environment: Environment[Any] | None = None,
    *,
    train: bool,
    asks: Collection[str] = (),
) -> Iterator[TaskSetup]:
    """Build and check the task setup. The sandbox, if there is one, is closed at the end.

    Args:
        environment: replaces the configured one.
        asks: names of services that the command itself uses, besides the environment.

    Raises: ConfigError.
    """
    if train:
        check_trainable(config)
        _check_devices(config)
    services = _Services(config, train)
    try:
        if environment is None:
            stage = _environment(config, services, asks)
        else:
            check_is_environment(environment, "environment")
            stage = environment
        if config.reward is not None:
            stage = Rewarded(stage, _reward(config))
        if config.centralized is not None:
            stage = Centralized(stage, config.centralized.agent, config.centralized.tags)
        team = team_of(config, stage)
        check_plan(
            config.rollout, stage, team, greedy_path=config.algorithm.baseline == "greedy_path"
        )
        if (
            train
            and config.algorithm.repeat_last_reward
            and len(config.rollout.samples) > 1
            and stage.rewards_at_end
        ):
            raise ConfigError(
                f"{type(stage).__name__} rewards the end of an episode only, and "
                "algorithm.repeat_last_reward: true would pay an early "
                f"end once more for every turn not played: set algorithm.repeat_last_reward: false"
            )
        if train and config.algorithm.incentives.any:
            _check_incentives(config, stage)
        yield TaskSetup(
            config, stage, team, tasks_of(config, stage, train=train), services.sandbox_level
        )
    finally:
        services.close()


def _check_incentives(config: RunConfig, stage: Environment[Any]) -> None:
    """Check the environment and the plan for incentives.

    Raises: ConfigError if the environment does not report which agent is right, or if the plan has
    fewer than two turns, so that no answer can change.
    """
    if not stage.says_right:
        raise ConfigError(
            f"algorithm.incentives need to know who was right, and {type(stage).__name__} has no "
            "gold labels: "
            f"use an environment that says so, such as debate, or drop them"
        )
    if len(config.rollout.samples) < 2:
        raise ConfigError(
            "algorithm.incentives are for what changes between turns, and rollout.samples "
            f"{list(config.rollout.samples)} "
            f"plays one: play more, or drop them"
        )


def _check_devices(config: RunConfig) -> None:
    """Check devices and dtypes now, not after a warm-up that may take an hour."""
    for name, base in config.models.items():
        full = any(
            policy.train == "full" for policy in config.policies.values() if policy.model == name
        )
        device = resolve_device(base.device)
        check_dtype(base.dtype, device, trainable_full=full or config.warmup is not None)
        check_attention(base.attention, device, DTYPES[base.dtype])
        check_quantize(base.quantize, device)
        for kind in _optimizers_on(config, name):
            check_optimizer(kind, device)


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


class _Services(Mapping[str, Any]):
    """The services that environments may request by name. Each is created at its first request.

    `expert`, `person` and `verifier` are None if there is none. `turns` is the number of turns of
    the plan. `open_sandbox` is a function that returns the sandbox, for environments that may do
    without one.
    """

    def __init__(self, config: RunConfig, train: bool) -> None:
        self._config, self._train = config, train
        self._makers: dict[str, Callable[[], Any]] = {
            "sandbox": self._sandbox,
            "open_sandbox": lambda: lambda: self["sandbox"],
            "expert": self._expert,
            "person": self._person,
            "verifier": self._verifier,
            "turns": lambda: len(config.rollout.samples),
        }
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._makers[name]()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)

    def _sandbox(self) -> Sandbox:
        chosen = self._config.sandbox
        limits = Limits(
            wall_seconds=chosen.wall_seconds,
            cpu_seconds=chosen.cpu_seconds,
            memory_mb=chosen.memory_mb,
        )
        return Sandbox(
            chosen.workers, Level[chosen.minimum_level.upper()], limits, packages=chosen.packages
        )

    def _expert(self) -> Endpoint | None:
        return (
            None
            if self._config.expert is None
            else expert_of(self._config.expert, self._config.seed)
        )

    def _verifier(self) -> AnswerScorer | None:
        return (
            None
            if self._config.verifier is None
            else verifier_of(self._config.verifier, self._config.seed)
        )

    def _person(self) -> Terminal | None:
        """Return None in training without a terminal: nobody answers a pipe for hours."""
        return Terminal() if not self._train or someone_is_there() else None

    def check_asked(self, environment: str, others: Collection[str]) -> None:
        """Check that every configured service is used.

        Raises: ConfigError if a config section names a service that neither the environment nor a
        caller in `others` requests.
        """
        for name in ("expert", "verifier"):
            if (
                getattr(self._config, name) is not None
                and name not in self._made
                and name not in others
            ):
                raise ConfigError(
                    f"{name} is set, but environment {environment} asks for none: drop it ({name}: "
                    "null)"
                )

    @property
    def sandbox_level(self) -> str | None:
        return self._made["sandbox"].level.name.lower() if "sandbox" in self._made else None

    def close(self) -> None:
        if "sandbox" in self._made:
            self._made["sandbox"].close()


def expert_of(chosen: ExpertConfig, seed: int) -> Endpoint:
    """Return the endpoint that gives feedback.

    Raises: ConfigError if its key is missing or not valid.
    """
    return Endpoint(
        chosen.base_url,
        chosen.model,
        key=_key("expert", chosen),
        parameters=chosen.parameters,
        timeout_seconds=chosen.timeout_seconds,
        retries=chosen.retries,
        concurrency=chosen.concurrency,
        jitter=random.Random(derive(seed, "expert")).random,
    )


def verifier_of(chosen: VerifierConfig, seed: int) -> AnswerScorer:
    """Return the scorer of completions. The model of a folder is loaded at the first scoring.

    Raises: ConfigError if a folder holds no complete verifier, or if a key is missing or not valid.
    """
    if chosen.ensemble:
        members = [
            verifier_of(one, derive(seed, number)) for number, one in enumerate(chosen.ensemble)
        ]
        return Ensemble(members, chosen.combine)
    if chosen.folder is not None:
        check_folder(chosen.folder, chosen.reads)
        resolve_device(chosen.device)
        return LocalScorer(
            partial(Verifier.load, chosen.folder, device=chosen.device, reads=chosen.reads),
            token_budget=chosen.token_budget,
        )
    if chosen.constant is not None:
        return ConstantScores(chosen.constant)
    assert chosen.base_url is not None
    return RewardServer(
        chosen.base_url,
        batch_size=chosen.batch_size,
        key=_key("verifier", chosen),
        timeout_seconds=chosen.timeout_seconds,
        retries=chosen.retries,
        concurrency=chosen.concurrency,
        jitter=random.Random(derive(seed, "verifier")).random,
    )


def _key(section: str, chosen: ExpertConfig | VerifierConfig) -> str | None:
    """Return the key from its environment variable, or None if the server needs no key."""
    if chosen.key_variable is None:
        return None
    key = os.environ.get(chosen.key_variable, "").strip()
    if not key:
        raise ConfigError(
            f"{section}.key_variable names {chosen.key_variable}, which is not set: put the key of "
            f"{chosen.base_url} in it, "
            f"or drop key_variable where the server wants none"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"{chosen.key_variable} holds what cannot be a key; expected letters, digits and signs"
        )
    return key


def _environment(config: RunConfig, services: _Services, asks: Collection[str]) -> Environment[Any]:
    kind = resolve_environment(config.environment.name)
    schema = kind.Options
    options = config.environment.options
    if schema is not None:
        validate_options(schema, options, config.places, ("environment",))
    with asking(config.environment.name):
        environment = create(kind, options, services)
    services.check_asked(config.environment.name, asks)
    return environment


def _reward(config: RunConfig) -> Any:
    assert config.reward is not None
    name, options = config.reward.name, config.reward.options
    if not is_reference(name):
        raise ConfigError(
            f"reward.name is {name!r}; expected package.module:NAME or ./file.py:NAME"
        )
    try:
        found = load_object(name)
    except ConfigError as error:
        raise ConfigError(f"reward.name: {error}") from error
    if not callable(getattr(found, "score", None)) and (
        isinstance(found, type) or not callable(found)
    ):
        raise ConfigError(
            f"reward.name is {name!r}, which cannot score; expected a function, or a class with "
            "score"
        )
    if isinstance(found, type):
        schema = found.Options if hasattr(found, "Options") else None
        if schema is None and options:
            raise ConfigError(
                f"reward sets {', '.join(options)}, but {config.reward.name} has no options: give "
                "it an inner Options"
            )
        return (
            found()
            if schema is None
            else found(validate_options(schema, options, config.places, ("reward",)))
        )
    if options:
        raise ConfigError(
            f"reward sets {', '.join(options)}, but {config.reward.name} is a function: it has no "
            "options"
        )
    return found


def team_of(config: RunConfig, environment: Environment[Any]) -> Team:
    """Return the team: how each agent of the environment is played.

    Raises: ConfigError if the agents of the config and of the environment differ.
    """
    expected = set(environment.agents)
    if set(config.team) != expected:
        wrong = sorted(set(config.team) - expected)
        hint = nearest(wrong[0], expected) if wrong else ""
        raise ConfigError(
            f"team names {', '.join(config.team)}{hint}; environment {config.environment.name} has "
            "the agents "
            f"{', '.join(environment.agents)}: name each once; team.AGENT=POLICY adds one, "
            "team.AGENT=null drops one"
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
    )


async def first_prompts(setup: TaskSetup, task: Task) -> dict[str, Prompt]:
    """Return the first prompt of each acting agent, including its system message.

    Raises: ConfigError for every error of the environment.
    """
    config, environment, limit = (
        setup.config,
        setup.environment,
        setup.config.rollout.timeout_seconds,
    )
    with asking(f"{config.environment.name}, the first prompts of task {task.id}"), guarded(limit):
        state = await within(
            limit, "start", lambda: environment.start(task, derive(config.seed, "first prompts"))
        )
        try:
            prompts = at_once(limit, "observe", lambda: environment.observe(state))
        finally:
            await within(limit, "close", lambda: environment.close(state), even_given_up=True)
    return {
        agent: with_system(prompt, setup.team.system.get(agent, ""))
        for agent, prompt in prompts.items()
    }


async def check_first_prompts(setup: TaskSetup, bases: Mapping[str, str | Path]) -> None:
    """Check, before any model is loaded, that every first prompt leaves room for a completion.

    Raises: ConfigError that names the agent and both lengths.
    """
    tokenizers = cache(load_tokenizer)
    for agent, prompt in (await first_prompts(setup, setup.tasks.first)).items():
        model = setup.config.policies[setup.team.policy_of(agent, 0)].model
        words, context = tokenizers(bases[model])
        length = len(encode(words, prompt))
        if length >= context:
            raise ConfigError(
                f"the first prompt of agent {agent} has {length} tokens, and model {model} has a "
                f"context of {context}: "
                "expected room for an answer. Shorten the prompt, or use a model with a longer "
                "context"
            )


def use_threads(config: RunConfig) -> None:
    """Set the number of CPU threads. Call it before any model runs.

    Bit-exact results depend on the number of threads. The function also turns off the progress bars
    of transformers, because Motet shows its own.
    """
    disable_progress_bar()
    if config.threads is not None:
        torch.set_num_threads(config.threads)


def steps_of(setup: TaskSetup) -> int:
    """Return the number of training steps of the run."""
    length = setup.config.train
    if length.steps is not None:
        return length.steps
    assert length.epochs is not None
    return -(-length.epochs * len(setup.tasks["train"]) // length.tasks_per_step)
