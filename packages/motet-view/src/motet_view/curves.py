"""The metrics of a run as curves, read on while the run writes them."""

import json
from array import array
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from threading import Lock
from typing import Any

from motet.errors import ConfigError
from motet_view.lines import ReadPosition, after, continued, is_unchanged, lines_from
from motet_view.links import run_holds

MOST_POINTS = 1000
"""A curve with more values is sent as this many means at most."""


MOST_NAMES = 5000
"""Further metrics are left out. A run has a few hundred."""


class RunCurves:
    """The curves of one metrics.jsonl: metric -> steps and values, in the order of the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._begin()

    def _begin(self) -> None:
        self._at = ReadPosition()
        self._steps: dict[str, array[int]] = {}
        self._values: dict[str, array[float]] = {}
        self.broken = 0
        self.last_step: int | None = None

    def update(self) -> None:
        """Read the new lines. A file that was replaced is read from its beginning."""
        with self._lock:
            try:
                if is_unchanged(self._path, self._at):
                    return
                if not run_holds(self._path.parent, self._path):
                    raise ConfigError(f"{self._path} is a link that leaves the run")
                position = continued(self._path, self._at)
                if position.offset == 0:
                    self._begin()
                for line in lines_from(self._path, position.offset):
                    self._add(line.text)
                    position = after(position, line)
                self._at = position
            except (OSError, ConfigError):  # no such file, or none that this user can read
                self._begin()

    @property
    def stamp(self) -> int:
        """A number that changes with every line."""
        return self._at.offset

    @property
    def names(self) -> list[str]:
        return sorted(self._values)

    def curve(self, name: str) -> dict[str, Any]:
        """Return `steps` and `values`, and how many values each point is the mean of (`mean_of`).

        A metric that the run does not have is an empty curve.
        """
        with self._lock:
            steps = list(self._steps.get(name, ()))
            values = list(self._values.get(name, ()))
        every = -(-len(values) // MOST_POINTS) or 1
        if every > 1:
            parts = range(0, len(values), every)
            steps = [steps[min(at + every, len(steps)) - 1] for at in parts]
            values = [_mean(values[at : at + every]) for at in parts]
        return {"steps": steps, "values": values, "mean_of": every}

    def points(self, name: str) -> list[tuple[int, float]]:
        """Return every (step, value) of a metric."""
        with self._lock:
            return list(zip(self._steps.get(name, ()), self._values.get(name, ()), strict=True))

    def _add(self, text: bytes | None) -> None:
        try:
            if text is None:
                raise ConfigError("the line is too long")
            row = json.loads(text)
            step = row.pop("step")
            if not isinstance(step, int) or not 0 <= step < 1 << 62:
                raise ConfigError(f"got the step {step!r}")
            found = {
                name: float(value)
                for name, value in row.items()
                if isinstance(value, int | float) and isfinite(value)
            }
        except (
            ValueError, ConfigError, LookupError, AttributeError, TypeError, OverflowError,
            RecursionError,
        ):  # fmt: skip
            self.broken += 1
            return
        self.last_step = step
        for name, value in found.items():
            if name not in self._values and len(self._values) >= MOST_NAMES:
                continue
            self._steps.setdefault(name, array("q")).append(step)
            self._values.setdefault(name, array("d")).append(value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
