"""The summary of a run, also of one that ended early, so that it can be looked at and compared."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from motet.api.html import RunSummary
from motet.config.schema import RunConfig
from motet.errors import ConfigError, Interrupted, MotetError
from motet.trainer.metrics import read_metrics
from motet.trainer.plot import learning_curve
from motet.trainer.run import RunOutputs
from motet.trainer.run_folder import RunFolder, write_json
from motet.trainer.run_state import Clock, RunState


def summarise(settings: RunConfig, folder: RunFolder, summary: Mapping[str, Any]) -> RunSummary:
    """Write the summary and the learning curve. Return the summary with the name of the run."""
    named = RunSummary({"name": settings.name, **summary})
    write_json(folder.summary, named)
    learning_curve(read_metrics(folder.metrics), named, folder.curve)
    return named


@contextmanager
def partial_summary(
    settings: RunConfig, folder: RunFolder, so_far: Callable[[], Mapping[str, Any]]
) -> Iterator[None]:
    """If the body ends early, write the summary `so_far`."""
    try:
        yield
    except (MotetError, KeyboardInterrupt) as error:
        # The error that ended the run is the one to report. A ConfigError removes the folder.
        if not isinstance(error, ConfigError):
            with suppress(MotetError, OSError):
                summarise(settings, folder, so_far())
        raise


@contextmanager
def warmup_summary(
    settings: RunConfig, outputs: RunOutputs, clock: Clock, resume_command: str
) -> Iterator[None]:
    """If the start (models, warm-up) ends early, write a summary without training, and say so.

    Raises: Interrupted after Ctrl-C.
    """
    folder, lines = outputs.folder, outputs.notices.lines
    with partial_summary(settings, folder, lambda: _untrained(settings, clock, lines)):
        try:
            yield
        except KeyboardInterrupt as error:
            where = "before the first step" if settings.warmup is None else "in the warm-up"
            raise Interrupted(
                f"stopped {where}: no agent has been trained by rewards yet. Resume with: "
                f"{resume_command}"
            ) from error


def _untrained(settings: RunConfig, clock: Clock, warnings: Sequence[str]) -> dict[str, Any]:
    counts = {"seed": settings.seed, "steps": 0, "finished": False}
    return {**counts, **RunState(settings.alarms, clock).summary(), "warnings": list(warnings)}
