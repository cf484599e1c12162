"""The summary of a run: what `train` returns, and what summary.json holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from motet.core.records import from_json
from motet.errors import ConfigError
from motet.evaluation.evaluate import EvaluationResult
from motet.rollout.summary import EndpointUse
from motet.safety.reading import CONFIG, read_bytes
from motet.safety.visible import visible
from motet.trainer.alarms import Alarm
from motet.trainer.run_folder import RunFolder


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The results of a run. docs/metrics.md lists them. A notebook shows them as a table."""

    name: str
    seed: int
    steps: int
    """The number of finished steps."""
    finished: bool = True
    """False if the run was stopped or failed."""
    ended_by: str | None = None
    """The callback that ended the training."""
    heldout: Mapping[str, EvaluationResult]
    """`before` and `after`: the evaluations before and after training, as far as there are any."""
    tokens: int
    tokens_per_second: float
    profile: Mapping[str, float]
    """Stage -> mean seconds per step."""
    wall_seconds: float
    cpu_seconds: float
    alarms: Sequence[Alarm]
    machine: Mapping[str, Any]
    warnings: Sequence[str]
    endpoints: Mapping[str, EndpointUse] | None = None
    """Policy behind an endpoint -> its use in all games of the run."""

    def _repr_html_(self) -> str:
        state = "" if self.finished else " (stopped)"
        title = escape(visible(f"{self.name}: {self.steps:,} steps{state}"))
        lines = [_row("th", ["held out", "success", "reward", "faults"])]
        for when, found in self.heldout.items():
            figures = (_shown(found.success), _shown(found.reward), f"{found.faults:,}")
            lines.append(_row("td", [when, *figures]))
        return f"<table><caption>{title}</caption>{''.join(lines)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    inside = "".join(f"<{tag}>{escape(visible(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def read_summary(folder: RunFolder) -> RunSummary | None:
    """Return the summary of a run, also of one that was stopped. None if it has none yet.

    Raises: ConfigError if it is not one that `train` writes.
    """
    path = folder.summary
    if not path.is_file():
        return None
    try:
        return from_json(RunSummary, read_bytes(path, CONFIG), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; expected a summary") from error
