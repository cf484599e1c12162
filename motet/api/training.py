"""train and warmup."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from motet.algorithms import cautions
from motet.api.opening import ConfigLike, Show, read_config, scene_in_scratch, shortened_contexts
from motet.api.resuming import Resumed, resumed
from motet.build import bases
from motet.build.company import Company, assemble, ensemble_of, pace_of
from motet.build.scene import Scene, open_scene, steps_of, use_threads
from motet.config.load import dump_config
from motet.config.schema import RunConfig
from motet.core import Environment
from motet.errors import ConfigError, Interrupted
from motet.sandbox import temporary
from motet.timeouts import run_loop
from motet.trainer.alone import alone
from motet.trainer.checkpoint import Checkpoint, Retention
from motet.trainer.ledger import Clock
from motet.trainer.metrics import Metrics, Mirror, TensorBoard, Wandb, read_metrics
from motet.trainer.plot import learning_curve
from motet.trainer.progress import Progress
from motet.trainer.run_folder import RunFolder, claimed, refuse, write_json, write_whole
from motet.trainer.session import Cadence, Session
from motet.trainer.stopping import Stop, terminated_as_interrupted


def train(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    overwrite: bool = False,
    environment: Environment[Any] | None = None,
    runs: str | Path = "runs",
    show: Show = "auto",
) -> dict[str, Any]:
    """Warms up, evaluates, trains, evaluates again; everything is in `runs/NAME`. Returns the summary.

    `environment` stands in for the configured one. Raises: ConfigError before anything is touched; Interrupted after Ctrl-C;
    MotetError where the run cannot go on.
    """
    clock = Clock()
    settings = read_config(config, overrides)
    place = Path(runs) / settings.name
    refuse(place, resume=resume, overwrite=overwrite)
    use_threads(settings)
    go_on = f"motet train {place / 'config.yaml'} --resume" + ("" if Path(runs) == Path("runs") else f" --runs {runs}")
    stop = Stop()
    with ExitStack() as stack:
        stack.enter_context(terminated_as_interrupted())
        stack.enter_context(alone(place))
        scene = stack.enter_context(open_scene(settings, environment, train=True))
        scratch = stack.enter_context(temporary.folder())
        found = resumed(place, settings, scene.tasks) if resume else Resumed()
        raw = run_loop(bases.raw(scene, scratch, place / "models" if resume else None))
        try:
            with claimed(place, resume=resume, overwrite=overwrite) as folder:
                metrics = stack.enter_context(_metrics(settings, folder, found.checkpoint))
                progress = stack.enter_context(Progress(show))
                for line in (*found.warnings, *warnings_of(scene)):
                    progress.say(line)
                settled = run_loop(
                    bases.settle(scene, raw, folder.models, None if found.checkpoint else metrics, progress)
                )
                company = assemble(scene, settled, train=True, stop=stop)
            session = _session(scene, company, stop, folder, metrics, progress, go_on, clock)
            summary = run_loop(session.run(found.checkpoint))
        except KeyboardInterrupt as error:
            raise Interrupted(f"stopped at once. Go on from what was recorded with: {go_on}") from error
        summary = {"name": settings.name, **summary}
        write_json(folder.summary, summary)
        learning_curve(read_metrics(folder.metrics), summary, folder.curve)
    return summary


def _session(
    scene: Scene,
    company: Company,
    stop: Stop,
    folder: RunFolder,
    metrics: Metrics,
    progress: Progress,
    go_on: str,
    clock: Clock,
) -> Session:
    settings = scene.config
    return Session(
        ensemble_of(scene, company, stop),
        company,
        scene.tasks["train"],
        scene.tasks["eval"] if "eval" in scene.tasks else (),
        pace_of(scene),
        _cadence(settings),
        settings.guards,
        folder,
        metrics,
        progress,
        go_on,
        facts={"sandbox_level": scene.sandbox_level},
        clock=clock,
    )


def _metrics(settings: RunConfig, folder: RunFolder, resumed: Checkpoint | None) -> Metrics:
    """Ready to be written to; the resolved config is beside it."""
    write_whole(folder.config, dump_config(settings))  # first: what has one can be resumed, or begun anew
    mirrors = _mirrors(settings, folder, resumed.step if resumed else None)
    keep = resumed.state["metrics_lines"] if resumed else _lines_of_settled_models(settings, folder)
    return Metrics(folder.metrics, mirrors, keep)


def _lines_of_settled_models(settings: RunConfig, folder: RunFolder) -> int:
    """What a run that was killed before its first checkpoint need not do again: the warm-ups that ended, which came first."""
    if not folder.metrics.is_file():
        return 0
    settled = {f"warmup/loss/{name}" for name in settings.models if (folder.models / name).is_dir()}
    return sum(not settled.isdisjoint(row) for row in read_metrics(folder.metrics))


def warnings_of(scene: Scene) -> list[str]:
    """What is allowed, and should be known."""
    settings, found = scene.config, []
    biased = [a for a in settings.team if settings.decode_of(a).top_p < 1.0 or settings.decode_of(a).top_k > 0]
    if biased:
        found.append(
            f"top_p or top_k restricts what {', '.join(biased)} can say: the policy gradient is biased, as if it could say all"
        )
    found += cautions(settings.algorithm, settings.rollout, len(settings.team))
    found += shortened_contexts(base.path for base in settings.models.values() if base.path is not None)
    both = scene.tasks.shared
    if both:
        found.append(f"{both} held-out tasks are trained on too: give data.train and data.eval splits that do not meet")
    found += [f"{count} rows of data.{split} give no task" for split, count in scene.tasks.passed_over.items()]
    idle, steps = _never_due(scene), steps_of(scene)
    if idle:
        found.append(f"in {steps} steps the schedule lets {', '.join(idle)} learn nothing: shorten its block or warmup")
    return found


def _never_due(scene: Scene) -> list[str]:
    """What is to be trained, and has no step of the schedule."""
    schedule, seats = scene.config.schedule, scene.team.learning_seats(len(scene.config.rollout.samples))
    firsts = [1, *(schedule.warmup + schedule.block * block + 1 for block in range(len(seats)))]  # of every block
    begun = [step for step in firsts if step <= steps_of(scene)]
    return [
        f"{policy} at turn {turn + 1}"
        for policy, turn in seats
        if not any(schedule.trains(step, policy, turn, seats) for step in begun)
    ]


def _mirrors(settings: RunConfig, folder: RunFolder, resumed_at: int | None) -> list[Mirror]:
    mirrors: list[Mirror] = []
    if settings.report.wandb is not None:
        chosen = settings.report.wandb
        mirrors.append(
            Wandb(
                folder.path,
                chosen.name or settings.name,
                chosen.project,
                chosen.entity,
                chosen.tags,
                settings.model_dump(mode="json"),
            )
        )
    if settings.report.tensorboard:
        mirrors.append(TensorBoard(folder.tensorboard, resumed_at))
    return mirrors


def _cadence(settings: RunConfig) -> Cadence:
    return Cadence(
        checkpoint_every=settings.train.checkpoint_every,
        retention=Retention(settings.train.keep_checkpoints, settings.train.keep_every),
        keep_best=settings.train.keep_best,
        beside=settings.train.checkpoint_beside,
        evaluate_every=settings.evaluation.every,
        samples=settings.evaluation.samples,
        record_episodes=settings.report.episodes == "all",
    )


def warmup(
    config: ConfigLike, overrides: Sequence[str] = (), *, into: str | Path | None = None, show: Show = "auto"
) -> dict[str, str]:
    """Only the supervised warm-up: model -> the folder with the result (`into/MODEL`, by default `runs/NAME-warmup/MODEL`)."""
    settings = read_config(config, overrides)
    if settings.warmup is None:
        raise ConfigError("the config has no warmup section; expected one, such as warmup: {steps: 300}")
    use_threads(settings)
    with scene_in_scratch(settings, None, train=True) as (scene, scratch):
        raw = run_loop(bases.raw(scene, scratch, None))
        folder = Path(into) if into is not None else Path("runs") / f"{settings.name}-warmup"
        taken = [name for name in settings.models if (folder / name).exists()]
        if taken:
            raise ConfigError(f"{folder / taken[0]} exists already: move it away, or name another folder with --into")
        with Progress(show) as progress:
            settled = run_loop(bases.settle(scene, raw, folder, None, progress))
    return {name: str(path) for name, path in settled.items()}
