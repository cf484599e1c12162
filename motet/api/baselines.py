"""Is a trained team better than what needs no training, or than another run? Their held-out tasks side by side in one table."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from motet.api.opening import ConfigLike, Show, company_of, read_config, run_of, scene_in_scratch, tag_of
from motet.build import bases
from motet.build.company import Company, assemble
from motet.build.scene import Scene, use_threads
from motet.core import Environment
from motet.errors import ConfigError
from motet.rollout.playthrough import rewards, successes
from motet.timeouts import run_loop
from motet.trainer.intervals import CONFIDENCE, RESAMPLES, Estimate, estimate, lead
from motet.trainer.progress import Progress
from motet.trainer.rivals import Cast, Result, Stage, play_rivals, result

TRAINED = "trained team"


@dataclass(frozen=True)
class Row:
    """One protocol. Figures are means over tasks, each with its interval; None where nobody says, or everything broke."""

    protocol: str
    success: Estimate | None
    reward: Estimate | None
    lead: Mapping[str, Estimate | None]
    """`success` and `reward`: by how much the first row is ahead of this one, task by task; empty in the first row."""
    n: int
    """Samples that each answer was chosen from."""
    tokens_per_task: float
    """Generated for one answer, by everybody in all turns, drafts and rejected samples too."""
    tasks: int
    """Tasks that count; the others broke."""
    faults: int
    causes: Mapping[str, int]
    """`where/cause` -> how many faults."""
    note: str
    time: Mapping[str, float]
    """`seconds_per_task`, by the clock, for one answer, where all tasks are played side by side."""


@dataclass(frozen=True)
class Baselines:
    """The table. All of it follows from the config and its seed, but `Row.time`."""

    tasks: int
    samples: int
    """Games of every task in each row that does not choose among n."""
    confidence: float
    resamples: int
    rows: list[Row]
    left_out: dict[str, str]
    """Protocol -> why it is not in the table."""


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
    """Plays the held-out tasks by every protocol: for a run folder the trained team first, for a config the team it starts with.

    `samples` games of every task are played in place of `evaluation.samples`. `single` names the agent whose policy plays alone,
    the last one unless given. `against` are more run folders, whose trained teams play the same tasks, each in its own game.
    Returns `Baselines` as plain JSON; docs/evaluation.md says what each protocol is.
    """
    settings = read_config(target, [*overrides, *([] if samples is None else [f"evaluation.samples={samples}"])])
    run = run_of(target)
    use_threads(settings)
    with scene_in_scratch(settings, environment, train=False) as (scene, scratch):
        soloist = tuple(scene.team.agents)[-1] if single is None else single
        if soloist not in scene.team.agents:
            raise ConfigError(f"there is no agent {soloist!r} to play alone; agents are {', '.join(scene.team.agents)}")
        trained = [] if run is None else [run_loop(_trained(TRAINED, scene, run, scratch, show))]
        trained += [_other(Path(other), scene, show) for other in against]
        budget = trained[0].tokens_per_task if run is not None else None
        rivals, left_out = run_loop(_rivals(scene, run, scratch, soloist, budget, show))
    results = [*trained, *rivals] if run is not None else [*rivals[:1], *trained, *rivals[1:]]
    rows = [_row(one, results[0] if place else None, settings.seed) for place, one in enumerate(results)]
    return asdict(
        Baselines(len(scene.tasks["eval"]), settings.evaluation.samples, CONFIDENCE, RESAMPLES, rows, left_out)
    )


async def _trained(name: str, scene: Scene, run: Path, scratch: Path, show: Show) -> Result:
    """As the run's own last evaluation was played."""
    company = await company_of(scene, run, scratch, show)
    with Progress(show) as progress:
        return result(name, await _stage(scene, company, tag_of(scene, run), progress).play(name, _cast(scene)))


def _other(run: Path, scene: Scene, show: Show) -> Result:
    """Another run's trained team on the tasks of `scene`. Raises: ConfigError where it has other tasks."""
    if run_of(run) is None:
        raise ConfigError(f"{run} is no run folder: expected a folder with a config.yaml, such as runs/quickstart")
    same = scene.config.evaluation
    count = "null" if same.tasks is None else same.tasks
    settings = read_config(run, [f"evaluation.samples={same.samples}", f"evaluation.tasks={count}"])
    with scene_in_scratch(settings, None, train=False) as (theirs, scratch):
        ids = [[task.id for task in one.tasks["eval"]] for one in (scene, theirs)]
        if ids[0] != ids[1]:
            first = next((pair for pair in zip(*ids, strict=False) if pair[0] != pair[1]), None)
            what = f"{len(ids[1])} instead of {len(ids[0])}" if first is None else f"{first[1]!r} where {first[0]!r} is"
            raise ConfigError(f"{run} has other held-out tasks ({what}): only the same ones can be compared")
        return run_loop(_trained(f"trained team of {run.name}", theirs, run, scratch, show))


async def _rivals(
    scene: Scene, run: Path | None, scratch: Path, soloist: str, budget: float | None, show: Show
) -> tuple[list[Result], dict[str, str]]:
    company = await _beginners(scene, run, scratch, show)
    tag = "evaluate" if run is None else "evaluate-000000"  # as the run's own first evaluation was played
    with Progress(show) as progress:
        return await play_rivals(_stage(scene, company, tag, progress), _cast(scene), soloist, budget)


async def _beginners(scene: Scene, run: Path | None, scratch: Path, show: Show) -> Company:
    """The team before any reinforcement learning, after the warm-up."""
    if run is None:
        return await company_of(scene, None, scratch, show)
    return assemble(scene, await bases.raw(scene, scratch, run / "models"), train=False)


def _stage(scene: Scene, company: Company, tag: str, progress: Progress) -> Stage:
    config = scene.config
    return Stage(scene.tasks["eval"], company.sampler, config.seed, tag, config.evaluation.samples, progress)


def _cast(scene: Scene) -> Cast:
    return Cast("the untrained team", scene.environment, scene.team, scene.config.rollout)


def _row(one: Result, first: Result | None, seed: int) -> Row:
    success_of, reward_of = successes(one.games), rewards(one.games)
    ahead: dict[str, Estimate | None] = {}
    if first is not None:
        ahead["success"] = lead(successes(first.games), success_of, seed)
        ahead["reward"] = lead(rewards(first.games), reward_of, seed)
    return Row(
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
