"""Mean, standard deviation and confidence interval of a figure over runs with different seeds.

With a handful of runs the bootstrap is too narrow, so the interval is Student's t. It assumes that
the figure is roughly normal over seeds (Colas, Sigaud and Oudeyer 2018, arXiv:1806.08295, 3.2).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import atan, cos, pi, sin, sqrt
from statistics import mean, stdev

CONFIDENCE_OF_SEEDS = 0.95


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


def over_seeds(values: Sequence[float]) -> OverSeeds:
    """Return the statistics of one value per run: mean ± t · std / √runs.

    Raises: ValueError if there is no value.
    """
    if not values:
        raise ValueError("over_seeds got no value; expected one per run")
    middle = mean(values)
    if len(values) == 1:
        return OverSeeds(1, middle, None, None, None)
    deviation = stdev(values)
    half = student_t(CONFIDENCE_OF_SEEDS, len(values) - 1) * deviation / sqrt(len(values))
    return OverSeeds(len(values), middle, deviation, middle - half, middle + half)


def student_t(confidence: float, freedom: int) -> float:
    """Return t such that a Student variable is in [-t, t] with this probability.

    `freedom` is the number of degrees of freedom. It is 12.706 for 0.95 and 1.
    """
    low, high = 0.0, 1.0
    while within(high, freedom) < confidence:
        high *= 2.0
    for _ in range(100):
        middle = (low + high) / 2.0
        low, high = (middle, high) if within(middle, freedom) < confidence else (low, middle)
    return high


def within(t: float, freedom: int) -> float:
    """Return the probability that a Student variable is in [-t, t].

    A finite sum for every whole number of degrees of freedom (Abramowitz and Stegun 1964, 26.7.3
    and 26.7.4).
    """
    odd = freedom % 2 == 1
    angle = atan(t / sqrt(freedom))
    term, place = (cos(angle), 2) if odd else (1.0, 1)
    total = 0.0
    for _ in range(freedom // 2):
        total += term
        term *= cos(angle) ** 2 * place / (place + 1)
        place += 2
    return 2.0 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total


def curve_over_seeds(curves: Sequence[Mapping[int, float]]) -> dict[int, OverSeeds]:
    """Return step -> statistics over the runs that have a value at this step, in order of steps.

    `curves` has one mapping step -> value per run.
    """
    steps = sorted({step for curve in curves for step in curve})
    return {step: over_seeds([curve[step] for curve in curves if step in curve]) for step in steps}
