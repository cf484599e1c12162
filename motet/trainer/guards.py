"""Alarms: figures that show how a team collapses, and a bound for each. A run tells once; it may also stop."""

from collections.abc import Mapping
from dataclasses import dataclass

from motet.settings import Guards


@dataclass(frozen=True)
class _Watched:
    """A metric, which bound of `Guards` it has, and what it means to be beyond it."""

    metric: str
    bound: str
    meaning: str

    def beyond(self, value: float, bound: float) -> bool:
        return value < bound if self.bound.startswith("min") else value > bound


WATCHED = (
    _Watched("learn/entropy", "min_entropy", "nearly every token is certain, so nothing new is tried"),
    _Watched("learn/kl", "max_kl", "the team has left where it started far behind"),
    _Watched("play/cut", "max_cut", "most answers are cut off at decode.max_new_tokens"),
    _Watched("play/duplicates", "max_duplicates", "most answers to one prompt are word for word the same"),
    _Watched("credit/flat_groups", "max_flat_groups", "most answers to one prompt earn the same, so there is little to learn"),
)  # fmt: skip


@dataclass(frozen=True)
class Alarm:
    """A bound that a figure has been beyond for `Guards.patience` steps in a row."""

    step: int
    metric: str
    value: float
    bound: str

    def __str__(self) -> str:
        meaning = next(watched.meaning for watched in WATCHED if watched.bound == self.bound)
        return f"alarm at step {self.step}: {self.metric} is {self.value:.3g}, beyond guards.{self.bound}: {meaning}"


class Watch:
    """Sees every step of a run in order. `state` is plain JSON, and part of a checkpoint."""

    def __init__(self, guards: Guards, state: Mapping[str, int] | None = None) -> None:
        self._guards = guards
        self._beyond: dict[str, int] = dict(state or {})

    def see(self, step: int, figures: Mapping[str, float]) -> list[Alarm]:
        """Alarms that this step begins. One that has ended may begin again; a step without the figure changes nothing."""
        begun = []
        for watched in WATCHED:
            bound, value = getattr(self._guards, watched.bound), figures.get(watched.metric)
            if bound is None or value is None:
                continue
            self._beyond[watched.bound] = self._beyond.get(watched.bound, 0) + 1 if watched.beyond(value, bound) else 0
            if self._beyond[watched.bound] == self._guards.patience:
                begun.append(Alarm(step, watched.metric, value, watched.bound))
        return begun

    @property
    def standing(self) -> int:
        """Alarms that have begun and not ended."""
        return sum(count >= self._guards.patience for count in self._beyond.values())

    def state(self) -> dict[str, int]:
        return dict(self._beyond)
