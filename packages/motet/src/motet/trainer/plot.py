"""Plots of runs, as PNG files.

matplotlib is imported only when a plot is drawn; a run without it has no plots. Names that users
choose are drawn as they are: a dollar sign in them does not start a formula.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.core import Drawing
from motet.safety.visible import visible
from motet.user_code.libraries import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID = "#22223b", "#6c757d", "#e5e7ef"
TRAINED, REWARD, HELDOUT = "#1b6ca8", "#b5651d", "#1f7a4d"
STYLE: dict[Any, Any] = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": GRID,
    "axes.grid": True, "grid.color": GRID, "axes.axisbelow": True,
    "axes.labelcolor": INK, "text.color": INK, "xtick.color": FAINT, "ytick.color": FAINT,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "axes.titlelocation": "left", "axes.titlesize": 12, "axes.titlepad": 10,
    "legend.frameon": False, "text.parse_math": False, "savefig.dpi": 150,
}  # fmt: skip


@contextmanager
def figure_in(path: Path, width: float, height: float) -> Iterator["Figure"]:
    """Yield an empty figure of this size in inches, and save it.

    Raises: ConfigError without matplotlib.
    """
    need("matplotlib", f"the plot {path.name}")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        yield figure
        figure.savefig(path)


def learning_curve(
    rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], path: Path
) -> None:
    """Plot success (top) and reward (bottom) by training step.

    Each step is a faint line, the moving average a strong one, and held-out success is shown as
    points.

    Args:
        rows: the rows of metrics.jsonl.
        summary: the summary of the run: its `name`, and `heldout.before` and `heldout.after` if
            they exist.
    """
    with figure_in(path, 8.0, 5.6) as figure:
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1.0))
        _curve(above, *_series(rows, "play/success"), TRAINED)
        _curve(below, *_series(rows, "play/reward"), REWARD)
        last = max([1, *(row["step"] for row in rows)])
        ends = _ends(summary.get("heldout", {}))
        _mark_heldout(above, rows, ends, last)
        above.set(ylabel="success", ylim=(-0.03, 1.08), xlim=(-0.02 * last, 1.09 * last))
        below.set(ylabel="reward", xlabel="training step")
        below.xaxis.get_major_locator().set_params(integer=True)
        title = summary["name"]
        if len(ends) == 2:
            title += f": held-out success from {ends['before']:.2f} to {ends['after']:.2f}"
        above.set_title(visible(title))
        figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=2)


def moving_average(values: Sequence[float], width: int) -> list[float]:
    """Return the mean of the `width` values around each value; at both ends of fewer."""
    half = width // 2
    windows = [values[max(0, at - half) : at + half + 1] for at in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _series(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    found = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in found], [value for _, value in found]


def _curve(axes: "Axes", steps: Sequence[int], values: Sequence[float], color: str) -> None:
    width = max(1, len(values) // 12) | 1
    axes.plot(steps, values, color=color, alpha=0.28, linewidth=1.0)
    if steps:
        label = f"training (mean of {width} steps)" if width > 1 else "training"
        axes.plot(steps, moving_average(values, width), color=color, linewidth=2.2, label=label)


def _mark_heldout(
    axes: "Axes", rows: Sequence[Mapping[str, Any]], ends: Mapping[str, float], last: int
) -> None:
    """Plot all evaluations as points, and print the values of the first and the last."""
    at_ends = {{"before": 0, "after": last}[when]: value for when, value in ends.items()}
    points = dict(zip(*_series(rows, "evaluate/success"), strict=True)) | at_ends
    if not points:
        return
    between = ":" if len(points) > len(ends) else ""
    axes.plot(*zip(*sorted(points.items()), strict=True), f"o{between}", color=HELDOUT,
              markeredgecolor="white", markersize=8, zorder=4, label="held out")  # fmt: skip
    for step, value in at_ends.items():
        shift = (9, 0) if step == last else (0, 10)
        axes.annotate(f"{value:.2f}", (step, value), shift, textcoords="offset points",
                      color=HELDOUT, fontweight="bold", va="center")  # fmt: skip


def _ends(heldout: Mapping[str, Any]) -> dict[str, float]:
    """Return held-out success before and after training, if it exists.

    It is missing if all games failed, or if the environment does not report success.
    """
    found = {when: heldout[when]["success"] for when in ("before", "after") if when in heldout}
    return {when: value for when, value in found.items() if value is not None}


def drawn_grids(drawing: Drawing, title: str, path: Path) -> None:
    """Plot grids of named cells, with a legend of the names."""
    need("matplotlib", f"the plot {path.name}")
    from matplotlib import colormaps
    from matplotlib.patches import Patch, Rectangle

    grids = [grid for row in drawing.panels for grid in row.values()]
    names = sorted({name for grid in grids for row in grid for name in row} - {""})
    colors = {name: colormaps["tab20"](k % 20) for k, name in enumerate(names)}
    columns = max(map(len, drawing.panels))
    widest, highest = max(len(grid[0]) for grid in grids), max(map(len, grids))
    unit = min(0.3, 14.0 / (columns * widest))
    width = max(4.0, columns * (unit * widest + 0.4))
    with figure_in(path, width, 1.2 + len(drawing.panels) * (unit * highest + 0.5)) as figure:
        panels = figure.subplots(len(drawing.panels), columns, squeeze=False)
        for axes in panels.flat:
            axes.set_axis_off()
        for row, axes_of_row in zip(drawing.panels, panels, strict=True):
            for (name, grid), axes in zip(row.items(), axes_of_row, strict=False):
                axes.set(xlim=(0, len(grid[0])), ylim=(len(grid), 0), aspect="equal")
                axes.set_title(visible(name), fontsize=9)
                for down, cells in enumerate(grid):
                    for right, cell in enumerate(cells):
                        color = colors.get(cell, "white")
                        axes.add_patch(
                            Rectangle((right, down), 1, 1, facecolor=color, edgecolor=GRID)
                        )
        patches = [Patch(color=color, label=visible(name)) for name, color in colors.items()]
        figure.legend(handles=patches, loc="outside lower center", ncols=3)
        figure.suptitle(visible(title), x=0.02, ha="left", fontsize=12)
