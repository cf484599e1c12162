"""Figures as tables and lines on the terminal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from motet.rollout.visible import visible

out = Console(highlight=False)
FIGURES = (
    "episodes", "samples", "faults", "success", "reward", "final_reward", "turns", "tokens", "tokens_per_episode"
)  # fmt: skip
"""Of an evaluation, in the order of the table."""


def titled(title: str, columns: list[str]) -> Table:
    """Prints the title, and makes the table that is printed under it; a title of the table's own would wrap at its width."""
    out.print(f"[bold]{escape(title)}[/bold]", soft_wrap=True)
    table = Table()
    for place, column in enumerate(columns):
        table.add_column(
            column, justify="left" if place == 0 or column.startswith("differs") else "right", overflow="fold"
        )
    return table


def figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def listed(figures: Mapping[str, float]) -> str:
    return escape(", ".join(f"{name} {value:.3g}" for name, value in figures.items()))


def print_conventions(named: dict[str, dict[str, float]]) -> None:
    for agent, labels in named.items():
        out.print(
            f"  {agent}: " + escape(visible(", ".join(f"{label} {share:.0%}" for label, share in labels.items())))
        )


def print_evaluation(target: Path, figures: dict[str, Any]) -> None:
    table = titled(str(target), ["figure", "value", "95 %"])
    for name in FIGURES:
        ends = figures["interval"][name] if name in figures["interval"] else None
        table.add_row(name, figure(figures[name]), "" if ends is None else span(*ends))
    for name, value in figures["time"].items():
        table.add_row(name, figure(value))
    for k, value in figures["pass_at"].items():
        table.add_row(f"pass@{k}", figure(value))
    for agent, value in figures["agent_rewards"].items():
        table.add_row(f"reward {escape(agent)}", figure(value))
    for name, value in figures["terms"].items():
        table.add_row(f"term {escape(name)}", figure(value))
    for cause, count in figures["causes"].items():
        table.add_row(f"fault {escape(cause)}", str(count))
    out.print(table)
    if len(figures["by_turn"]) > 1:
        table = titled("turn by turn", ["turn", "games that came to it", "reward", "success by then"])
        for number, turn in enumerate(figures["by_turn"], start=1):
            table.add_row(str(number), figure(turn["played"]), figure(turn["reward"]), figure(turn["success"]))
        out.print(table)
    if "conventions" in figures:
        print_conventions(figures["conventions"])


def print_baselines(target: Path, found: dict[str, Any]) -> None:
    rows, first = found["rows"], found["rows"][0]["protocol"]
    table = titled(
        f"{target}: {found['tasks']} held-out tasks",
        ["protocol", "success", "reward", "behind", "n", "tokens", "seconds"],
    )
    table.show_lines = True
    compared = "reward" if rows[0]["success"] is None else "success"
    for row in rows:
        table.add_row(
            row["protocol"],
            estimated(row["success"]),
            estimated(row["reward"]),
            estimated(row["lead"][compared]) if row["lead"] else "-",
            str(row["n"]),
            f"{row['tokens_per_task']:,.1f}",
            f"{row['time']['seconds_per_task']:.3f}",
        )
    out.print(table)
    notes = {row["protocol"]: row["note"] for row in rows if row["note"]}
    notes |= {f"{row['protocol']} broke {row['faults']} times": counted(row["causes"]) for row in rows if row["faults"]}
    notes |= {f"no {protocol}": why for protocol, why in found["left_out"].items()}
    notes |= {
        "behind": f"how much more {compared} the {first} has, task by task",
        "tokens, seconds": "for one answer; n samples make it",
        f"{found['confidence']:.0%}": f"{found['resamples']:,} bootstrap resamples of the tasks",
    }
    for name, text in notes.items():
        out.print(f"  {escape(name)}: {escape(text)}", soft_wrap=True)


def counted(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in causes.items())


def estimated(found: Mapping[str, float] | None) -> str:
    return "-" if found is None else f"{found['mean']:.3f}\n{span(found['low'], found['high'])}"


def span(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"
