"""Functions that inspect configs and runs: dry_run, check, compare and crossplay."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.api.memory_estimate import memory_of
from motet.api.setup import ConfigLike, Show, models_of, read_config, setup_in_scratch
from motet.api.training import train, warnings_of
from motet.assembly.task_setup import open_task_setup, steps_of, team_of, use_threads
from motet.config.load import make_config
from motet.config.schema import RunConfig
from motet.core import Environment, Team
from motet.errors import ConfigError, Interrupted, MotetError
from motet.evaluation.evaluate import Evaluation, conventions, evaluate
from motet.models.sampler import LocalSampler
from motet.reading import read_json
from motet.sandbox import temporary
from motet.timeouts import run_loop

# ------------------------------------------------------------ before a run


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


STAND_IN_SCORE = 0.5
"""Score of every completion in `check` if the run has a verifier."""


def dry_run(config: ConfigLike, overrides: Sequence[str] = ()) -> Cost:
    """Check everything that can be checked without a model, and count what a step samples.

    The counts assume that no branch ends early.

    Raises: ConfigError for everything that `train` refuses before it reads a model or a run folder.
    """
    settings = read_config(config, overrides)
    with open_task_setup(settings, train=True) as setup:
        plan, agents = settings.rollout, len(settings.team)
        rounds_T = plan.rounds(agents)
        tasks = settings.train.tasks_per_step
        completions_T = [
            count * samples for count, samples in zip(rounds_T, plan.samples, strict=True)
        ]
        answers = sum(settings.decode_of(agent).max_new_tokens for agent in settings.team)
        return Cost(
            steps=steps_of(setup),
            rounds=tasks * sum(rounds_T),
            joint_actions=tasks
            * sum(n * plan.joint_actions(t, agents) for t, n in enumerate(rounds_T)),
            completions=tasks * agents * sum(completions_T),
            longest_completions=tasks * answers * sum(completions_T),
            memory=memory_of(setup),
            warnings=warnings_of(setup),
        )


def check(
    config: ConfigLike, overrides: Sequence[str] = (), show: Show = "silent"
) -> dict[str, Any]:
    """Run two steps with tiny models in place of the run's own, in a temporary folder.

    It finds errors that only occur at run time: an environment that raises, a reward service that
    cannot be reached, a prompt without tokens.

    Returns the summary. Its entry `stand_ins` lists other parts that were replaced. Raises: as
    `train`.
    """
    settings = read_config(config, overrides)
    plain = settings.model_dump(mode="json")
    plain["models"] = {
        name: {"embedded": {"hidden_size": 32, "layers": 1, "context": 8192}, "device": "cpu"}
        for name in plain["models"]
    }
    plain["warmup"] = None
    stand_ins: dict[str, str] = {}
    if settings.verifier is not None and settings.verifier.constant is None:
        plain["verifier"] = {"constant": STAND_IN_SCORE}
        stand_ins["verifier"] = (
            f"a score of {STAND_IN_SCORE} for every answer: the run's own was not asked"
        )
    for policy in plain["policies"].values():
        policy["adapter"] = None
        if policy["lora"] is not None:
            policy["lora"]["targets"] = "all-linear"  # the tiny model's modules have other names
    if plain["critic"] is not None and plain["critic"]["lora"] is not None:
        plain["critic"]["lora"]["targets"] = "all-linear"
    plain["train"] |= {
        "steps": 2,
        "epochs": None,
        "tasks_per_step": min(2, settings.train.tasks_per_step),
    }
    plain["evaluation"] |= {"every": 0, "tasks": 2}
    for decode in (plain["decode"], *(player["decode"] for player in plain["team"].values())):
        if decode is not None and "max_new_tokens" in decode:
            decode["max_new_tokens"] = min(16, decode["max_new_tokens"])
    plain["report"] = {"tensorboard": False, "wandb": None, "episodes": "none"}
    with temporary.folder("motet-check-") as runs:
        try:
            return {**train(make_config(plain), runs=runs, show=show), "stand_ins": stand_ins}
        except Interrupted as stop:
            raise KeyboardInterrupt from stop  # there is no run to resume


# ------------------------------------------------------------ after runs


def compare(runs: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Return one row per run: its settings and results.

    `differs` lists the keys whose values differ from the first run's config.
    """
    _refuse_others(runs, "compare")
    configs = [read_config(run).model_dump(mode="json") for run in runs]
    rows = []
    for run, config in zip(runs, configs, strict=True):
        summary = _summary(Path(run))
        heldout = summary["heldout"]
        changed = differing(configs[0], config)
        rows.append(
            {
                "run": str(run),
                "seed": summary["seed"],
                "steps": summary["steps"],
                "before": heldout["before"]["success"] if "before" in heldout else None,
                "after": heldout["after"]["success"] if "after" in heldout else None,
                "reward": heldout["after"]["reward"] if "after" in heldout else None,
                "wall_seconds": summary["wall_seconds"],
                "cpu_seconds": summary["cpu_seconds"],
                "differs": [
                    line for line in changed if line.partition("=")[0] not in ("name", "seed")
                ],
            }
        )
    return rows


def _summary(run: Path) -> dict[str, Any]:
    path = run / "summary.json"
    if not path.is_file():
        raise ConfigError(f"{run} has no summary.json: expected the folder of a finished run")
    found: dict[str, Any] = read_json(path)
    return found


def differing(one: Any, other: Any, at: str = "") -> list[str]:
    """Return `key=value` for each dotted key whose values differ, with the value of `other`."""
    if isinstance(one, dict) and isinstance(other, dict):
        found: list[str] = []
        for key in dict.fromkeys([*one, *other]):
            found += differing(one.get(key), other.get(key), f"{at}.{key}" if at else key)
        return [line for line in found if line]
    return [] if one == other else [f"{at}={other}"]


@dataclass(frozen=True)
class Crossplay:
    """The results of cross-play.

    `success[i][j]` is the success rate of the first agent of run i with the other agents of run j.
    `conventions[i]` are the conventions of run i.
    """

    runs: list[str]
    agents: list[str]
    success: list[list[float]]
    conventions: list[dict[str, dict[str, float]]]


def crossplay(runs: Sequence[str | Path], overrides: Sequence[str] = ()) -> Crossplay:
    """Play the first agent of every run with the other agents of every run, on the held-out tasks
    of the first run.

    Raises: ConfigError if the runs' environments differ.
    """
    _refuse_others(runs, "crossplay")
    configs = [read_config(run, overrides) for run in runs]
    _refuse_strangers(runs, configs)
    use_threads(configs[0])
    with setup_in_scratch(configs[0], None, train=False) as (setup, scratch):
        teams = [team_of(config, setup.environment) for config in configs]
        policies: dict[str, Any] = {}
        for number, (run, config, team) in enumerate(zip(runs, configs, teams, strict=True)):
            own = replace(setup, config=config, team=team)
            models = run_loop(models_of(own, Path(run), scratch, "silent"))
            policies |= {f"{number}/{name}": policy for name, policy in models.policies.items()}
        sampler = LocalSampler(
            policies,
            rows_per_batch=configs[0].train.rows_per_batch,
            on_long_prompt=configs[0].rollout.on_long_prompt,
        )
        success: list[list[float]] = []
        settled: list[dict[str, dict[str, float]]] = []
        for i in range(len(runs)):
            success.append([])
            for j in range(len(runs)):
                evaluation = run_loop(
                    evaluate(
                        setup.environment,
                        setup.tasks["eval"],
                        sampler,
                        _mixed(teams, i, j),
                        configs[0].rollout,
                        seed=configs[0].seed,
                        tag=f"crossplay-{i}-{j}",
                    )
                )
                success[i].append(_success(evaluation, f"{runs[i]} with {runs[j]}"))
                if i == j and setup.environment.provides(Environment.convention):
                    settled.append(conventions(evaluation.episodes, setup.environment.convention))
    return Crossplay([str(run) for run in runs], list(setup.environment.agents), success, settled)


def _success(evaluation: Evaluation, pair: str) -> float:
    summary = evaluation.summary
    if summary.success is None:
        raise MotetError(
            f"{pair}: none of {summary.episodes} episodes ended with the term success "
            f"({summary.faults} faults), and that is "
            f"what cross-play compares"
        )
    return summary.success


def _refuse_others(runs: Sequence[str | Path], command: str) -> None:
    """Raise ConfigError if there are fewer than two runs, or if one is not a run folder."""
    if len(runs) < 2:
        raise ConfigError(f"{command} needs at least two run folders, got {len(runs)}")
    for run in runs:
        if not (Path(run) / "config.yaml").is_file():
            raise ConfigError(
                f"{run} is no run folder: expected a folder with a config.yaml, such as "
                f"runs/quickstart"
            )


def _refuse_strangers(runs: Sequence[str | Path], configs: Sequence[RunConfig]) -> None:
    """Raise ConfigError if the runs have different environments or numbers of turns."""
    one, turns = configs[0].environment.model_dump(mode="json"), len(configs[0].rollout.samples)
    for run, config in zip(runs, configs, strict=True):
        other = {
            "environment": config.environment.model_dump(mode="json"),
            "turns": len(config.rollout.samples),
        }
        found = differing({"environment": one, "turns": turns}, other)
        if found:
            raise ConfigError(
                f"{run} plays another game than {runs[0]} ({', '.join(found)}): cross-play needs "
                f"one game"
            )


def _mixed(teams: Sequence[Team], first: int, others: int) -> Team:
    """Return a team with the first agent of run `first` and the other agents of run `others`."""
    run_of = {agent: others if place else first for place, agent in enumerate(teams[0].agents)}
    return Team(
        agents={
            agent: tuple(f"{run}/{name}" for name in teams[run].agents[agent])
            for agent, run in run_of.items()
        },
        decode={agent: teams[run].decode[agent] for agent, run in run_of.items()},
        system={
            agent: teams[run].system[agent]
            for agent, run in run_of.items()
            if agent in teams[run].system
        },
    )
