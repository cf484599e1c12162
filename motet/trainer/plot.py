"""Pictures of a run, as PNG files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

INK, FAINT, GRID = "#22223b", "#8d99ae", "#e5e7ef"
SUCCESS, REWARD, HELDOUT = "#1b6ca8", "#d1495b", "#2a9d5c"


def learning_curve(rows: Sequence[Mapping[str, Any]], summary: Mapping[str, Any], path: Path) -> None:
    """Training success and reward by step, each step faint and a moving average strong, with held-out success marked.

    Args: rows of metrics.jsonl; the run's summary (its `name`, and `heldout.before` and `heldout.after` where measured).
    """
    figure, axes = _canvas(8.0, 4.6)
    axes.set_title(f"{summary['name']}: success of the team", loc="left", fontsize=13, color=INK, pad=14, fontweight="bold")
    steps, success = series(rows, "play/success")
    _smoothed_line(axes, steps, success, SUCCESS, "success, training")
    last = max([*steps, 1])
    _mark_heldout(axes, rows, summary.get("heldout", {}), last)
    axes.set(xlabel="training step", ylabel="success", ylim=(-0.03, 1.05), xlim=(-0.02 * last, last * 1.02))
    reward_axes = axes.twinx()
    _plain(reward_axes)
    _smoothed_line(reward_axes, *series(rows, "play/reward"), REWARD, "reward, training (right)", style="--")
    reward_axes.set_ylabel("reward", color=REWARD)
    reward_axes.tick_params(axis="y", colors=REWARD)
    lines = [line for one in (axes, reward_axes) for line in one.get_legend_handles_labels()[0]]
    figure.legend(handles=lines, loc="outside lower center", ncols=len(lines), frameon=False, labelcolor=INK)
    _save(figure, path)
