"""Prints a comparison of runs: a table of the runs, and one of their groups over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.commands.console import figure, out, titled


def print_comparison(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the rows of `motet.compare`, and the statistics of groups with several runs."""
    table = titled(
        "held-out success of runs", ["run", "seed", "steps", "before", "after", "reward", "seconds"]
    )
    for row in rows:
        table.add_row(
            Path(row["run"]).name,
            str(row["seed"]),
            str(row["steps"]) if row["finished"] else f"{row['steps']} (stopped)",
            figure(row["before"]),
            figure(row["after"]),
            figure(row["reward"]),
            "-" if row["wall_seconds"] is None else f"{row['wall_seconds']:.0f}",
        )
    out.print(table)
    _print_groups(rows)
    first = rows[0]["group"]
    for name, row in {row["group"]: row for row in rows}.items():
        if row["differs"]:
            out.print(f"  {name} differs from {first}: {', '.join(row['differs'])}", soft_wrap=True)


def _print_groups(rows: Sequence[Mapping[str, Any]]) -> None:
    # Imported here because it loads the config and torch, which take seconds.
    from motet.api.run_rows import COMPARED, differences, grouped
    from motet.evaluation.over_seeds import CONFIDENCE_OF_SEEDS, unseen

    groups = grouped(rows)
    if len(groups) == len(rows):
        return
    table = titled("over seeds: mean ± standard deviation", ["runs", "seeds", *COMPARED.values()])
    table.show_lines = True
    for row in groups:
        seeds = ", ".join(map(str, row["seeds"]))
        table.add_row(row["group"], seeds, *(_over_seeds(row[name]) for name in COMPARED))
    out.print(table)
    out.print(
        f"  in the second line: {CONFIDENCE_OF_SEEDS:.0%} interval of the mean (Student's t)",
        soft_wrap=True,
    )
    most = max(row["runs"] for row in groups)
    out.print(
        f"  it cannot see what none of the runs did: {unseen(most):.0%} of the runs may end in a "
        f"way that {most} runs do not show",
        soft_wrap=True,
    )
    for row in differences(rows):
        found = row["after"]
        if found is not None and found["std"] is not None:
            out.print(
                f"  {row['group']} − {groups[0]['group']}, success after, {found['runs']} pairs of "
                f"one seed: {found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})",
                soft_wrap=True,
            )


def _over_seeds(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    if found["std"] is None:
        return figure(found["mean"])
    return f"{found['mean']:.3f} ± {found['std']:.3f}\n{found['low']:.3f} to {found['high']:.3f}"
