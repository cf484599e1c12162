"""Confidence intervals of means over tasks: the percentile bootstrap. For rates see `rates`.

Source: Efron and Tibshirani 1993, chapter 13.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np

from motet.core.seeding import derive, uniforms

RESAMPLES = 2000
CONFIDENCE = 0.95


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
    keys_R = np.array(
        [derive(seed, "bootstrap", resample) for resample in range(RESAMPLES)], dtype=np.uint64
    )
    sums_R = np.zeros(RESAMPLES)
    for place in range(count):
        sums_R += table[(uniforms(keys_R, place) * count).astype(np.int64)]
    tail = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(sums_R / count, [tail, 1.0 - tail])
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
