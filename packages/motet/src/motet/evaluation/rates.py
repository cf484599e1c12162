"""Confidence intervals of rates: of success over tasks, with several games per task or one.

Wilson's interval in place of the bootstrap, which gives 0 to 0 for no success in 4 tasks (Wilson: 0
to .49) and covers 90 % at a rate of .98 with 100 tasks. Written here and not taken from SciPy,
which is no dependency of Motet and has nothing for games of one task, which depend on each other.

Sources: Wilson 1927; Newcombe 1998 (paired differences, method 10); effective sample sizes: Kish
1965, Korn and Graubard 1998.
"""

from collections.abc import Sequence
from math import fsum, sqrt
from statistics import NormalDist

from motet.evaluation.bootstrap import CONFIDENCE, Estimate, estimate, paired_difference
from motet.evaluation.over_seeds import student_t
from motet.evaluation.playthrough import Games, successes, valid_games

Z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)
"""1.96: a normal variable is in [-Z, Z] with the probability CONFIDENCE."""


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
