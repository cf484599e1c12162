"""The command `motet compare`: runs side by side, and their statistics over seeds."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from motet.commands.comparison_tables import print_comparison
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, check_picture
from motet.errors import ConfigError


class BandChoice(StrEnum):
    """What the band of a plot shows."""

    interval = "interval"
    std = "std"


AsCsv = Annotated[
    bool, typer.Option("--csv", help="Print CSV: one line per config, statistics over its seeds.")
]
AsLatex = Annotated[bool, typer.Option("--latex", help="Print the same as a LaTeX table.")]
Plot = Annotated[
    Path | None,
    typer.Option(
        help="Also plot a metric over training, with a band over seeds, to this PNG file.",
        show_default=False,
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        help="With --plot: a metric of docs/metrics.md. Default: play/success, or play/reward.",
        show_default=False,
    ),
]
BandOption = Annotated[
    BandChoice | None,
    typer.Option(
        help="With --plot: interval (95 % interval of the mean, the default), or std.",
        show_default=False,
    ),
]


@of_api("motet.api.run_rows:compare")
def compare(
    call: ApiCall,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    as_latex: AsLatex = False,
    plot: Plot = None,
    metric: Metric = None,
    band: BandOption = None,
) -> None:
    """Compare runs: results, mean and deviation over seeds, and how their configs differ.

    Example: motet compare runs/quickstart-seed* runs/quickstart_frozen --plot compared.png
    """
    _refuse_mixtures(
        {"--json": as_json, "--csv": as_csv, "--latex": as_latex},
        plot,
        {"--metric": metric, "--band": band},
    )
    from motet.api.comparison_tables import csv_of, latex_of
    from motet.api.many_runs import runs as load

    rows = call()
    if plot is not None:
        load(call.values["runs"]).plot(plot, metric, (band or BandChoice.interval).value)
    if as_json:
        print(json.dumps(rows))
    elif as_csv or as_latex:
        print(csv_of(rows) if as_csv else latex_of(rows), end="")
    else:
        print_comparison(rows)


def _refuse_mixtures(
    formats: dict[str, bool], plot: Path | None, of_plot: dict[str, object]
) -> None:
    given = [option for option, value in formats.items() if value]
    if len(given) > 1:
        raise ConfigError(f"got {' and '.join(given)}; expected at most one of them")
    without = [option for option, value in of_plot.items() if value is not None]
    if without and plot is None:
        raise ConfigError(f"got {', '.join(without)} without --plot: add --plot")
    check_picture(plot)
