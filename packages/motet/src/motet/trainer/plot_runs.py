"""A plot of several runs: the mean over seeds of a metric, with a band around it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from motet.evaluation.over_seeds import CONFIDENCE_OF_SEEDS, OverSeeds
from motet.safety.visible import visible
from motet.trainer.plot import INK, LITERAL, new_figure, plain_axes

PlotBand: TypeAlias = Literal["interval", "std"]
"""interval: the confidence interval of the mean. std: one standard deviation on each side."""


def band_curves(
    curves: Mapping[str, Mapping[int, OverSeeds]],
    metric: str,
    path: Path,
    band: PlotBand = "interval",
) -> None:
    """Plot one line per group of runs by training step. A group of one run has no band.

    `curves`: group -> step -> statistics of the metric over the runs of the group.
    """
    from matplotlib import colormaps

    figure = new_figure(8.0, 4.6)
    axes = figure.subplots()
    plain_axes(axes)
    for number, (group, curve) in enumerate(curves.items()):
        color = colormaps["tab10"](number % 10)
        runs = max(one.runs for one in curve.values())
        label = f"{visible(group)} ({runs} run{'s' if runs > 1 else ''})"
        means = [one.mean for one in curve.values()]
        axes.plot(list(curve), means, color=color, linewidth=2.0, label=label)
        banded = {step: one for step, one in curve.items() if one.runs > 1}
        if banded:
            low, high = zip(*(_ends(one, band) for one in banded.values()), strict=True)
            axes.fill_between(list(banded), low, high, color=color, alpha=0.2, linewidth=0.0)
    _frame(axes, [one.mean for curve in curves.values() for one in curve.values()], metric)
    around = f"{CONFIDENCE_OF_SEEDS:.0%} interval" if band == "interval" else "standard deviation"
    title = f"{visible(metric)}: mean over seeds, and its {around}"
    axes.set_title(title, loc="left", fontsize=12, color=INK, pad=10, **LITERAL)
    lines, names = axes.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", frameon=False, labelcolor=INK, ncols=2)
    figure.savefig(path, dpi=150)


def _ends(one: OverSeeds, band: PlotBand) -> tuple[float, float]:
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
    axes.set_xlabel("training step")
    axes.set_ylabel(visible(metric), **LITERAL)
    axes.xaxis.get_major_locator().set_params(integer=True)
