"""Trackers: where the metrics of a run go besides metrics.jsonl.

TensorBoard, Weights & Biases, Trackio and functions of a user.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from motet.config.sections import ReportConfig, TrackioConfig, WandbConfig
from motet.errors import ConfigError, MotetError
from motet.trainer.run_folder import write_whole
from motet.user_code.libraries import install, is_there
from motet.user_code.plugins import load_function


class Tracker(Protocol):
    """A destination of metrics."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class FunctionTracker:
    """Calls a user's function with (step, metrics) for every line."""

    def __init__(self, report: Callable[[int, Mapping[str, float]], object]) -> None:
        self._report = report

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Raises: MotetError if the function raises an exception."""
        try:
            self._report(step, dict(values))
        except MotetError:
            raise
        except Exception as error:
            raise MotetError(f"report, step {step}: {type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Do nothing: the function is the user's own."""


class TensorBoardTracker:
    """Writes metrics as scalars for `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        # Imported here because the import takes a second.
        from torch.utils.tensorboard import SummaryWriter

        purge = None if resumed_at is None else resumed_at + 1
        self._writer: Any = SummaryWriter(log_dir=str(folder), purge_step=purge)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandbTracker:
    """Logs metrics to Weights & Biases."""

    def __init__(
        self, folder: Path, chosen: WandbConfig, run: str, config: Mapping[str, Any]
    ) -> None:
        import wandb

        kept = folder / "wandb_id"  # a resumed run continues the same W&B run
        if not kept.is_file():
            write_whole(kept, uuid4().hex[:8])
        self._run: Any = wandb.init(
            id=kept.read_text(encoding="utf-8"),
            dir=str(folder),
            name=chosen.name or run,
            project=chosen.project,
            entity=chosen.entity,
            tags=list(chosen.tags),
            config=dict(config),
            resume="allow",
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        # Log `step` as a value: W&B's own step counter refuses to go back, which evaluations and
        # resumed runs need.
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


class TrackioTracker:
    """Logs metrics to Trackio. A resumed run continues the Trackio run of the same name."""

    def __init__(
        self, folder: Path, chosen: TrackioConfig, run: str, config: Mapping[str, Any]
    ) -> None:
        import trackio

        self._run: Any = trackio.init(
            project=chosen.project,
            name=chosen.name or run,
            space_id=chosen.space_id,
            config=dict(config),
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


# ------------------------------------------------------------------------------------ from a config

TRACKERS = ("to", "wandb", "trackio", "tensorboard")
"""Keys of `report`. All but the first are names of libraries."""


def check_trackers(report: ReportConfig) -> None:
    """Check that the trackers of a config are there, as `check_tracker`."""
    for name in TRACKERS:
        check_tracker(report, name)


def check_tracker(report: ReportConfig, name: str) -> None:
    """Check that one of `TRACKERS` is there, if it is set. Nothing is called or opened.

    Raises: ConfigError that names the key.
    """
    chosen = getattr(report, name)
    if chosen is None or chosen is False:
        return
    if name == "to":
        own_tracker(chosen)
    elif not is_there(name):
        raise ConfigError(f"report.{name} is set, but {name} is not installed: {install(name)}")


def own_tracker(name: str) -> FunctionTracker:
    """Return the tracker that `report.to` names. Raises: ConfigError if it is no function."""
    return FunctionTracker(
        load_function(name, "report.to", "a function that is called with (step, metrics)")
    )


@contextmanager
def open_trackers(
    report: ReportConfig,
    folder: Path,
    run: str,
    config: Mapping[str, Any],
    resumed_at: int | None = None,
) -> Iterator[list[Tracker]]:
    """Open the trackers of a run. They are closed at the end.

    Args:
        folder: that of the run.
        run: its name.
        config: its whole config as plain values.
        resumed_at: the step of the checkpoint that it resumes from.

    Raises: ConfigError as `check_trackers`.
    """
    check_trackers(report)
    trackers: list[Tracker] = []
    with ExitStack() as stack:

        def add(tracker: Tracker) -> None:
            trackers.append(tracker)
            stack.callback(tracker.close)

        if report.wandb is not None:
            add(WandbTracker(folder, report.wandb, run, config))
        if report.trackio is not None:
            add(TrackioTracker(folder, report.trackio, run, config))
        if report.to is not None:
            add(own_tracker(report.to))
        if report.tensorboard or (report.tensorboard is None and is_there("tensorboard")):
            add(TensorBoardTracker(folder / "tensorboard", resumed_at))
        yield trackers
