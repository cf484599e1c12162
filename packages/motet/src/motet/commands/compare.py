"""The command `motet compare`: runs side by side, and their statistics over seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from motet.commands.console import figure, out, print_json, titled
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson, check_picture
from motet.errors import ConfigError

if TYPE_CHECKING:
    from motet.api.comparison import ComparedRun
    from motet.evaluation.over_seeds import OverSeeds


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
    Literal["interval", "std"] | None,
    typer.Option(
        help="With --plot: interval (95 % interval of the mean, the default), or std.",
        show_default=False,
    ),
]


@of_api("motet.api.comparison:compare")
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
    rows = call()
    if plot is not None or as_csv or as_latex:
        from motet.api.comparison import runs

        loaded = runs(call.values["runs"])
    if plot is not None:
        loaded.plot(plot, metric, band or "interval")
    if as_json:
        print_json(rows)
    elif as_csv or as_latex:
        print(loaded.statistics.to_csv() if as_csv else loaded.to_latex(), end="")
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


def print_comparison(rows: Sequence["ComparedRun"]) -> None:
    """Print the rows of `motet.compare`, and the statistics of groups with several runs."""
    table = titled(
        "held-out success of runs", ["run", "seed", "steps", "before", "after", "reward", "seconds"]
    )
    for row in rows:
        table.add_row(
            Path(row.run).name,
            str(row.seed),
            str(row.steps) if row.finished else f"{row.steps} (stopped)",
            figure(row.before),
            figure(row.after),
            figure(row.reward),
            "-" if row.wall_seconds is None else f"{row.wall_seconds:.0f}",
        )
    out.print(table)
    _print_groups(rows)
    first = rows[0].group
    for name, row in {row.group: row for row in rows}.items():
        if row.differs:
            out.print(f"  {name} differs from {first}: {', '.join(row.differs)}", soft_wrap=True)


def _print_groups(rows: Sequence["ComparedRun"]) -> None:
    # Imported here because it loads the config and torch, which take seconds.
    from motet.api.comparison import COMPARED, differences, grouped
    from motet.evaluation.over_seeds import CONFIDENCE_OF_SEEDS, unseen

    groups = grouped(rows)
    if len(groups) == len(rows):
        return
    table = titled("over seeds: mean ± standard deviation", ["runs", "seeds", *COMPARED.values()])
    table.show_lines = True
    for row in groups:
        seeds = ", ".join(map(str, row.seeds))
        table.add_row(row.group, seeds, *(_over_seeds(getattr(row, name)) for name in COMPARED))
    out.print(table)
    out.print(
        f"  in the second line: {CONFIDENCE_OF_SEEDS:.0%} interval of the mean (Student's t)",
        soft_wrap=True,
    )
    most = max(row.runs for row in groups)
    out.print(
        f"  it cannot see what none of the runs did: {unseen(most):.0%} of the runs may end in a "
        f"way that {most} runs do not show",
        soft_wrap=True,
    )
    for row in differences(rows):
        found = row.after
        if found is not None and found.std is not None:
            out.print(
                f"  {row.group} − {groups[0].group}, success after, {found.runs} pairs of "
                f"one seed: {found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})",
                soft_wrap=True,
            )


def _over_seeds(found: "OverSeeds | None") -> str:
    if found is None:
        return "-"
    if found.std is None:
        return figure(found.mean)
    return f"{found.mean:.3f} ± {found.std:.3f}\n{found.low:.3f} to {found.high:.3f}"
