"""The API functions train and warmup."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Unpack

from motet.algorithms import cautions
from motet.api.memory_estimate import memory_of, memory_warnings
from motet.api.objects import Objects
from motet.api.resuming import Resumed, resumed
from motet.api.setup import ConfigLike, Show, read_config, setup_in_scratch, shortened_contexts
from motet.assembly import bases
from motet.assembly.components import components_of, open_models, step_config_of
from motet.assembly.task_setup import TaskSetup, open_task_setup, steps_of, use_threads
from motet.blocking import blocking
from motet.config.load import dump_config
from motet.config.schema import RunConfig
from motet.errors import ConfigError, Interrupted, MotetError
from motet.sandbox import temporary
from motet.timeouts import run_loop
from motet.trainer.callbacks import Callback, Callbacks, OnMetrics
from motet.trainer.checkpoint import Checkpoint, Retention
from motet.trainer.lock import alone
from motet.trainer.metrics import (
    BorrowedLogger,
    FunctionLogger,
    MetricsLogger,
    MetricsWriter,
    TensorBoardLogger,
    WandbLogger,
    read_metrics,
)
from motet.trainer.notices import Notices
from motet.trainer.plot import learning_curve
from motet.trainer.progress import Progress
from motet.trainer.run import Intervals, RunOutputs, RunTasks, TrainingRun
from motet.trainer.run_folder import RunFolder, claimed, refuse, write_json, write_whole
from motet.trainer.run_state import Clock
from motet.trainer.stopping import StopRequest, terminated_as_interrupted

IDLE = "the schedule does not train"
"""The beginning of a warning that depends on the number of steps."""


@blocking
def train(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    report: OnMetrics | None = None,
    runs: str | Path = "runs",
    show: Show = "auto",
    traceback: bool = False,
    advise: bool = True,
    **objects: Unpack[Objects],
) -> dict[str, Any]:
    """Run the warm-up, evaluate, train, and evaluate again. Return the summary.

    All results are in `runs/NAME`. A run that stops early leaves a summary with `finished: false`.

    Args:
        callbacks: called after steps and evaluations; they may end the training.
        report: called with (step, metrics) for every line of metrics.jsonl.
        traceback: show the whole traceback of the first fault of each cause.
        advise: whether errors say how to resume. False if the caller deletes the run.
        objects: `environment`, `reward`, `algorithm`, `credit` and `data` replace what the config
            names. `motet.Objects` describes them.

    Raises: ConfigError before anything is changed; Interrupted after Ctrl-C; MotetError if the run
    cannot continue.
    """
    clock = Clock()
    Callbacks(callbacks)  # refuses what is not a callback
    settings = read_config(config, overrides, **objects)
    place = Path(runs) / settings.name
    refuse(place, resume=resume, overwrite=overwrite)
    use_threads(settings)
    resume_command = f"motet train {place / 'config.yaml'} --resume" + (
        "" if Path(runs) == Path("runs") else f" --runs {runs}"
    )
    stop = StopRequest()
    with ExitStack() as stack:
        stack.enter_context(terminated_as_interrupted())
        stack.enter_context(alone(place))
        setup = stack.enter_context(open_task_setup(settings, train=True))
        scratch = stack.enter_context(temporary.folder())
        found = resumed(place, settings, setup.tasks) if resume else Resumed()
        raw = run_loop(bases.raw(setup, scratch, place / "models" if resume else None))
        try:
            with claimed(place, resume=resume, overwrite=overwrite) as folder:
                mirrors = _started(settings, folder, found.checkpoint, report)
                metrics = stack.enter_context(_metrics(folder, mirrors, found.checkpoint))
                progress = stack.enter_context(Progress(show))
                notices = Notices(progress.say, traceback)
                for line in found.skipped:
                    progress.say(line)
                for line in (
                    *found.warnings,
                    *warnings_of(setup),
                    *setup.warnings,
                    *memory_of_run(setup),
                ):
                    notices.say(line)
                with _warmup_metrics(settings, folder, mirrors) as warmed:
                    settled = run_loop(bases.settle(setup, raw, folder.models, warmed, progress))
                progress.stage("load", 0)
                progress.waiting("the models to be loaded")
                models = stack.enter_context(open_models(setup, settled, stop))
            run = TrainingRun(
                components_of(setup, models, stop),
                models,
                RunTasks(
                    setup.tasks["train"], setup.tasks["eval"] if "eval" in setup.tasks else ()
                ),
                step_config_of(setup),
                _intervals(settings),
                settings.alarms,
                RunOutputs(folder, metrics, progress, notices),
                resume_command=resume_command if advise else None,
                facts={"sandbox_level": setup.sandbox_level},
                clock=clock,
                callbacks=callbacks,
            )
            with _partial_summary(settings, folder, run):
                summary = run_loop(run.run(found.checkpoint))
        except KeyboardInterrupt as error:
            raise Interrupted(
                f"stopped at once. Resume from the last checkpoint with: {resume_command}"
            ) from error
        return _summarise(settings, folder, summary)


def _summarise(
    settings: RunConfig, folder: RunFolder, summary: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the summary and the learning curve. Return the summary with the name of the run."""
    named = {"name": settings.name, **summary}
    write_json(folder.summary, named)
    learning_curve(read_metrics(folder.metrics), named, folder.curve)
    return named


@contextmanager
def _partial_summary(settings: RunConfig, folder: RunFolder, run: TrainingRun) -> Iterator[None]:
    """If the run ends early, write what it has so far, so that it can be looked at and compared."""
    try:
        yield
    except (MotetError, KeyboardInterrupt):
        with suppress(MotetError, OSError):  # the error that ended the run is the one to report
            _summarise(settings, folder, run.summary(finished=False))
        raise


def _started(
    settings: RunConfig, folder: RunFolder, resumed: Checkpoint | None, report: OnMetrics | None
) -> list[MetricsLogger]:
    """Write the resolved config, and open the loggers besides the files."""
    # Write the config first: a folder with a config can be resumed or overwritten.
    write_whole(folder.config, dump_config(settings))
    mirrors = _mirrors(settings, folder, resumed.step if resumed else None)
    return mirrors + ([] if report is None else [FunctionLogger(report)])


def _metrics(
    folder: RunFolder, mirrors: Sequence[MetricsLogger], resumed: Checkpoint | None
) -> MetricsWriter:
    """Open the metrics file. A resumed run keeps the lines that its checkpoint counted."""
    return MetricsWriter(folder.metrics, mirrors, resumed.state["metrics_lines"] if resumed else 0)


@contextmanager
def _warmup_metrics(
    settings: RunConfig, folder: RunFolder, mirrors: Sequence[MetricsLogger]
) -> Iterator[MetricsWriter | None]:
    """Open the file of the warm-up. It keeps the lines of models whose warm-up is finished, because
    these warm-ups are not repeated."""
    if settings.warmup is None:
        yield None
        return
    settled = {f"warmup/loss/{name}" for name in settings.models if (folder.models / name).is_dir()}
    rows = read_metrics(folder.warmup) if folder.warmup.is_file() else []
    keep = sum(not settled.isdisjoint(row) for row in rows)
    with MetricsWriter(folder.warmup, [BorrowedLogger(one) for one in mirrors], keep) as metrics:
        yield metrics


def memory_of_run(setup: TaskSetup) -> list[str]:
    """Return a warning if the run needs more memory than its device has."""
    loads = any(base.path is not None for base in setup.config.models.values())
    return memory_warnings(setup, memory_of(setup)) if loads else []


def warnings_of(setup: TaskSetup) -> list[str]:
    """Return warnings about settings that are allowed but may be unwanted."""
    settings, found = setup.config, []
    biased = [
        a
        for a in settings.team
        if settings.decode_of(a).top_p < 1.0 or settings.decode_of(a).top_k > 0
    ]
    if biased:
        found.append(
            f"top_p or top_k restricts the tokens of {', '.join(biased)}, which biases the policy "
            "gradient"
        )
    found += cautions(settings.algorithm, settings.rollout, len(settings.team))
    found += shortened_contexts(
        base.path for base in settings.models.values() if base.path is not None
    )
    found += setup.tasks.warnings
    both = setup.tasks.shared
    if both:
        found.append(
            f"{both} held-out tasks are also training tasks: use splits of data.train and "
            "data.eval that do not overlap"
        )
    found += [
        f"{count} rows of data.{split} give no task"
        for split, count in setup.tasks.passed_over.items()
    ]
    idle, steps = _never_due(setup), steps_of(setup)
    if idle:
        found.append(f"{IDLE} {', '.join(idle)} in {steps} steps: shorten its block or warmup")
    return found


def _never_due(setup: TaskSetup) -> list[str]:
    """Return which policies and turns should be trained but never are, because the schedule has no
    step for them."""
    schedule, policy_turns = (
        setup.config.schedule,
        setup.team.policy_turns(len(setup.config.rollout.samples)),
    )
    # the first step of every block
    firsts = [
        1,
        *(schedule.warmup + schedule.block * block + 1 for block in range(len(policy_turns))),
    ]
    begun = [step for step in firsts if step <= steps_of(setup)]
    return [
        f"{policy} at turn {turn + 1}"
        for policy, turn in policy_turns
        if not any(schedule.trains(step, policy, turn, policy_turns) for step in begun)
    ]


def _mirrors(settings: RunConfig, folder: RunFolder, resumed_at: int | None) -> list[MetricsLogger]:
    mirrors: list[MetricsLogger] = []
    if settings.report.wandb is not None:
        chosen = settings.report.wandb
        mirrors.append(
            WandbLogger(
                folder.path,
                chosen.name or settings.name,
                chosen.project,
                chosen.entity,
                chosen.tags,
                settings.model_dump(mode="json"),
            )
        )
    if settings.report.tensorboard:
        mirrors.append(TensorBoardLogger(folder.tensorboard, resumed_at))
    return mirrors


def _intervals(settings: RunConfig) -> Intervals:
    return Intervals(
        checkpoint_every=settings.train.checkpoint_every,
        retention=Retention(settings.train.keep_checkpoints, settings.train.keep_every),
        keep_best=settings.train.keep_best,
        beside=settings.train.checkpoint_beside,
        evaluate_every=settings.evaluation.every,
        samples=settings.evaluation.samples,
        record_episodes=settings.report.episodes == "all",
    )


@blocking
def warmup(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    into: str | Path | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> dict[str, str]:
    """Run only the supervised warm-up. Return model -> folder of the result.

    The folder is `into/MODEL`, by default `runs/NAME-warmup/MODEL`.
    """
    settings = read_config(config, overrides, **objects)
    if settings.warmup is None:
        raise ConfigError(
            "the config has no warmup section; expected one, such as warmup: {steps: 300}"
        )
    use_threads(settings)
    with setup_in_scratch(settings, train=True) as (setup, scratch):
        raw = run_loop(bases.raw(setup, scratch, None))
        folder = Path(into) if into is not None else Path("runs") / f"{settings.name}-warmup"
        taken = [name for name in settings.models if (folder / name).exists()]
        if taken:
            raise ConfigError(
                f"{folder / taken[0]} exists: move it away, or choose another folder with --into"
            )
        with Progress(show) as progress:
            settled = run_loop(bases.settle(setup, raw, folder, None, progress))
    return {name: str(path) for name, path in settled.items()}
