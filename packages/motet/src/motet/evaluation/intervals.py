"""Confidence intervals of means over tasks, and of rates such as success.

Means: the percentile bootstrap (Efron and Tibshirani 1993, chapter 13). Rates: Wilson's interval,
with several games per task or one. The bootstrap gives 0 to 0 for no success in 4 tasks (Wilson: 0
to .49) and covers 90 % at a rate of .98 with 100 tasks. Written here and not taken from SciPy,
which is no dependency of Motet and has nothing for games of one task, which depend on each other.

Sources: Wilson 1927; Newcombe 1998 (paired differences, method 10); effective sample sizes: Kish
1965, Korn and Graubard 1998.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import atan, cos, fsum, pi, sin, sqrt
from statistics import NormalDist

import numpy as np

from motet.core.seeding import derive, uniforms
from motet.evaluation.playthrough import Games, successes, valid_games

RESAMPLES = 2000
CONFIDENCE = 0.95
Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)
"""1.96: a normal variable is in [-Z, Z] with the probability CONFIDENCE."""


@dataclass(frozen=True)
class Estimate:
    """A mean, and the interval that contains the share `CONFIDENCE` of the resampled means."""

    mean: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """Whether it has no width, because all values are equal: it then says nothing."""
        return self.low == self.high


def bootstrap(values: Sequence[float], seed: int) -> Estimate:
    """Return the mean of `values`, one per task, and its interval.

    The tasks are resampled with replacement, as many as there are. The resamples depend only on
    `seed` and on the number of tasks, so paired differences use the same resamples as the two
    means. If all values are equal, the interval is that value; it says nothing about rarer values.

    Raises: ValueError if there are no values.
    """
    if not values:
        raise ValueError("got no values to resample; expected one per task")
    table, count = np.asarray(values, dtype=np.float64), len(values)
    keys = np.array(
        [derive(seed, "bootstrap", resample) for resample in range(RESAMPLES)], dtype=np.uint64
    )
    sums = np.zeros(RESAMPLES)
    for place in range(count):
        sums += table[(uniforms(keys, place) * count).astype(np.int64)]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(sums / count, [tail, 1.0 - tail])
    return Estimate(fsum(values) / count, float(low), float(high))


def estimate(values: Sequence[float | None], seed: int) -> Estimate | None:
    """Return the bootstrap of the tasks that have a value. None if there is none."""
    found = [value for value in values if value is not None]
    return bootstrap(found, seed) if found else None


def paired_difference(
    first: Sequence[float | None], other: Sequence[float | None], seed: int
) -> Estimate | None:
    """Return the mean difference `first` - `other` over the tasks where both have a value."""
    pairs = zip(first, other, strict=True)
    return estimate([one - two for one, two in pairs if one is not None and two is not None], seed)


# ------------------------------------------------------------ rates


def wilson(rate: float, count: float) -> tuple[float, float]:
    """Return the ends of the interval of a rate that was measured on `count` independent trials.

    They are the rates p with |rate − p| ≤ Z √(p(1 − p)/count), so they are never outside 0 to 1.
    `count` need not be whole.
    """
    spread = Z * Z / count
    middle = (rate + spread / 2.0) / (1.0 + spread)
    half = sqrt(spread * (rate * (1.0 - rate) + spread / 4.0)) / (1.0 + spread)
    low = 0.0 if rate == 0.0 else max(0.0, middle - half)
    high = 1.0 if rate == 1.0 else min(1.0, middle + half)
    return low, high


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


def effective_count(values: Sequence[float], games: int) -> float:
    """Return how many independent games tell as much as these: at least one per task, at most all.

    `values` are the rates of each task in 0 to 1, from `games` games in all. The tasks are
    independent, the games of one task are not. It is p(1 − p) divided by the variance of the mean,
    which is that of the tasks divided by their number. With one game per task it is the number of
    tasks. The variance of a few tasks is uncertain, so the rest is lowered by (Z/t)², with
    Student's t of tasks − 1 degrees of freedom.
    """
    tasks = len(values)
    rate = fsum(values) / tasks
    between = fsum((value - rate) ** 2 for value in values) / tasks
    if tasks == 1 or rate in (0.0, 1.0):
        return tasks
    if between == 0.0:
        return max(tasks, games * (Z / student_t(CONFIDENCE, tasks - 1)) ** 2)
    found = rate * (1.0 - rate) * tasks / between * (Z / student_t(CONFIDENCE, tasks - 1)) ** 2
    return max(tasks, min(found, games))


def rate_of(values: Sequence[float | None], games: int, seed: int) -> Estimate | None:
    """Return the mean of the tasks that have a value, with Wilson's interval at their
    `effective_count`. None if there is none.

    A value outside 0 to 1 is no rate: then the interval is that of the bootstrap.
    """
    found = [value for value in values if value is not None]
    if not found or not all(0.0 <= value <= 1.0 for value in found):
        return estimate(found, seed)
    mean = fsum(found) / len(found)
    return Estimate(mean, *wilson(mean, effective_count(found, games)))


def rate_difference(
    first: Sequence[float | None], other: Sequence[float | None], games: int, seed: int
) -> Estimate | None:
    """Return the mean difference of two rates over the tasks where both have a value.

    The interval is Newcombe's for pairs: that of each rate (`wilson`), and the correlation of the
    two over the tasks. `games`: of one of the two, in all tasks.
    """
    both = zip(first, other, strict=True)
    pairs = [(one, two) for one, two in both if one is not None and two is not None]
    if not pairs or not all(0.0 <= value <= 1.0 for pair in pairs for value in pair):
        return paired_difference(first, other, seed)
    ones, twos = [one for one, _ in pairs], [two for _, two in pairs]
    p, q = fsum(ones) / len(ones), fsum(twos) / len(twos)
    low_p, high_p = wilson(p, effective_count(ones, games))
    low_q, high_q = wilson(q, effective_count(twos, games))
    spread = sqrt(fsum((one - p) ** 2 for one in ones) * fsum((two - q) ** 2 for two in twos))
    together = fsum((one - p) * (two - q) for one, two in pairs)
    if together > 0.0:  # Newcombe's correction: equal results in a few tasks are no certainty
        together = max(0.0, together - 0.5)
    correlation = together / spread if spread > 0.0 else 0.0
    below, above = (
        _length(p - low_p, high_q - q, correlation),
        _length(high_p - p, q - low_q, correlation),
    )
    return Estimate(p - q, max(-1.0, p - q - below), min(1.0, p - q + above))


def _length(one: float, two: float, correlation: float) -> float:
    return sqrt(max(0.0, one * one - 2.0 * correlation * one * two + two * two))


def success_of(games: Games, seed: int) -> Estimate | None:
    """Return the success of played tasks with its interval. None if no game reports it."""
    return rate_of(successes(games), game_count(games), seed)


def game_count(games: Games) -> int:
    """Return the number of games that did not fail."""
    return sum(len(valid_games(played)) for played in games)
