"""A comparison of runs as CSV and as LaTeX: one line per group of runs with several seeds."""

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Any

from motet.api.run_rows import COMPARED, grouped
from motet.evaluation.over_seeds import CONFIDENCE_OF_SEEDS

STATISTICS = ("runs", "mean", "std", "low", "high")
"""Statistics of a figure, in the order of the columns."""
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row of a group with one plain value per column, such as `after_mean`."""
    found = {
        "group": row["group"],
        "runs": row["runs"],
        "seeds": " ".join(map(str, row["seeds"])),
    }
    for name in COMPARED:
        of = row[name]
        found |= {f"{name}_{one}": None if of is None else of[one] for one in STATISTICS}
    return found


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the groups of the rows of `compare` as CSV, with a head. Missing values are empty."""
    lines = [flat(row) for row in grouped(rows)]
    text = StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def latex_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the groups of the rows of `compare` as a LaTeX table.

    With several runs a cell is `mean ± standard deviation [interval]`.
    """
    heads = ["run", "seeds", *COMPARED.values()]
    lines = [
        f"% mean, standard deviation and {CONFIDENCE_OF_SEEDS:.0%} interval over seeds",
        r"\begin{tabular}{l" + "r" * (len(heads) - 1) + "}",
        r"\hline",
        _line(heads),
        r"\hline",
        *(
            _line([escaped(row["group"]), str(row["runs"]), *(_cell(row[one]) for one in COMPARED)])
            for row in grouped(rows)
        ),
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Return text in which LaTeX interprets nothing."""
    return "".join(_SPECIAL.get(character, character) for character in text)


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _cell(figure: Mapping[str, Any] | None) -> str:
    if figure is None:
        return "--"
    if figure["std"] is None:
        return f"{figure['mean']:.3f}"
    return (
        f"${figure['mean']:.3f} \\pm {figure['std']:.3f}$ "
        f"[{figure['low']:.3f}, {figure['high']:.3f}]"
    )
