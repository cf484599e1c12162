"""Mean, standard deviation and confidence interval of a figure over runs with different seeds.

With a handful of runs the bootstrap is too narrow, so the interval is Student's t. It assumes that
the figure is roughly normal over seeds (Colas, Sigaud and Oudeyer 2018, arXiv:1806.08295, 3.2).
It cannot see an outcome that none of the runs had (`unseen`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev

from motet.evaluation.intervals import student_t

CONFIDENCE_OF_SEEDS = 0.95
SHARES = frozenset(
    {
        "success", "truncated", "duplicates", "accuracy", "majority_accuracy", "improved",
        "declined", "kept_right", "kept_wrong", "corrected", "spoiled", "persuaded", "misled",
        "clip_fraction", "frac_return_zero_std", "groups_failed", "groups_solved",
        "importance_clipped", "truncated_critic_inputs", "preference_accuracy",
        "step_scaled", "skipped", "auc", "ece", "right",
    }
)  # fmt: skip
"""Parts of the names of metrics that are between 0 and 1 (docs/metrics.md: unit share)."""


def bounds_of(metric: str) -> tuple[float, float] | None:
    """Return the bounds of a metric that is a share. None for others."""
    return None if SHARES.isdisjoint(metric.split("/")) else (0.0, 1.0)


def unseen(runs: int) -> float:
    """Return how often an outcome may happen that none of `runs` runs had: 1 − .05^(1/runs).

    Five runs that all succeed are compatible with 45 % of the runs failing (Clopper and Pearson
    1934, one-sided).
    """
    return 1.0 - float((1.0 - CONFIDENCE_OF_SEEDS) ** (1.0 / runs))


@dataclass(frozen=True)
class OverSeeds:
    """A figure over `runs` runs. With one run there is no deviation and no interval."""

    runs: int
    mean: float
    std: float | None
    """The sample standard deviation, with runs - 1 in the denominator."""
    low: float | None
    """The lower end of the interval of the mean."""
    high: float | None


def over_seeds(values: Sequence[float], bounds: tuple[float, float] | None = None) -> OverSeeds:
    """Return the statistics of one value per run: mean ± t · std / √runs, cut off at `bounds`.

    The mean of a figure is never outside its bounds, so the cut changes no coverage.

    Raises: ValueError if there is no value.
    """
    if not values:
        raise ValueError("over_seeds got no value; expected one per run")
    middle = mean(values)
    if len(values) == 1:
        return OverSeeds(1, middle, None, None, None)
    deviation = stdev(values)
    half = student_t(CONFIDENCE_OF_SEEDS, len(values) - 1) * deviation / sqrt(len(values))
    low, high = middle - half, middle + half
    if bounds is not None and all(bounds[0] <= value <= bounds[1] for value in values):
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return OverSeeds(len(values), middle, deviation, low, high)


def curve_over_seeds(
    curves: Sequence[Mapping[int, float]], bounds: tuple[float, float] | None = None
) -> dict[int, OverSeeds]:
    """Return step -> statistics over the runs that have a value at this step, in order of steps.

    `curves` has one mapping step -> value per run. `bounds` is as in `over_seeds`.
    """
    steps = sorted({step for curve in curves for step in curve})
    return {
        step: over_seeds([curve[step] for curve in curves if step in curve], bounds)
        for step in steps
    }
