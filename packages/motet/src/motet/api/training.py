"""The API functions train and warmup."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from motet.api.code_record import needs_program, record_code
from motet.api.objects import Objects
from motet.api.resuming import Resumed, resumed
from motet.api.run_warnings import memory_of_run, notes_of_dialogue, rewards_of, warnings_of
from motet.api.setup import ConfigLike, Show, read_config, setup_in_scratch
from motet.api.summary import RunSummary, read_summary
from motet.assembly import bases
from motet.assembly.before_loading import kept_dates
from motet.assembly.cluster import cluster
from motet.assembly.components import open_components
from motet.assembly.endpoints import endpoint_samplers
from motet.assembly.task_setup import TaskSetup, open_task_setup, use_threads
from motet.config.load import dump_config
from motet.config.schema import RunConfig
from motet.errors import ConfigError, Interrupted, MotetError, ProcessLost
from motet.rollout.answer_file import AnswerFile
from motet.safety import temporary
from motet.trainer.callbacks import Callback, Callbacks, OnMetrics
from motet.trainer.checkpoint import Checkpoint
from motet.trainer.metrics import MetricsWriter, read_metrics
from motet.trainer.notices import Notices
from motet.trainer.plot import learning_curve
from motet.trainer.progress import Progress
from motet.trainer.run import RunOutputs, TrainingRun
from motet.trainer.run_folder import (
    RunFolder,
    alone,
    claimed,
    refuse,
    write_json,
    write_whole,
)
from motet.trainer.run_state import Clock, RunState
from motet.trainer.stopping import StopRequest, terminated_as_interrupted
from motet.trainer.trackers import FunctionTracker, Tracker, open_trackers
from motet.user_code.blocking import blocking
from motet.user_code.libraries import install, is_there
from motet.user_code.objects import is_object, record_rows
from motet.user_code.timeouts import run_loop


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
    **objects: Unpack[Objects],
) -> RunSummary:
    """Run the warm-up, evaluate, train, and evaluate again. Return the summary.

    All results are in `runs/NAME`. A run that stops early leaves a summary with `finished: false`.

    Args:
        resume: resume the run in `runs/NAME` from its last checkpoint.
        overwrite: delete the run in `runs/NAME` and start again.
        callbacks: called after steps and evaluations; they may end the training.
        report: called with (step, metrics) for every line of metrics.jsonl.
        runs: the folder that contains the run folders.
        traceback: show the whole traceback of an error in your own code, not one line.
        objects: `environment`, `reward`, `algorithm`, `credit` and `data` replace what the config
            names. `motet.Objects` describes them.

    A run whose process of the cluster was lost goes on from its last checkpoint, at most
    `cluster.restarts` times.

    Raises: ConfigError before anything is changed; Interrupted after Ctrl-C; MotetError if the run
    cannot continue.
    """
    Callbacks(callbacks)  # refuses what is not a callback
    settings = read_config(config, overrides, **objects)
    restarts = 0
    while True:
        try:
            return train_once(
                settings, Path(runs), resume=resume, overwrite=overwrite, callbacks=callbacks,
                report=report, show=show, traceback=traceback,
            )  # fmt: skip
        except ProcessLost as lost:
            # The steps after the last checkpoint are the same again: every random number follows
            # from the seed.
            restarts += 1
            if settings.cluster is None or restarts > settings.cluster.restarts:
                raise
            with Progress(show) as progress:
                progress.say(
                    f"{lost}. Restart {restarts} of {settings.cluster.restarts} begins now"
                )
            resume, overwrite = True, False


def train_once(
    settings: RunConfig,
    runs: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    report: OnMetrics | None = None,
    show: Show = "auto",
    traceback: bool = False,
    advise: bool = True,
) -> RunSummary:
    """Train as `train` does, and stop where a process of the cluster is lost.

    `advise`: whether errors say how to resume. False if the caller deletes the run.
    """
    clock = Clock()
    place = runs / settings.name
    refuse(place, resume=resume, overwrite=overwrite)
    if settings.cluster is not None:
        cluster().check_training(settings)
    endpoint_samplers(settings)  # refuses a missing key now, not after a warm-up
    use_threads(settings)
    resume_command = how_to_resume(place, runs, settings)
    stop = StopRequest()
    with ExitStack() as stack:
        stack.enter_context(terminated_as_interrupted())
        stack.enter_context(alone(place))
        setup = stack.enter_context(open_task_setup(settings, train=True))
        begun = place / "config.yaml" if resume and place.is_dir() else None
        settings = kept_dates(setup.config, begun, datetime.now())
        setup = replace(setup, config=settings)
        scratch = stack.enter_context(temporary.folder("motet-"))
        found = resumed(place, settings, setup.tasks) if resume else Resumed()
        raw = run_loop(bases.raw(setup, scratch, place / "models" if resume else None))
        with _interrupt_hint(resume_command):
            with claimed(place, resume=resume, overwrite=overwrite) as folder:
                trackers = stack.enter_context(_started(settings, folder, found.checkpoint, report))
                kept = found.checkpoint.state["metrics_lines"] if found.checkpoint else 0
                metrics = stack.enter_context(MetricsWriter(folder.metrics, trackers, kept))
                progress = stack.enter_context(
                    Progress(show, log_completions=settings.report.log_completions)
                )
                notices = _notices(progress, traceback, found, setup)
                outputs = RunOutputs(folder, metrics, progress, notices)
                with _start_summary(settings, outputs, clock, resume_command, found):
                    settled = _warmed_up(setup, raw, outputs, trackers)
                    answers = AnswerFile(folder.answers, writes=True)
                    components = stack.enter_context(open_components(setup, settled, stop, answers))
                said = (
                    rewards_of(settings),
                    *setup.derived,
                    *setup.notes,
                    *notes_of_dialogue(setup),
                )
                for line in filter(None, said):
                    progress.say(line)
            advice = resume_command if advise else None
            run = TrainingRun(
                components,
                outputs,
                resume_command=advice,
                facts={"sandbox_level": setup.sandbox_level},
                clock=clock,
                callbacks=callbacks,
            )
            with _partial_summary(settings, folder, partial(run.summary, finished=False)):
                summary = run_loop(run.run(found.checkpoint))
        _summarise(settings, folder, summary)
        written = read_summary(folder)
        assert written is not None
        return written


def how_to_resume(place: Path, runs: Path, settings: RunConfig) -> str:
    """Return how a run goes on: by the command, or by the call if it alone has the functions."""
    if needs_program(settings):
        return "the same call of this program, with resume=True"
    elsewhere = "" if runs == Path("runs") else f" --runs {runs}"
    return f"motet train {place / 'config.yaml'} --resume{elsewhere}"


@contextmanager
def _interrupt_hint(resume_command: str) -> Iterator[None]:
    """Say how to resume if Ctrl-C ends the run at once. Raises: Interrupted."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"stopped at once. Resume from the last checkpoint with: {resume_command}"
        ) from error


def _notices(progress: Progress, traceback: bool, found: Resumed, setup: TaskSetup) -> Notices:
    """Show what a user should know before the run."""
    notices = Notices(progress.say, traceback)
    for line in found.skipped:
        progress.say(line)
    for line in (*found.warnings, *warnings_of(setup), *setup.warnings, *memory_of_run(setup)):
        notices.say(line)
    if not is_there("matplotlib"):
        notices.say(f"no curve is drawn without matplotlib: {install('matplotlib')}")
    return notices


def _warmed_up(
    setup: TaskSetup,
    raw: bases.Bases,
    outputs: RunOutputs,
    trackers: Sequence[Tracker],
) -> Mapping[str, str | Path]:
    """Run the warm-up of the `raw` models. Return where each model is to be loaded from."""
    folder, progress = outputs.folder, outputs.progress
    with _warmup_metrics(setup.config, folder, trackers) as warmed:
        settled = run_loop(bases.settle(setup, raw, folder.models, warmed, progress))
    progress.stage("load", 0)
    progress.waiting("the models to be loaded")
    return settled


@contextmanager
def _started(
    settings: RunConfig, folder: RunFolder, resumed: Checkpoint | None, report: OnMetrics | None
) -> Iterator[list[Tracker]]:
    """Write the resolved config, and open the trackers besides the files."""
    # Write the config first: a folder with a config can be resumed or overwritten.
    write_whole(folder.config, dump_config(settings))
    step, plain = resumed.step if resumed else None, settings.model_dump(mode="json")
    with open_trackers(settings.report, folder.path, settings.name, plain, step) as trackers:
        for source in (settings.data.train, settings.data.eval):
            if source is not None and is_object(source.path):
                record_rows(folder.path, str(source.path))
        record_code(folder, settings, step or 0)
        yield trackers + ([] if report is None else [FunctionTracker(report)])


@contextmanager
def _warmup_metrics(
    settings: RunConfig, folder: RunFolder, trackers: Sequence[Tracker]
) -> Iterator[MetricsWriter | None]:
    """Open the file of the warm-up. It keeps the lines of models whose warm-up is finished, because
    these warm-ups are not repeated."""
    if settings.warmup is None:
        yield None
        return
    settled = {f"warmup/loss/{name}" for name in settings.models if (folder.models / name).is_dir()}
    rows = read_metrics(folder.warmup) if folder.warmup.is_file() else []
    keep = sum(not settled.isdisjoint(row) for row in rows)
    with MetricsWriter(folder.warmup, trackers, keep) as metrics:
        yield metrics


# ------------------------------------------------------------- the summary, also after an early end


def _summarise(settings: RunConfig, folder: RunFolder, summary: Mapping[str, Any]) -> None:
    """Write the summary, with the name of the run, and the learning curve if it can be drawn."""
    named = {"name": settings.name, **summary}
    write_json(folder.summary, named)
    if is_there("matplotlib"):
        learning_curve(read_metrics(folder.metrics), named, folder.curve)


@contextmanager
def _partial_summary(
    settings: RunConfig,
    folder: RunFolder,
    so_far: Callable[[], Mapping[str, Any]],
    *,
    starting: bool = False,
) -> Iterator[None]:
    """If the body ends early, write the summary `so_far`. A ConfigError while the run is `starting`
    removes its folder."""
    try:
        yield
    except (MotetError, KeyboardInterrupt) as error:
        # The error that ended the run is the one to report.
        if not (starting and isinstance(error, ConfigError)):
            with suppress(MotetError, OSError):
                _summarise(settings, folder, so_far())
        raise


@contextmanager
def _start_summary(
    settings: RunConfig, outputs: RunOutputs, clock: Clock, resume_command: str, found: Resumed
) -> Iterator[None]:
    """If the start (models, warm-up) ends early, write a summary without training, and say so.

    A run with a checkpoint keeps the summary that it has. Raises: Interrupted after Ctrl-C.
    """
    if found.checkpoint is not None:
        yield
        return

    def untrained() -> dict[str, Any]:
        state = RunState(settings.alarms, clock).summary()
        counts = {"seed": settings.seed, "steps": 0, "finished": False}
        return {**counts, **state, "warnings": list(outputs.notices.lines)}

    with _partial_summary(settings, outputs.folder, untrained, starting=True):
        try:
            yield
        except KeyboardInterrupt as error:
            where = "before the first step" if settings.warmup is None else "in the warm-up"
            raise Interrupted(
                f"stopped {where}: no agent has been trained by rewards yet. Resume with: "
                f"{resume_command}"
            ) from error


@blocking
def warmup(
    config: ConfigLike,
    overrides: Sequence[str] = (),
    *,
    into: str | Path | None = None,
    show: Show = "auto",
    **objects: Unpack[Objects],
) -> dict[str, str]:
    """Run only the supervised warm-up. Return model -> folder of the result: `into/MODEL`.

    Args:
        into: the folder for the models. Default: `runs/NAME-warmup`.
        objects: replace what the config names, as in `train`.
    """
    settings = read_config(config, overrides, **objects)
    if settings.warmup is None:
        raise ConfigError(
            "the config has no warmup section; expected one, such as warmup: {steps: 300}"
        )
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
