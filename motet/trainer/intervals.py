"""How sure a mean over tasks is: the percentile bootstrap (Efron and Tibshirani 1993, chapter 13)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from motet.seeding import derive, uniforms

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean, and the interval that `CONFIDENCE` of the resampled means fall into."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], seed: int) -> Estimate:
    """The mean of `values`, one per task, and its interval: the tasks are drawn again with replacement, as many as there are.

    Which tasks are drawn follows from `seed` and their number alone. So the interval of paired differences comes of the same
    resamples as those of the two means. Where all values are alike the interval is that value, and knows nothing of rarer ones.
    Raises: ValueError for no values.
    """
    if not values:
        raise ValueError("got no values to resample; expected one per task")
    table, count = np.asarray(values, dtype=np.float64), len(values)
    keys_R = np.array([derive(seed, "bootstrap", resample) for resample in range(RESAMPLES)], dtype=np.uint64)
    sums_R = np.zeros(RESAMPLES)
    for place in range(count):
        sums_R += table[(uniforms(keys_R, place) * count).astype(np.int64)]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(sums_R / count, [tail, 1.0 - tail])
    return Estimate(fsum(values) / count, float(low), float(high))


def estimate(values: Sequence[float | None], seed: int) -> Estimate | None:
    """The same over the tasks that have a value; None where none has."""
    found = [value for value in values if value is not None]
    return bootstrap(found, seed) if found else None


def lead(first: Sequence[float | None], other: Sequence[float | None], seed: int) -> Estimate | None:
    """By how much `first` is ahead of `other`: the mean of the differences, task by task, where both have a value."""
    pairs = zip(first, other, strict=True)
    return estimate([one - two for one, two in pairs if one is not None and two is not None], seed)
