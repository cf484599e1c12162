"""The summary of a run, also of one that ended early, so that it can be looked at and compared."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from motet.api.html import RunSummary
from motet.config.schema import RunConfig
from motet.errors import ConfigError, Interrupted, MotetError
from motet.trainer.metrics import read_metrics
from motet.trainer.notices import Notices
from motet.trainer.plot import learning_curve
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
def stopped_in_warmup(resume_command: str) -> Iterator[None]:
    """Say that no agent was trained, if Ctrl-C ends the warm-up. Raises: Interrupted."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(
            "stopped in the warm-up, before any agent was trained by rewards. Resume with: "
            f"{resume_command}"
        ) from error


def untrained(settings: RunConfig, clock: Clock, notices: Notices) -> dict[str, Any]:
    """Return the summary of a run of which only the warm-up has begun."""
    counts = {"seed": settings.seed, "steps": 0, "finished": False}
    state = RunState(settings.alarms, clock).summary()
    return {**counts, **state, "warnings": notices.lines}
