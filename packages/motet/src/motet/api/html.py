"""How a notebook shows the results of a run: one small table."""

from collections.abc import Mapping
from html import escape
from typing import Any

from motet.safety.visible import visible

_FIGURES = ("success", "reward", "faults")


class RunSummary(dict[str, Any]):
    """The summary of a run. It is a plain dictionary that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return table_of(self)


def table_of(summary: Mapping[str, Any]) -> str:
    """Return the held-out results of a run as an HTML table. All texts are escaped."""
    state = "" if summary["finished"] else " (stopped)"
    title = f"{summary['name']}: {summary['steps']:,} steps{state}"
    lines = [_row("th", ["held out", *_FIGURES])]
    for when, figures in summary["heldout"].items():
        lines.append(_row("td", [when, *(_shown(figures[name]) for name in _FIGURES)]))
    return f"<table><caption>{escape(visible(title))}</caption>{''.join(lines)}</table>"


def _row(tag: str, cells: list[str]) -> str:
    inside = "".join(f"<{tag}>{escape(visible(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inside}</tr>"


def _shown(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
