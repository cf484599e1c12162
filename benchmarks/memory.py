"""Compare the memory estimate with the measured peaks: `make bench-memory`, in a minute.

The peaks are those of `make bench-real` and `make bench-peers`. Nothing is trained: the estimates
are computed again, by the present code. The table goes to docs/performance.md. The exit status is 1
if an estimate is off by more than the bound.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

SPEED = Path(__file__).parent / "speed"
sys.path[:0] = [str(SPEED), str(Path(__file__).parent)]

import models  # noqa: E402
import peers  # noqa: E402
import real_size  # noqa: E402
import works  # noqa: E402
from pace import Job  # noqa: E402
from side_motet import Words, config_of  # noqa: E402
from tables import replaced, table  # noqa: E402

from motet.api.memory_estimate import memory_of  # noqa: E402
from motet.assembly.task_setup import open_task_setup  # noqa: E402

BOUND = 0.25
PEERS = peers.ROOT / "benchmarks" / "results" / "latest.json"
BEGIN, END = "<!-- memory: `make bench-memory` writes this part -->", "<!-- /memory -->"


@dataclass(frozen=True)
class Peak:
    """A job, the peak of its memory in bytes, and when it was measured."""

    title: str
    job: Job
    bytes: float
    date: str


def peaks() -> Iterator[Peak]:
    """Yield what was measured on a CPU, each job once."""
    record = json.loads(real_size.FILE.read_text())
    for case in real_size.CASES:
        if case.name in record["cases"]:
            most = max(record["cases"][case.name]["memory"].values())
            yield Peak(case.title, case.job, most, record["date"])
    known = {work.name: work for work in works.WORKS["cpu"]}
    found: dict[str, Peak] = {}
    for row in json.loads(PEERS.read_text())["rows"]:
        work = known[row["work"]]
        for side, key in ((work.ours, "ours"), (work.theirs, "theirs")):
            if side.program == "motet":
                job = replace(side.job, dtype=row[key]["dtype"])
                label = side.label if work.theirs.program == "motet" else work.title
                title = f"{job.model}: {label}, {job.dtype}"
                found[title] = Peak(title, job, row[key]["memory"], row["date"])
    yield from found.values()


UNBOUND_UNTIL = "2026-11-25"
"""Peaks before this day are those of steps without `train.max_step_kl`."""


def estimate(peak: Peak) -> int:
    """Return the bytes that `motet train --dry-run` estimates."""
    job = replace(peak.job, model=str(models.make(peak.job.model, real_size.BUILD)))
    if peak.date < UNBOUND_UNTIL:
        settings = job.settings or {}
        train = {**settings.get("train", {}), "max_step_kl": None}
        job = replace(job, settings={**settings, "train": train})
    with open_task_setup(config_of(job), Words(job), train=True) as setup:
        return memory_of(setup)["total"]


def off(estimated: float, measured: float) -> float:
    """Return the relative error; negative if the estimate is too low."""
    return estimated / measured - 1.0


def main() -> int:
    lines, worst = [], 0.0
    for peak in peaks():
        estimated = estimate(peak)
        error = off(estimated, peak.bytes)
        worst = max(worst, abs(error))
        sizes = (f"{size / 1e6:,.0f}" for size in (estimated, peak.bytes))
        lines.append((peak.title, *sizes, f"{error:+.0%}", peak.date))
        print("  ".join(lines[-1]), flush=True)
    within = sum(abs(float(line[3].rstrip("%"))) <= 100 * BOUND for line in lines)
    said = f"{within} of {len(lines)} estimates are at most {BOUND:.0%} off; the worst {worst:.0%}."
    head = ("case", "MB estimated", "MB measured", "error", "measured on")
    page = real_size.PAGE.read_text()
    text = f"{said}\n\n{table(head, lines)}"
    real_size.PAGE.write_text(replaced(page, text, BEGIN, END))
    print(said)
    return int(worst > BOUND)


if __name__ == "__main__":
    sys.exit(main())
