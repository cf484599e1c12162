"""The rows as tables: one line each while the bench runs, and the tables of docs/performance.md."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rows import Row
from works import LABELS

Cells = Sequence[str]
HEAD = (
    "work",
    "peer",
    "quantity",
    "dtype",
    "Motet",
    "peer's value",
    "ratio",
    "lowest–highest",
    "required",
    "aim",
    "met",
)
WIDTHS = (42, 7, 8, 28, 9, 12, 6, 14, 8, 5, 3)
SIDES = (
    "work", "side", "dtype", "s per step", "CPU s", "samples/s", "generated tokens/s",
    "trained tokens/s", "peak MB", "share of limit (rollout, update)",
)  # fmt: skip
BEGIN, END = "<!-- measured: `make bench-peers` writes this part -->", "<!-- /measured -->"


def line(cells: Cells) -> str:
    """Format aligned cells for a terminal."""
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, WIDTHS, strict=True)).rstrip()


def table(head: Cells, rows: Iterable[Cells]) -> str:
    """Format a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def cells(row: Row) -> Cells:
    """Return the cells of a row: what is compared, and the result."""
    ours, theirs = row["ours"], row["theirs"]
    types = " / ".join(dict.fromkeys((ours["dtype"], theirs["dtype"])))
    asked = f"fastest: {types}" if row["dtype"] == "fastest" else types
    compared = [row["title"], LABELS[row["peer"]], row["what"], asked]
    compared += [amount(side, row["what"]) for side in (ours, theirs)]
    ratio = (
        ["not measured", ""]
        if row["ratio"] is None
        else [f"{row['ratio']:.2f}", _spread(*row["spread"])]
    )
    bounds = [
        "" if bound is None else f"{'≤' * row['most']}{bound:g}"
        for bound in (row["must"], row["aim"])
    ]
    return (*compared, *ratio, *bounds, {True: "yes", False: "no", None: ""}[row["ok"]])


def amount(side: Mapping[str, Any], what: str) -> str:
    """Format seconds or megabytes."""
    if what == "memory":
        return f"{side['memory'] / 1e6:,.0f} MB"
    return f"{short(side['seconds' if what == 'step' else 'update_seconds'])} s"


def short(number: float) -> str:
    """Format with three digits, without an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _spread(lowest: float, highest: float) -> str:
    return f"{lowest:.2f}–{highest:.2f}"


def each_side(rows: Sequence[Row]) -> Iterator[Cells]:
    """Yield the figures of every side, once each."""
    seen = set()
    for row in rows:
        for side in (row["ours"], row["theirs"]):
            key = (row["work"], side["side"], side["dtype"])
            if key not in seen:
                seen.add(key)
                names = (
                    "seconds",
                    "cpu_seconds",
                    "samples_per_second",
                    "generated_per_second",
                    "trained_per_second",
                )
                memory, share = f"{side['memory'] / 1e6:,.0f}", side["share_of_limit"]
                shares = share and "{step:.0%} ({rollout:.0%}, {update:.0%})".format(**share)
                yield (
                    row["title"],
                    *key[1:],
                    *(short(side[name]) for name in names),
                    memory,
                    shares or "",
                )


def page(record: Mapping[str, Any]) -> str:
    """Return the measured part of docs/performance.md."""
    rows: Sequence[Row] = record["rows"]
    claimed = {row["work"] for row in rows if row["must"] is not None}
    musts = [row for row in rows if row["work"] in claimed]
    parts = {
        "Compared with comlrl and TRL": [cells(row) for row in musts if row["peer"] != "motet"],
        "Motet compared with itself": [cells(row) for row in musts if row["peer"] == "motet"],
        "More teams, groups and prompts": [
            cells(row) for row in rows if row["work"] not in claimed
        ],
    }
    tables = [f"### {name}\n\n{table(HEAD, lines)}" for name, lines in parts.items() if lines]
    return "\n\n".join(
        [said(record), *tables, f"### Figures of each side\n\n{table(SIDES, each_side(musts))}"]
    )


def said(record: Mapping[str, Any]) -> str:
    """Describe date, machine and the measured rates of the machine."""
    limits = record["limits"]
    dates = sorted({row["date"] for row in record["rows"]})
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    products = ", ".join(
        f"{rate / 1e9:,.0f} GFLOP/s in {dtype}" for dtype, rate in limits["gemm"].items()
    )
    return (
        f"Measured {' to '.join(dict.fromkeys((dates[0], dates[-1])))} on {record['machine']}, "
        f"{limits['threads']} threads, {versions}.\nMatrix products run at {products}; a tensor "
        f"larger than the cache is read at {limits['read'] / 1e9:.1f} GB/s,\na matrix of 26 MB "
        f"multiplied with a vector at {limits['matrix'] / 1e9:.1f} GB/s."
    )


def replaced(text: str, measured: str, begin: str = BEGIN, end: str = END) -> str:
    """Return the page with a new measured part. Raises: ValueError if it has no markers for one."""
    before, begun, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not (begun and ended):
        raise ValueError(f"expected {begin} and {end} in the page")
    return f"{before}{begin}\n\n{measured}\n\n{end}{after}"
