"""How good scores are, against labels. No model, no files."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """The probability that a right answer scores above a wrong one, a tie counting half (Mann and Whitney 1947).

    None where all are right or all are wrong.
    """
    right = np.asarray(labels, dtype=bool)
    rights, wrongs = int(right.sum()), int((~right).sum())
    if not (rights and wrongs):
        return None
    _, place, count = np.unique(np.asarray(scores, dtype=float), return_inverse=True, return_counts=True)
    rank = count.cumsum() - (count - 1) / 2  # the mean rank of those that tie, from 1
    return float((rank[place][right].sum() - rights * (rights + 1) / 2) / (rights * wrongs))


def accuracy(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """The share that is on the right side of .5; at .5 an answer counts as called wrong."""
    called = np.asarray(scores, dtype=float) > 0.5
    return float((called == np.asarray(labels, dtype=bool)).mean())


@dataclass(frozen=True)
class Bin:
    """The answers whose scores lie in [low, high)."""

    low: float
    high: float
    count: int
    score: float
    """Their mean score."""
    right: float
    """The share of them that is right."""


def reliability(scores: Sequence[float], labels: Sequence[bool], bins: int = 10) -> list[Bin]:
    """Bins of equal width, those without answers left out. A score of 1 is in the last."""
    given, right = np.asarray(scores, dtype=float), np.asarray(labels, dtype=float)
    place = np.minimum((given * bins).astype(int), bins - 1)
    return [
        Bin(n / bins, (n + 1) / bins, int(inside.sum()), float(given[inside].mean()), float(right[inside].mean()))
        for n in range(bins)
        if (inside := place == n).any()
    ]


def calibration_error(scores: Sequence[float], labels: Sequence[bool], bins: int = 10) -> float:
    """Expected calibration error (Naeini et al. 2015): the mean over all answers of |mean score - share right| of their bin."""
    found = reliability(scores, labels, bins)
    return sum(one.count * abs(one.score - one.right) for one in found) / len(scores)
