"""Plots of several runs, as PNG files: curves with bands, and the matrix of cross-play."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from motet.safety.visible import visible
from motet.trainer.plot import INK, figure_in
from motet_compare.over_seeds import CONFIDENCE_OF_SEEDS, OverSeeds

PlotBand: TypeAlias = Literal["interval", "std"]
"""interval: the confidence interval of the mean. std: one standard deviation on each side."""


def band_curves(
    curves: Mapping[str, Mapping[int, OverSeeds]],
    metric: str,
    path: Path,
    band: PlotBand = "interval",
) -> None:
    """Plot the mean over seeds of a metric by training step, with a band around it: one line per
    group of runs. A group of one run has no band.

    `curves`: group -> step -> statistics of the metric over the runs of the group.
    """
    with figure_in(path, 8.0, 4.6) as figure:
        axes = figure.subplots()
        for number, (group, curve) in enumerate(curves.items()):
            runs = max(one.runs for one in curve.values())
            label = f"{visible(group)} ({runs} run{'s' if runs > 1 else ''})"
            means = [one.mean for one in curve.values()]
            axes.plot(list(curve), means, color=f"C{number % 10}", linewidth=2.0, label=label)
            banded = {step: one for step, one in curve.items() if one.runs > 1}
            if banded:
                low, high = zip(*(_sides(one, band) for one in banded.values()), strict=True)
                color = f"C{number % 10}"
                axes.fill_between(list(banded), low, high, color=color, alpha=0.2, linewidth=0.0)
        _frame(axes, [one.mean for curve in curves.values() for one in curve.values()], metric)
        around = "standard deviation"
        if band == "interval":
            around = f"{CONFIDENCE_OF_SEEDS:.0%} interval"
        axes.set_title(f"{visible(metric)}: mean over seeds, and its {around}")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def _sides(one: OverSeeds, band: PlotBand) -> tuple[float, float]:
    assert one.std is not None
    assert one.low is not None
    assert one.high is not None
    return (one.low, one.high) if band == "interval" else (one.mean - one.std, one.mean + one.std)


def _frame(axes: Any, means: list[float], metric: str) -> None:
    """Limit the axis to the means and half of their range around them.

    The interval of two runs is thirteen standard deviations wide and would flatten the lines.
    """
    low, high = min(means), max(means)
    margin = 0.5 * (high - low) or 0.5
    share = metric.endswith("/success")
    axes.set_ylim((-0.03, 1.03) if share else (low - margin, high + margin))
    axes.set(xlabel="training step", ylabel=visible(metric))
    axes.xaxis.get_major_locator().set_params(integer=True)


def cross_matrix(
    matrix: Sequence[Sequence[float]],
    labels: Sequence[str],
    path: Path,
    agents: tuple[str, str] = ("first agent", "second agent"),
) -> None:
    """Plot a heat map of success in [0, 1].

    `matrix[i][j]` is the first agent of run i together with the second agent of run j.
    """
    size = 1.0 * len(labels)
    with figure_in(path, 3.0 + size, 2.1 + size) as figure:
        axes = figure.subplots()
        axes.grid(False)
        axes.imshow(matrix, cmap="YlGnBu", vmin=0.0, vmax=1.0)
        for i, row in enumerate(matrix):
            for j, value in enumerate(row):
                axes.text(
                    j, i, f"{value:.2f}", ha="center", va="center",
                    color="white" if value > 0.55 else INK,
                    fontsize=12, fontweight="bold" if i == j else "normal",
                )  # fmt: skip
        shown = [visible(label) for label in labels]
        axes.set_xticks(range(len(labels)), shown, rotation=30, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(len(labels)), shown)
        axes.tick_params(length=0)
        axes.set(xlabel=visible(f"{agents[1]} from"), ylabel=visible(f"{agents[0]} from"))
        axes.set_title("Cross-play success")
