"""Measure and draw how well scores agree with labels. Uses no model."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from motet.safety.visible import visible
from motet.trainer.plot import FAINT, TRAINED, figure_in


def auc(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    """Compute the area under the ROC curve of the scores.

    This is the probability that a right answer scores above a wrong one; a tie counts half (Mann
    and Whitney 1947). None if all answers are right or all are wrong.
    """
    right = np.asarray(labels, dtype=bool)
    rights, wrongs = int(right.sum()), int((~right).sum())
    if not (rights and wrongs):
        return None
    _, place, count = np.unique(
        np.asarray(scores, dtype=float), return_inverse=True, return_counts=True
    )
    rank = count.cumsum() - (count - 1) / 2  # mean rank of tied scores, counted from 1
    return float((rank[place][right].sum() - rights * (rights + 1) / 2) / (rights * wrongs))


def accuracy(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Compute the share of answers whose score is on the correct side of .5.

    A score of exactly .5 classifies the answer as wrong.
    """
    called = np.asarray(scores, dtype=float) > 0.5
    return float((called == np.asarray(labels, dtype=bool)).mean())


@dataclass(frozen=True)
class Bin:
    """The answers whose scores lie in [low, high)."""

    low: float
    high: float
    count: int
    score: float
    """Mean score of these answers."""
    right: float
    """Share of right answers among them."""


def reliability(scores: Sequence[float], labels: Sequence[bool], bins: int = 10) -> list[Bin]:
    """Group the scores into bins of equal width; empty bins are left out.

    A score of 1 belongs to the last bin.
    """
    given, right = np.asarray(scores, dtype=float), np.asarray(labels, dtype=float)
    place = np.minimum((given * bins).astype(int), bins - 1)
    return [
        Bin(
            n / bins,
            (n + 1) / bins,
            int(inside.sum()),
            float(given[inside].mean()),
            float(right[inside].mean()),
        )
        for n in range(bins)
        if (inside := place == n).any()
    ]


def calibration_error(scores: Sequence[float], labels: Sequence[bool], bins: int = 10) -> float:
    """Compute the expected calibration error (Naeini et al. 2015).

    This is the mean over all answers of |mean score - share of right answers| of their bin.
    """
    found = reliability(scores, labels, bins)
    return sum(one.count * abs(one.score - one.right) for one in found) / len(scores)


def reliability_curve(bins: Sequence[Bin], title: str, path: Path) -> None:
    """Plot the share of right answers by score. A calibrated verifier is on the diagonal."""
    scores, right = [one.score for one in bins], [one.right for one in bins]
    largest = max(one.count for one in bins)
    with figure_in(path, 4.6, 4.6) as figure:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.0, linestyle="--")
        axes.plot(scores, right, color=TRAINED, linewidth=1.5)
        sizes = [20.0 + 180.0 * one.count / largest for one in bins]
        axes.scatter(scores, right, s=sizes, color=TRAINED, alpha=0.7)
        axes.set(
            xlabel="score", ylabel="share of right answers", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03)
        )
        axes.set_title(visible(title))
