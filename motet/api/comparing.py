"""Compares a trained team with baselines that need no training, and with other runs, on the
held-out tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from motet.api.setup import (
    ConfigLike,
    Show,
    models_of,
    read_config,
    run_of,
    setup_in_scratch,
    tag_of,
)
from motet.assembly import bases
from motet.assembly.models import Models, assemble
from motet.assembly.task_setup import TaskSetup, use_threads
from motet.core import Environment
from motet.errors import ConfigError
from motet.evaluation.baselines import BaselineResult, EvalContext, Lineup, play_baselines, result
from motet.evaluation.bootstrap import CONFIDENCE, RESAMPLES, Estimate, estimate, paired_difference
from motet.evaluation.playthrough import rewards, successes
from motet.timeouts import run_loop
from motet.trainer.progress import Progress

TRAINED = "trained team"


@dataclass(frozen=True)
class BaselineRow:
    """The results of one protocol.

    Metrics are means over tasks with confidence intervals. None if the environment does not report
    the metric, or if all tasks failed.
    """

    protocol: str
    success: Estimate | None
    reward: Estimate | None
    lead: Mapping[str, Estimate | None]
    """For `success` and `reward`: the lead of the first row over this one, compared task by task.
    Empty in the first row."""
    n: int
    """Number of samples from which each answer was chosen."""
    tokens_per_task: float
    """Tokens generated for one answer by all agents in all turns, including drafts and rejected
    samples."""
    tasks: int
    """Number of tasks that count. The other tasks failed."""
    faults: int
    causes: Mapping[str, int]
    """`where/cause` -> number of faults."""
    note: str
    time: Mapping[str, float]
    """`seconds_per_task`: wall-clock time for one answer when all tasks are played concurrently."""


@dataclass(frozen=True)
class Baselines:
    """The comparison table. Everything except `BaselineRow.time` is determined by the config and
    its seed."""

    tasks: int
    samples: int
    """Games per task in each row that does not choose among n samples."""
    confidence: float
    resamples: int
    rows: list[BaselineRow]
    left_out: dict[str, str]
    """Protocol -> why it is missing from the table."""


def measure_baselines(
    target: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    samples: int | None = None,
    single: str | None = None,
    against: Sequence[str | Path] = (),
    environment: Environment[Any] | None = None,
    show: Show = "auto",
) -> dict[str, Any]:
    """Play the held-out tasks with every protocol.

    For a run folder the trained team comes first; for a config, the team that it starts with.

    Args:
        samples: games per task, instead of `evaluation.samples`.
        single: the agent whose policy plays alone; by default the last agent.
        against: more run folders. Their trained teams play the same tasks, each in its own
            environment.

    Returns `Baselines` as plain JSON. docs/evaluation.md describes each protocol.
    """
    settings = read_config(
        target, [*overrides, *([] if samples is None else [f"evaluation.samples={samples}"])]
    )
    run = run_of(target)
    use_threads(settings)
    with setup_in_scratch(settings, environment, train=False) as (setup, scratch):
        soloist = tuple(setup.team.agents)[-1] if single is None else single
        if soloist not in setup.team.agents:
            raise ConfigError(
                f"there is no agent {soloist!r} to play alone; agents are "
                f"{', '.join(setup.team.agents)}"
            )
        trained = [] if run is None else [run_loop(_trained(TRAINED, setup, run, scratch, show))]
        trained += [_other(Path(other), setup, show) for other in against]
        budget = trained[0].tokens_per_task if run is not None else None
        untrained, left_out = run_loop(_baselines(setup, run, scratch, soloist, budget, show))
    results = (
        [*trained, *untrained] if run is not None else [*untrained[:1], *trained, *untrained[1:]]
    )
    rows = [
        _row(one, results[0] if place else None, settings.seed) for place, one in enumerate(results)
    ]
    return asdict(
        Baselines(
            len(setup.tasks["eval"]),
            settings.evaluation.samples,
            CONFIDENCE,
            RESAMPLES,
            rows,
            left_out,
        )
    )


async def _trained(
    name: str, setup: TaskSetup, run: Path, scratch: Path, show: Show
) -> BaselineResult:
    """Play the trained team in the same way as the run's own last evaluation."""
    models = await models_of(setup, run, scratch, show)
    with Progress(show) as progress:
        return result(
            name, await _stage(setup, models, tag_of(setup, run), progress).play(name, _cast(setup))
        )


def _other(run: Path, setup: TaskSetup, show: Show) -> BaselineResult:
    """Play another run's trained team on the tasks of `setup`. Raises: ConfigError if its tasks are
    different."""
    if run_of(run) is None:
        raise ConfigError(
            f"{run} is no run folder: expected a folder with a config.yaml, such as runs/quickstart"
        )
    same = setup.config.evaluation
    count = "null" if same.tasks is None else same.tasks
    settings = read_config(run, [f"evaluation.samples={same.samples}", f"evaluation.tasks={count}"])
    with setup_in_scratch(settings, None, train=False) as (theirs, scratch):
        ids = [[task.id for task in one.tasks["eval"]] for one in (setup, theirs)]
        if ids[0] != ids[1]:
            first = next((pair for pair in zip(*ids, strict=False) if pair[0] != pair[1]), None)
            what = (
                f"{len(ids[1])} instead of {len(ids[0])}"
                if first is None
                else f"{first[1]!r} where {first[0]!r} is"
            )
            raise ConfigError(
                f"{run} has other held-out tasks ({what}): only the same ones can be compared"
            )
        return run_loop(_trained(f"trained team of {run.name}", theirs, run, scratch, show))


async def _baselines(
    setup: TaskSetup,
    run: Path | None,
    scratch: Path,
    soloist: str,
    budget: float | None,
    show: Show,
) -> tuple[list[BaselineResult], dict[str, str]]:
    models = await _beginners(setup, run, scratch, show)
    # Use the tag of the run's own first evaluation, so that the same completions are sampled.
    tag = "evaluate" if run is None else "evaluate-000000"
    with Progress(show) as progress:
        return await play_baselines(
            _stage(setup, models, tag, progress), _cast(setup), soloist, budget
        )


async def _beginners(setup: TaskSetup, run: Path | None, scratch: Path, show: Show) -> Models:
    """Return the models after the warm-up and before reinforcement learning."""
    if run is None:
        return await models_of(setup, None, scratch, show)
    return assemble(setup, await bases.raw(setup, scratch, run / "models"), train=False)


def _stage(setup: TaskSetup, models: Models, tag: str, progress: Progress) -> EvalContext:
    config = setup.config
    return EvalContext(
        setup.tasks["eval"],
        models.sampler,
        config.seed,
        tag,
        config.evaluation.samples,
        progress.counter,
    )


def _cast(setup: TaskSetup) -> Lineup:
    return Lineup("the untrained team", setup.environment, setup.team, setup.config.rollout)


def _row(one: BaselineResult, first: BaselineResult | None, seed: int) -> BaselineRow:
    success_of, reward_of = successes(one.games), rewards(one.games)
    ahead: dict[str, Estimate | None] = {}
    if first is not None:
        ahead["success"] = paired_difference(successes(first.games), success_of, seed)
        ahead["reward"] = paired_difference(rewards(first.games), reward_of, seed)
    return BaselineRow(
        protocol=one.protocol,
        success=estimate(success_of, seed),
        reward=estimate(reward_of, seed),
        lead=ahead,
        n=one.n,
        tokens_per_task=one.tokens_per_task,
        tasks=sum(value is not None for value in reward_of),
        faults=one.played.summary.faults,
        causes=one.played.summary.causes,
        note=one.note,
        time={"seconds_per_task": one.seconds_per_task},
    )
