"""Measure the time of a run, in seconds by stage."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter


class Stopwatch:
    """Seconds per stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._since = perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to `stage`."""
        now = perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now


class Profile:
    """Seconds per stage over the steps of a run.

    A stage `whole/part` is a part of the stage `whole` and is included in its seconds.
    """

    def __init__(self, steps: int = 0, seconds: Mapping[str, float] | None = None) -> None:
        self._steps, self._seconds = steps, dict(seconds or {})

    def step(self, seconds: Mapping[str, float]) -> None:
        """Add one step and its seconds."""
        self._steps += 1
        for stage, value in seconds.items():
            self._add(stage, value)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure the body as a stage of the last step."""
        since = perf_counter()
        yield
        self._add(name, perf_counter() - since)

    def _add(self, stage: str, value: float) -> None:
        self._seconds[stage] = self._seconds.get(stage, 0.0) + value

    def means(self) -> dict[str, float]:
        """Return the mean seconds per step, by stage."""
        if not self._steps:
            return {}
        return {stage: value / self._steps for stage, value in self._seconds.items()}

    def state(self) -> dict[str, float | dict[str, float]]:
        """Return the constructor arguments for a Profile that continues this one."""
        return {"steps": self._steps, "seconds": dict(self._seconds)}
