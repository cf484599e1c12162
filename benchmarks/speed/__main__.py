"""Measure Motet beside comlrl and TRL, and beside itself: `make bench-peers`.

It takes about an hour on two quiet cores.

    python benchmarks/speed                       # everything
    python benchmarks/speed --only pair_1 solo_4  # these rows; the others keep their figures
    python benchmarks/speed --quick               # rows with a bound, one round, writes nothing
    python benchmarks/speed --device cuda         # 0.5 and 1.5 billion weights, in bfloat16

The figures go to benchmarks/results/latest.json and to the tables of docs/performance.md; on a GPU
only to benchmarks/results/cuda.json. The exit status is 0 whenever everything was measured,
whatever the results are.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

import limits
import models
import peers
import rows
import tables
import torch
from record import earlier, machine, save
from rounds import measure
from works import WORKS, Side, Work

BUILD = peers.ROOT / "build" / "speed"
RESULTS = peers.ROOT / "benchmarks" / "results"
FILES = {"cpu": RESULTS / "latest.json", "cuda": RESULTS / "cuda.json"}
PAGE = peers.ROOT / "docs" / "performance.md"
"""The page shows CPU figures only."""
QUIET = 0.3
"""Load above which a warning is printed: threads wait for each other, and a step takes several
times as long."""


def main() -> None:
    chosen = arguments()
    works = selected(chosen)
    if os.getloadavg()[0] > QUIET:
        print(
            f"load {os.getloadavg()[0]:.1f}: something else is running, so ratios will be rough",
            file=sys.stderr,
        )
    versions = {"python": platform.python_version(), **peers.own()}
    versions |= {
        peer: peers.make(peer)
        for peer in sorted({work.theirs.program for work in works} - {"motet"})
    }
    shapes = made(works)
    say("what the machine can do")
    found = limits.measure(works[0].ours.job.threads, chosen.device)

    def least_of(side: Side) -> limits.Least | None:
        return (
            limits.least(shapes[side.job.model], side.job, found)
            if side.program == "motet"
            else None
        )

    file, today = FILES[chosen.device], datetime.now(UTC).date().isoformat()
    record = {
        **earlier(file, machine(chosen.device), versions),
        "date": today,
        "limits": asdict(found),
    }
    show(tables.line(tables.HEAD))
    whole = True
    for work in works:
        measured = measure(work, BUILD, chosen.device, chosen.rounds, say)
        new = [rows.row(work, claim, measured, least_of, today) for claim in work.claims]
        for one in new:
            show(tables.line(tables.cells(one)))
            whole = whole and one["ratio"] is not None
        record["rows"] = rows.merged(record["rows"], new, WORKS[chosen.device])
        if not chosen.quick:
            save(record, file, PAGE if chosen.device == "cpu" else None)
    sys.exit(0 if whole else "some figures could not be measured here")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/speed", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="these rows; the others stay as they were measured last",
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds per row; unless set 5, fewer where a step takes long"
    )
    parser.add_argument("--device", choices=sorted(WORKS), default="cpu")
    parser.add_argument(
        "--quick", action="store_true", help="what must hold, one round each, nothing is written"
    )
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.rounds = 1
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error(f"--rounds is {chosen.rounds}, expected 1 or more")
    if chosen.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device is cuda, and torch sees no GPU")
    return chosen


def selected(chosen: argparse.Namespace) -> Sequence[Work]:
    """Return the rows to measure, in their order."""
    works = WORKS[chosen.device]
    unknown = set(chosen.only or ()) - {work.name for work in works}
    if unknown:
        raise SystemExit(
            f"no row is called {unknown.pop()}; there are: {', '.join(work.name for work in works)}"
        )
    if chosen.only:
        return [work for work in works if work.name in chosen.only]
    return [work for work in works if not (chosen.quick and work.informs)]


def made(works: Sequence[Work]) -> dict[str, limits.Shape]:
    """Make the models that are missing. Returns folder -> shape."""
    names = dict.fromkeys(side.job.model for work in works for side in (work.ours, work.theirs))
    folders = [models.make(name, BUILD) for name in names]
    return {
        str(one): limits.Shape.of(json.loads((one / "config.json").read_text())) for one in folders
    }


def say(text: str) -> None:
    """Show progress: on one line that is overwritten, or on a line each if stderr is not a
    terminal."""
    before, after = ("\r\x1b[K", "") if sys.stderr.isatty() else ("", "\n")
    print(f"{before}{text}", end=after, file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print a line of the table."""
    if sys.stderr.isatty():
        say("")
    print(text, flush=True)


if __name__ == "__main__":
    main()
