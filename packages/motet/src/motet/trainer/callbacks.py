"""Functions of a user that a run calls: after every step, and after every evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from motet.errors import ConfigError, MotetError
from motet.user_code.plugins import nearest

OnMetrics: TypeAlias = Callable[[int, Mapping[str, float]], object]
"""Called with (step, metrics). docs/metrics.md lists the metrics."""


@dataclass(frozen=True)
class Callback:
    """What a run calls. A function that returns True ends the training after this step.

    The run then evaluates, and saves the team, as after its last step.
    """

    on_step: OnMetrics | None = None
    """Called after every training step, with its metrics: `play/...`, `learn/...` and so on."""
    on_evaluation: OnMetrics | None = None
    """Called after every evaluation, with `evaluate/...`. Step 0 is the one before training."""
    name: str = ""
    """The name for the summary of a run that it ends. By default that of the function."""


_ALWAYS = ("play/", "evaluate/")
"""Stages whose metrics every step or every evaluation has."""


def stop_when(
    metric: str, *, at_least: float | None = None, at_most: float | None = None
) -> Callback:
    """Return a callback that ends the training when a metric reaches a value.

    Example: `motet.stop_when("evaluate/success", at_least=0.9)`, with `evaluation.every=10`.

    The metric is one of a training step, or of an evaluation (`evaluate/...`). The run stops with a
    MotetError if it has no such metric.

    Raises: ConfigError unless exactly one of the bounds is given.
    """
    if (at_least is None) == (at_most is None):
        raise ConfigError(
            f"stop_when got at_least {at_least} and at_most {at_most}; expected exactly one of them"
        )

    low = -inf if at_least is None else at_least
    high = inf if at_most is None else at_most
    stage = f"{metric.partition('/')[0]}/"
    bound = f"at least {low:g}" if at_most is None else f"at most {high:g}"

    def reached(step: int, metrics: Mapping[str, float]) -> bool:
        if metric not in metrics:
            if metric.startswith(_ALWAYS) and any(name.startswith(stage) for name in metrics):
                raise MotetError(
                    f"stop_when names {metric!r}{nearest(metric, metrics)}, which is not a metric "
                    f"of this run; expected one of {', '.join(sorted(metrics))}"
                )
            return False
        value = metrics[metric]
        return low <= value <= high

    return Callback(reached, reached, name=f"{metric} {bound}")


class Callbacks:
    """The callbacks of a run, and which of them has ended the training."""

    def __init__(self, given: Sequence[Callback] = ()) -> None:
        """Raises: ConfigError if one is not a Callback."""
        for one in given:
            if not isinstance(one, Callback):
                raise ConfigError(
                    f"callbacks has {one!r} of type {type(one).__name__}; expected a "
                    "motet.Callback: write motet.Callback(on_step=FUNCTION)"
                )
        self._given = tuple(given)
        self.ended_by: str | None = None
        """The name of the callback that has ended the training."""

    def step(self, number: int, metrics: Mapping[str, float]) -> None:
        """Call every `on_step`. Raises: MotetError if one raises an exception."""
        for one in self._given:
            self._call(one, one.on_step, "on_step", number, metrics)

    def evaluation(self, number: int, metrics: Mapping[str, float]) -> None:
        """Call every `on_evaluation`. Raises: MotetError if one raises an exception."""
        for one in self._given:
            self._call(one, one.on_evaluation, "on_evaluation", number, metrics)

    def _call(
        self,
        callback: Callback,
        function: OnMetrics | None,
        kind: str,
        number: int,
        metrics: Mapping[str, float],
    ) -> None:
        if function is None:
            return
        name = callback.name or getattr(function, "__name__", type(function).__name__)
        try:
            ends = function(number, dict(metrics)) is True
        except MotetError:
            raise
        except Exception as error:
            raise MotetError(
                f"callback {name}, {kind} of step {number}: {type(error).__name__}: {error}"
            ) from error
        if ends and self.ended_by is None:
            self.ended_by = name
