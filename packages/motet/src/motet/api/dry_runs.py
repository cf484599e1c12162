"""dry_run and check: what is wrong with a config, before a run."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from motet.algorithms import plays_absent
from motet.api.memory_estimate import (
    ProcessCost,
    memory_of,
    memory_warnings,
    parts_of,
    processes_of,
    sizes_of,
)
from motet.api.objects import Objects
from motet.api.run_warnings import IDLE, notes_of_dialogue, rewards_of, warnings_of
from motet.api.setup import ConfigLike, Show, read_config
from motet.api.summary import RunSummary
from motet.api.training import train_once
from motet.assembly.before_loading import check_first_prompts, note_models
from motet.assembly.cluster import cluster
from motet.assembly.endpoints import endpoint_samplers
from motet.assembly.task_setup import TaskSetup, open_task_setup, steps_of, tasks_per_step_of
from motet.assembly.trial_game import acting_agents, trial_game
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.config.sections import ConstantVerifier, EmbeddedModel, ModelConfig
from motet.core import Fault
from motet.environments.check import conform
from motet.errors import ConfigError, EnvironmentFault, Interrupted
from motet.models.loading import load_tokenizer
from motet.safety import temporary
from motet.trainer.notices import too_few_turns
from motet.trainer.trackers import check_trackers
from motet.user_code.blocking import blocking
from motet.user_code.plugins import is_reference, look_at
from motet.user_code.timeouts import run_loop


@dataclass(frozen=True)
class Cost:
    """What one training step samples, and an estimate of the run's memory in bytes."""

    steps: int
    rounds: int
    joint_actions: int
    completions: int
    longest_completions: int
    """Number of tokens if every completion has the maximum length."""
    memory: dict[str, int]
    """Part -> bytes. `total` is their sum."""
    warnings: list[str]
    """Warnings about settings that are allowed but may be unwanted."""
    notes: list[str] = field(default_factory=list)
    """What a user should know about the models, such as what ends their completions."""
    rewards: str = ""
    """From which rewards the agents learn. Empty for one agent."""
    derived: list[str] = field(default_factory=list)
    """Which options of the algorithm were derived, and from what."""
    homes: list[ProcessCost] = field(default_factory=list)
    """Empty without a `cluster` section."""


def _model_warnings(settings: RunConfig) -> tuple[list[str], list[str]]:
    """Return notes and warnings about the run's own models, as far as they are folders here, and
    about its endpoints.

    The memory is estimated if all of them are folders. A verifier has a stand-in.
    """
    if settings.verifier is not None:
        constant = ConstantVerifier(constant=STAND_IN_SCORE)
        settings = settings.model_copy(update={"verifier": constant})
    paths = [base.path for base in settings.models.values() if base.path is not None]
    here = [path for path in paths if look_at(Path(path)) == "folder"]
    with open_task_setup(settings, train=True) as setup:
        memory = memory_warnings(settings, memory_of(setup)) if here and here == paths else []
        notes, warnings = prompt_warnings(setup, only_folders=True)
        warnings += [*memory, *_broken_rule(setup)]
        return [*setup.notes, *notes_of_dialogue(setup), *notes], warnings


def _broken_rule(setup: TaskSetup) -> list[str]:
    """Return the first rule that an environment of the user breaks, as `check_environment` does.

    One that asks an expert or a verifier, or runs programs, is left out, and so is one that takes
    longer than `EXAM_SECONDS`.
    """
    config, first = setup.config, setup.tasks.first
    asks = config.expert or config.verifier or setup.sandbox_level
    if asks or first is None or not is_reference(config.environment.name):
        return []
    environment, task = setup.environment, first

    async def examined() -> None:
        async with asyncio.timeout(EXAM_SECONDS):
            await conform(environment, [task], timeout_seconds=2 * EXAM_SECONDS)

    try:
        run_loop(examined())
    except EnvironmentFault as fault:
        return [str(fault)]
    except TimeoutError:
        pass
    return []


EXAM_SECONDS = 10.0
"""Most seconds for the rules of an environment in `check`."""


STAND_IN_SCORE = 0.5
"""Score of every completion in `check` if the run has a verifier."""


@blocking
def dry_run(config: ConfigLike, overrides: Sequence[str] = (), **objects: Unpack[Objects]) -> Cost:
    """Check everything that can be checked without a model, and count what a step samples.

    The counts assume that no branch ends early, and that the agents act which a trial game shows.
    `objects` replace what the config names, as in `train`.

    Raises: ConfigError for everything that `train` refuses before it reads a model or a run folder.
    """
    settings = read_config(config, overrides, **objects)
    if settings.cluster is not None:
        cluster().check_training(settings)
    endpoint_samplers(settings)  # refuses a missing key
    with open_task_setup(settings, train=True) as setup:
        plan, acting_T = settings.rollout, run_loop(acting_agents(setup))
        counts = plan.counts([len(acting) for acting in acting_T], plays_absent(settings.algorithm))
        tasks = tasks_per_step_of(setup)
        turns = [
            (tasks * played.completions, acting)
            for played, acting in zip(counts, acting_T, strict=True)
        ]
        sizes = sizes_of(setup)
        memory = parts_of(settings, sizes)
        notes, warnings = prompt_warnings(setup)
        return Cost(
            steps=steps_of(setup),
            rounds=tasks * sum(turn.rounds for turn in counts),
            joint_actions=tasks * sum(turn.joint_actions for turn in counts),
            completions=sum(each * len(acting) for each, acting in turns),
            longest_completions=sum(
                each * settings.decode_of(agent).max_new_tokens
                for each, acting in turns
                for agent in acting
            ),
            memory=memory,
            warnings=[
                *warnings_of(setup),
                *warnings,
                *memory_warnings(settings, memory),
                *_trial_warnings(setup),
            ],
            notes=[*setup.notes, *notes_of_dialogue(setup), *notes],
            rewards=rewards_of(settings),
            derived=list(setup.derived),
            homes=[] if settings.cluster is None else processes_of(settings, sizes, setup.team),
        )


def prompt_warnings(setup: TaskSetup, *, only_folders: bool = False) -> tuple[list[str], list[str]]:
    """Return notes about the run's models, and the warnings about first prompts, contexts and chat
    templates.

    Embedded models, and models that cannot be read, are left out; with `only_folders`, those of the
    hub too. Raises: ConfigError if a first prompt is longer than the context.
    """
    sources = {}
    for name, base in setup.config.models.items():
        if base.path is None or (only_folders and look_at(Path(base.path)) != "folder"):
            continue
        with suppress(ConfigError):
            load_tokenizer(base.path)
            sources[name] = base.path
    notes, warnings = note_models(setup, sources)
    return notes, run_loop(check_first_prompts(setup, sources)) + warnings


def _trial_warnings(setup: TaskSetup) -> list[str]:
    """Play one game without models. Return what is wrong with it."""
    found, plan = run_loop(trial_game(setup)).end, setup.config.rollout
    if isinstance(found, Fault):
        return [f"a trial game without models failed: {found}"]
    late = found is not None and found > len(plan.samples)
    return [too_few_turns(plan, found)] if late else []


@dataclass(frozen=True)
class CheckResult:
    """What a run of two steps with tiny models showed."""

    summary: RunSummary
    warnings: Sequence[str]
    """Those of the two steps, and those about the run's own models."""
    notes: Sequence[str]
    """What ends a completion of the run's own models, and where its endpoints are."""
    stand_ins: Mapping[str, str]
    """Part that was replaced, besides the models -> by what, and why."""


@blocking
def check(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    traceback: bool = False,
    show: Show = "silent",
    **objects: Unpack[Objects],
) -> CheckResult:
    """Run two steps with tiny models in place of the run's own, in a temporary folder.

    It finds errors that only occur at run time: an environment that raises, a reward service that
    cannot be reached, a prompt without tokens. `objects` replace what the config names, as in
    `train`.

    Args:
        traceback: show the whole traceback of an error in your own code, not one line.

    Raises: as `train`.
    """
    settings = read_config(config, overrides, **objects)
    plain, stand_ins = _shortened(settings)
    short = make_config(plain, places=settings.places)
    check_trackers(settings.report)  # they must be there, and are not called
    notes, warnings = _model_warnings(settings)
    with temporary.folder("motet-check-") as runs:
        try:
            summary = train_once(short, runs, show=show, traceback=traceback, advise=False)
            warnings += [line for line in summary.warnings if not line.startswith(IDLE)]
            return CheckResult(summary, warnings, notes, stand_ins)
        except Interrupted as stop:
            raise KeyboardInterrupt from stop  # there is no run to resume


def _stand_in(base: ModelConfig) -> dict[str, Any]:
    """Return a tiny model in place of another. That of an embedded one reads as many tokens."""
    size: dict[str, Any] = {"hidden_size": 32, "layers": 1, "context": 8192}
    if not isinstance(base, EmbeddedModel):
        return {"embedded": size, "device": "cpu"}
    size |= {"context": base.embedded.context, "vocabulary": base.embedded.vocabulary}
    prompts = {"chat_template", "template_options", "template_date", "end_tokens"}
    return {**base.model_dump(mode="json", include=prompts), "embedded": size, "device": "cpu"}


def _shortened(settings: RunConfig) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a config for `check`, and which other parts have a stand-in."""
    plain = settings.model_dump(mode="json")
    plain["models"] = {name: _stand_in(base) for name, base in settings.models.items()}
    plain["warmup"] = plain["cluster"] = None
    stand_ins: dict[str, str] = {}
    if not isinstance(settings.verifier, ConstantVerifier | None):
        plain["verifier"] = {"constant": STAND_IN_SCORE}
        stand_ins["verifier"] = (
            f"a score of {STAND_IN_SCORE} for every answer, because the check does not use the "
            "run's verifier"
        )
    for policy in plain["policies"].values():
        policy.pop("adapter", None)
    for trained in (*plain["policies"].values(), plain["critic"], plain["reward_model"]):
        if trained is not None and trained.get("lora") is not None:
            trained["lora"]["targets"] = "all-linear"  # the tiny model's modules have other names
    if plain["reward_model"] is not None:
        plain["reward_model"] |= {
            "iterations": 1,
            "tasks": 2,
            "samples": 4,
            "replay": {"mode": "current"},
        }
    if settings.algorithm.pairs is not None:
        pairs = settings.algorithm.pairs.model_dump(mode="json")
        plain["algorithm"]["credit"] = pairs | {"replay": {"mode": "current"}}
    plain["train"] |= {
        "steps": 2,
        "epochs": None,
        "tasks_per_step": 1 if settings.train.tasks_per_step == 1 else 2,
    }
    plain["evaluation"] |= {"every": 0, "tasks": 2}
    decodes = [player["decode"] or {} for player in plain["team"].values()]
    own = [decode for decode in decodes if "max_new_tokens" in decode]
    for decode in own if len(own) == len(decodes) else [plain["decode"], *own]:
        decode["max_new_tokens"] = min(16, decode["max_new_tokens"])
    for decode in (plain["decode"], *decodes):
        thinking = decode.get("thinking") or {}
        if thinking.get("max_tokens"):  # these are among the new tokens
            thinking["max_tokens"] = min(8, thinking["max_tokens"])
    plain["report"] = {"tensorboard": False, "episodes": "none"}
    return plain, stand_ins
