"""Plots of a run, as PNG files.

matplotlib is imported only when a plot is drawn, and without its global state.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.core import Drawing
from motet.evaluation.selection import METHODS
from motet.safety.visible import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#22223b", "#6c757d", "#e5e7ef"
TRAINED, REWARD, HELDOUT = "#1b6ca8", "#b5651d", "#1f7a4d"
LINES = {
    "single": (FAINT, "--"), "majority": (REWARD, "-"), "weighted": (HELDOUT, "-"),
    "best": (TRAINED, "-"), "any": (INK, ":"),
}  # fmt: skip
"""Selection method -> color and style of its line."""
LITERAL: dict[str, Any] = {"parse_math": False}
"""Options for names chosen by users: a dollar sign in them does not start a formula."""


def learning_curve(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], path: Path
) -> None:
    """Plot success (top) and reward (bottom) by training step.

    Each step is a faint line, the moving average a strong one, and held-out success is shown as
    points.

    Args:
        rows: the rows of metrics.jsonl.
        summary: the summary of the run: its `name`, and `heldout.before` and `heldout.after` if
            they
            exist.
    """
    figure = new_figure(8.0, 5.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1.0))
    _curve(above, *_series(rows, "play/success"), TRAINED, "training")
    _curve(below, *_series(rows, "play/reward"), REWARD, "training")
    last = max([1, *(row["step"] for row in rows)])
    heldout = summary.get("heldout", {})
    _mark_heldout(above, rows, heldout, last)
    above.set(ylabel="success", ylim=(-0.03, 1.08), xlim=(-0.02 * last, 1.09 * last))
    below.set(ylabel="reward", xlabel="training step")
    below.xaxis.get_major_locator().set_params(integer=True)
    figure.legend(
        *above.get_legend_handles_labels(),
        loc="outside lower center",
        frameon=False,
        labelcolor=INK,
        ncols=2,
    )
    above.set_title(
        visible(_title(summary["name"], heldout)),
        loc="left",
        fontsize=13,
        color=INK,
        pad=12,
        **LITERAL,
    )
    figure.savefig(path, dpi=150)


def reliability_curve(bins: Sequence[Any], title: str, path: Path) -> None:
    """Plot the share of right answers by score. A calibrated verifier is on the diagonal.

    `bins` have `score`, `right` and `count`.
    """
    figure = new_figure(4.6, 4.6)
    axes = figure.subplots()
    plain_axes(axes)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1.0, linestyle="--")
    axes.plot(
        [one.score for one in bins], [one.right for one in bins], color=TRAINED, linewidth=1.5
    )
    largest = max(one.count for one in bins)
    sizes = [20.0 + 180.0 * one.count / largest for one in bins]
    axes.scatter(
        [one.score for one in bins], [one.right for one in bins], s=sizes, color=TRAINED, alpha=0.7
    )
    axes.set(
        xlabel="score", ylabel="share of right answers", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03)
    )
    axes.set_title(visible(title), loc="left", fontsize=12, color=INK, pad=10, **LITERAL)
    figure.savefig(path, dpi=150)


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
    figure = new_figure(3.0 + size, 2.1 + size)
    axes = figure.subplots()
    plain_axes(axes)
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
    axes.set_xticks(
        range(len(labels)), shown, rotation=30, ha="right", rotation_mode="anchor", **LITERAL
    )
    axes.set_yticks(range(len(labels)), shown, **LITERAL)
    axes.tick_params(length=0)
    axes.set_xlabel(visible(f"{agents[1]} from"), **LITERAL)
    axes.set_ylabel(visible(f"{agents[0]} from"), **LITERAL)
    axes.set_title("Cross-play success", loc="left", fontsize=13, color=INK, pad=12)
    figure.savefig(path, dpi=150)


def selection_curves(turns: Sequence[Sequence[Mapping[str, Any]]], path: Path) -> None:
    """Plot accuracy against tokens per task for every selection method, one panel per turn.

    `turns` are those of an evaluation's `selection`. If tokens cannot be counted, the axis is the
    number of games.
    """
    count = max(1, len(turns))
    figure = new_figure(1.6 + 3.8 * count, 4.4)
    panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    counted = all(row["tokens_per_task"] for rows in turns for row in rows if row["tasks"])
    axis, unit = ("tokens_per_task", "generated tokens") if counted else ("k", "games")
    for number, (axes, rows) in enumerate(zip(panels, turns, strict=False), start=1):
        plain_axes(axes)
        shown = [row for row in rows if row["tasks"]]
        for method, (color, style) in LINES.items():
            values = [row["accuracy"][method]["mean"] for row in shown]
            axes.plot(
                [row[axis] for row in shown],
                values,
                style,
                color=color,
                marker="o",
                markersize=4,
                label=METHODS[method],
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks([row[axis] for row in shown], [f"{row[axis]:,.0f}" for row in shown])
        axes.minorticks_off()
        axes.set(xlabel=f"{unit} per task")
        axes.set_title(f"turn {number}", loc="left", fontsize=12, color=INK)
    panels[0].set(ylabel="accuracy", ylim=(-0.03, 1.03))
    lines, columns = panels[0].get_legend_handles_labels(), len(LINES) if count > 1 else 3
    figure.legend(*lines, loc="outside lower center", frameon=False, labelcolor=INK, ncols=columns)
    figure.savefig(path, dpi=150)


def drawn_grids(drawing: Drawing, title: str, path: Path) -> None:
    """Plot grids of named cells, with a legend of the names."""
    from matplotlib import colormaps
    from matplotlib.patches import Patch, Rectangle

    grids = [grid for row in drawing.panels for grid in row.values()]
    names = sorted({name for grid in grids for row in grid for name in row} - {""})
    colors = {name: colormaps["tab20"](k % 20) for k, name in enumerate(names)}
    columns = max(map(len, drawing.panels))
    widest, highest = max(len(grid[0]) for grid in grids), max(map(len, grids))
    unit = min(0.3, 14.0 / (columns * widest))
    figure = new_figure(
        max(4.0, columns * (unit * widest + 0.4)),
        1.2 + len(drawing.panels) * (unit * highest + 0.5),
    )
    panels = figure.subplots(len(drawing.panels), columns, squeeze=False)
    for axes in panels.flat:
        axes.set_axis_off()
    for row, axes_of_row in zip(drawing.panels, panels, strict=True):
        for (name, grid), axes in zip(row.items(), axes_of_row, strict=False):
            axes.set(xlim=(0, len(grid[0])), ylim=(len(grid), 0), aspect="equal")
            axes.set_title(visible(name), loc="left", fontsize=9, color=INK, **LITERAL)
            for down, cells in enumerate(grid):
                for right, cell in enumerate(cells):
                    axes.add_patch(
                        Rectangle(
                            (right, down), 1, 1, facecolor=colors.get(cell, "white"), edgecolor=GRID
                        )
                    )
    figure.legend(
        handles=[Patch(color=color, label=visible(name)) for name, color in colors.items()],
        loc="outside lower center",
        frameon=False,
        labelcolor=INK,
        ncols=3,
    )
    figure.suptitle(visible(title), x=0.02, ha="left", fontsize=12, color=INK, **LITERAL)
    figure.savefig(path, dpi=150)


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """Return the mean of the `width` values around each value; at both ends of fewer."""
    half = width // 2
    windows = [values[max(0, at - half) : at + half + 1] for at in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _series(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    found = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in found], [value for _, value in found]


def _curve(
    axes: "Axes", steps: Sequence[int], values: Sequence[float], color: str, label: str
) -> None:
    plain_axes(axes)
    width = max(1, len(values) // 12) | 1
    axes.plot(steps, values, color=color, alpha=0.28, linewidth=1.0)
    if steps:
        label = f"{label} (mean of {width} steps)" if width > 1 else label
        axes.plot(steps, moving_average(values, width), color=color, linewidth=2.2, label=label)


def _mark_heldout(
    axes: "Axes", rows: Sequence[Mapping[str, Any]], heldout: Mapping[str, Any], last: int
) -> None:
    """Plot all evaluations as points, and print the values of the first and the last."""
    points = dict(zip(*_series(rows, "evaluate/success"), strict=True))
    ends = {{"before": 0, "after": last}[when]: value for when, value in _ends(heldout).items()}
    points = dict(sorted((points | ends).items()))
    if not points:
        return
    if len(points) > len(ends):
        axes.plot(list(points), list(points.values()), ":", color=HELDOUT, linewidth=1.2, zorder=3)
    axes.scatter(
        list(points),
        list(points.values()),
        s=52,
        color=HELDOUT,
        edgecolor="white",
        linewidth=1.2,
        zorder=4,
        label="held out",
    )
    for step, value in ends.items():
        shift = (9, 0) if step == last else (0, 10)
        axes.annotate(
            f"{value:.2f}",
            (step, value),
            shift,
            textcoords="offset points",
            color=HELDOUT,
            fontweight="bold",
            va="center",
        )


def _title(name: str, heldout: Mapping[str, Any]) -> str:
    ends = _ends(heldout)
    if len(ends) < 2:
        return name
    return f"{name}: held-out success from {ends['before']:.2f} to {ends['after']:.2f}"


def _ends(heldout: Mapping[str, Any]) -> dict[str, float]:
    """Return held-out success before and after training, if it exists.

    It is missing if all games failed, or if the environment does not report success.
    """
    found = {when: heldout[when]["success"] for when in ("before", "after") if when in heldout}
    return {when: value for when, value in found.items() if value is not None}


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def plain_axes(axes: "Axes") -> None:
    """Draw a grid and no frame."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GRID)
    axes.tick_params(colors=FAINT, labelcolor=INK, length=3)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.grid(True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
