"""What is played: environment, team, tasks, sandbox. Everything that can be wrong about it is found here, before any work."""

import os
import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils.logging import disable_progress_bar

from motet.build.tasks import Tasks, asking, tasks_of
from motet.build.terminal import Terminal, someone_is_there
from motet.config.parts import Expert, Verifier
from motet.config.schema import RunConfig, check_trainable
from motet.config.yaml import validate_options
from motet.core import Environment, Team
from motet.endpoint import Endpoint
from motet.environments.registry import create, options_of
from motet.environments.registry import resolve as resolve_environment
from motet.environments.rewarded import Rewarded
from motet.errors import ConfigError
from motet.plugins import is_reference, load_object, nearest
from motet.policies.attention_choice import check_attention
from motet.policies.loading import DTYPES, check_dtype, load_tokenizer, resolve_device
from motet.policies.optimizers import check_optimizer
from motet.policies.prompts import encode
from motet.policies.quantized import check_quantize
from motet.reward_server import ConstantScores, Ensemble, RewardServer, Scores
from motet.rollout.play import check_plan
from motet.rollout.prompts import with_system
from motet.sandbox import Level, Limits, Sandbox
from motet.seeding import derive
from motet.timeouts import at_once, guarded, within
from motet.verifier.model import Verifier as Verifying
from motet.verifier.model import check_folder
from motet.verifier.scorer import LocalScorer


@dataclass(frozen=True)
class Scene:
    """What is played, and everything about it that can be wrong has been looked at."""

    config: RunConfig
    environment: Environment[Any]
    team: Team
    tasks: Tasks
    """Split ("train", "eval") -> its tasks; a split nobody has is absent."""
    sandbox_level: str | None
    """The protection under which code that models write is run; None where the environment asked for no sandbox."""


@contextmanager
def open_scene(
    config: RunConfig, environment: Environment[Any] | None = None, *, train: bool, asks: Collection[str] = ()
) -> Iterator[Scene]:
    """Builds and checks what is played; the sandbox, if the environment asked for one, lives until the end.

    `environment` stands in for the configured one; `asks` names services that the command has a use for, besides the environment.
    Raises: ConfigError.
    """
    if train:
        check_trainable(config)
        _check_devices(config)
    services = _Services(config, train)
    try:
        stage = environment or _environment(config, services, asks)
        if config.reward is not None:
            stage = Rewarded(stage, _reward(config))
        team = team_of(config, stage)
        check_plan(config.rollout, stage, team, greedy_path=config.algorithm.baseline == "greedy_path")
        if train and config.algorithm.absorb and len(config.rollout.samples) > 1 and hasattr(stage, "rewards_at_end"):
            raise ConfigError(
                f"{type(stage).__name__} rewards the end of an episode only, and algorithm.absorb: true would pay an early "
                f"end once more for every turn not played: set algorithm.absorb: false"
            )
        if train and config.algorithm.incentives.any:
            _check_incentives(config, stage)
        yield Scene(config, stage, team, tasks_of(config, stage, train=train), services.sandbox_level)
    finally:
        services.close()


def _check_incentives(config: RunConfig, stage: Environment[Any]) -> None:
    """Raises: ConfigError where nobody says who was right, or nobody can change their mind."""
    if not hasattr(stage, "says_right"):
        raise ConfigError(
            f"algorithm.incentives need to know who was right, and {type(stage).__name__} has no gold labels: "
            f"use an environment that says so, such as debate, or drop them"
        )
    if len(config.rollout.samples) < 2:
        raise ConfigError(
            f"algorithm.incentives are for what changes between turns, and rollout.samples {list(config.rollout.samples)} "
            f"plays one: play more, or drop them"
        )


def _check_devices(config: RunConfig) -> None:
    """Before a warm-up of an hour, not after it."""
    for name, base in config.models.items():
        full = any(policy.train == "full" for policy in config.policies.values() if policy.model == name)
        device = resolve_device(base.device)
        check_dtype(base.dtype, device, trainable_full=full or config.warmup is not None)
        check_attention(base.attention, device, DTYPES[base.dtype])
        check_quantize(base.quantize, device)
        for kind in _optimizers_on(config, name):
            check_optimizer(kind, device)


def _optimizers_on(config: RunConfig, model: str) -> set[str]:
    """The kinds of optimiser that step policies on a model, or warm it up. Critics have no warm-up to wait for."""
    kinds: set[str] = {
        config.optimizer_of(name).kind
        for name, policy in config.policies.items()
        if policy.model == model and policy.train != "frozen"
    }
    if config.warmup is not None:
        kinds.add(config.warmup.kind)
    return kinds


class _Services(Mapping[str, Any]):
    """What environments may ask for by name; made when asked for. `expert`, `person` and `verifier` are None where there is none,
    `turns` is how many the plan has, and `open_sandbox` gives the sandbox to those that may do without."""

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
        limits = Limits(wall_seconds=chosen.wall_seconds, cpu_seconds=chosen.cpu_seconds, memory_mb=chosen.memory_mb)
        return Sandbox(chosen.workers, Level[chosen.minimum_level.upper()], limits, packages=chosen.packages)

    def _expert(self) -> Endpoint | None:
        return None if self._config.expert is None else expert_of(self._config.expert, self._config.seed)

    def _verifier(self) -> Scores | None:
        return None if self._config.verifier is None else verifier_of(self._config.verifier, self._config.seed)

    def _person(self) -> Terminal | None:
        """Training asks for hours: nobody answers a pipe for so long."""
        return Terminal() if not self._train or someone_is_there() else None

    def check_asked(self, environment: str, others: Collection[str]) -> None:
        """Raises: ConfigError for a section that names a service, where neither the environment nor `others` ask for it."""
        for name in ("expert", "verifier"):
            if getattr(self._config, name) is not None and name not in self._made and name not in others:
                raise ConfigError(f"{name} is set, but environment {environment} asks for none: drop it ({name}: null)")

    @property
    def sandbox_level(self) -> str | None:
        return self._made["sandbox"].level.name.lower() if "sandbox" in self._made else None

    def close(self) -> None:
        if "sandbox" in self._made:
            self._made["sandbox"].close()


def expert_of(chosen: Expert, seed: int) -> Endpoint:
    """The endpoint that gives feedback. Raises: ConfigError for a key that is not there, or cannot be one."""
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


def verifier_of(chosen: Verifier, seed: int) -> Scores:
    """Who scores answers; a folder's model is loaded with the first of them. Raises: ConfigError for a folder without a whole
    verifier, a key that is not there or cannot be one."""
    if chosen.ensemble:
        members = [verifier_of(one, derive(seed, number)) for number, one in enumerate(chosen.ensemble)]
        return Ensemble(members, chosen.combine)
    if chosen.folder is not None:
        check_folder(chosen.folder, chosen.reads)
        resolve_device(chosen.device)
        return LocalScorer(
            partial(Verifying.load, chosen.folder, device=chosen.device, reads=chosen.reads),
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


def _key(section: str, chosen: Expert | Verifier) -> str | None:
    """What is in the key's variable; None where the server wants no key."""
    if chosen.key_variable is None:
        return None
    key = os.environ.get(chosen.key_variable, "").strip()
    if not key:
        raise ConfigError(
            f"{section}.key_variable names {chosen.key_variable}, which is not set: put the key of {chosen.base_url} in it, "
            f"or drop key_variable where the server wants none"
        )
    if not key.isascii() or not key.isprintable():
        raise ConfigError(f"{chosen.key_variable} holds what cannot be a key; expected letters, digits and signs")
    return key


def _environment(config: RunConfig, services: _Services, asks: Collection[str]) -> Environment[Any]:
    kind = resolve_environment(config.environment.name)
    schema = options_of(kind)
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
        raise ConfigError(f"reward.name is {name!r}; expected package.module:NAME or ./file.py:NAME")
    try:
        found = load_object(name)
    except ConfigError as error:
        raise ConfigError(f"reward.name: {error}") from error
    if not callable(getattr(found, "score", None)) and (isinstance(found, type) or not callable(found)):
        raise ConfigError(f"reward.name is {name!r}, which cannot score; expected a function, or a class with score")
    if isinstance(found, type):
        schema = options_of(found)
        if schema is None and options:
            raise ConfigError(
                f"reward sets {', '.join(options)}, but {config.reward.name} has no options: give it an inner Options"
            )
        return found() if schema is None else found(validate_options(schema, options, config.places, ("reward",)))
    if options:
        raise ConfigError(
            f"reward sets {', '.join(options)}, but {config.reward.name} is a function: it has no options"
        )
    return found


def team_of(config: RunConfig, environment: Environment[Any]) -> Team:
    """Who plays the environment's agents, and how. Raises: ConfigError where their names differ."""
    expected = set(environment.agents)
    if set(config.team) != expected:
        wrong = sorted(set(config.team) - expected)
        hint = nearest(wrong[0], expected) if wrong else ""
        raise ConfigError(
            f"team names {', '.join(config.team)}{hint}; environment {config.environment.name} has the agents "
            f"{', '.join(environment.agents)}: name each once; team.AGENT=POLICY adds one, team.AGENT=null drops one"
        )
    return Team(
        agents={agent: config.team[agent].policy for agent in environment.agents},
        decode={agent: config.decode_of(agent) for agent in environment.agents},
        system={agent: text for agent in environment.agents if (text := config.team[agent].system) is not None},
        frozen=config.frozen,
        critics=config.critic_of,
    )


async def check_first_prompts(scene: Scene, bases: Mapping[str, str | Path]) -> None:
    """Refuses a first prompt that leaves no room for an answer, before a model is trained or even loaded.

    Raises: ConfigError naming the agent and both lengths.
    """
    config, environment = scene.config, scene.environment
    task, limit = scene.tasks.first, config.rollout.timeout_seconds
    with asking(f"{config.environment.name}, the first prompts of task {task.id}"), guarded(limit):
        state = await within(limit, "start", lambda: environment.start(task, derive(config.seed, "first prompts")))
        try:
            prompts = at_once(limit, "observe", lambda: environment.observe(state))
        finally:
            await within(limit, "close", lambda: environment.close(state), even_given_up=True)
    for agent, prompt in prompts.items():
        model = config.policies[scene.team.policy_of(agent, 0)].model
        words, context = load_tokenizer(bases[model])
        length = len(encode(words, with_system(prompt, scene.team.system.get(agent, ""))))
        if length >= context:
            raise ConfigError(
                f"the first prompt of agent {agent} has {length} tokens, and model {model} has a context of {context}: "
                f"expected room for an answer. Shorten the prompt, or use a model with a longer context"
            )


def use_threads(config: RunConfig) -> None:
    """Before any model computes: results to the bit depend on it. Motet shows its own progress, so transformers need not."""
    disable_progress_bar()
    if config.threads is not None:
        torch.set_num_threads(config.threads)


def steps_of(scene: Scene) -> int:
    """Training steps of the run."""
    length = scene.config.train
    if length.steps is not None:
        return length.steps
    assert length.epochs is not None
    return -(-length.epochs * len(scene.tasks["train"]) // length.tasks_per_step)  # rounded up, and exact
