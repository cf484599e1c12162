"""Measurements as rows for JSON, one per claim, and how new rows replace those of earlier runs."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from limits import Least
from rounds import Measured, Taken
from works import Claim, Side, Work

Row = dict[str, Any]


def row(
    work: Work,
    claim: Claim,
    measured: Measured,
    least_of: Callable[[Side], Least | None],
    date: str,
) -> Row:
    """Return the row of one claim. `least_of` returns the lower bounds of a side's step, if
    known."""
    ours, theirs = measured.of(claim)
    above, below = (ours, theirs) if claim.most else (theirs, ours)
    ratio = _ratio(above.value(claim.what), below.value(claim.what))
    each = [
        _ratio(*pair) for pair in zip(above.each(claim.what), below.each(claim.what), strict=True)
    ]
    return {
        "work": work.name,
        "title": work.title,
        "peer": theirs.side.program,
        "what": claim.what,
        "dtype": claim.dtype,
        "ratio": ratio,
        "spread": None if ratio is None else [min(each), max(each)],
        "most": claim.most,
        "must": claim.must,
        "aim": claim.aim,
        "ok": None if ratio is None else claim.holds(ratio),
        "rounds": len(each),
        "date": date,
        "ours": figures(ours, least_of(ours.side)),
        "theirs": figures(theirs, least_of(theirs.side)),
    }


def _ratio(above: float, below: float) -> float | None:
    """None if one of them is 0, which means not measured (memory, if the kernel does not
    report it)."""
    return above / below if above and below else None


def figures(taken: Taken, least: Least | None) -> dict[str, Any]:
    """Return the medians of one side.

    Tokens count per second of the stage that processes them, samples (completions) per second of
    the whole step.
    """
    seconds, cpu, rollout, update = (
        median(one[key] for one in taken.rounds) for key in ("seconds", "cpu", "rollout", "update")
    )
    job = taken.side.job
    samples = answers(taken.side)
    # comlrl's loss covers every token of an answer except the last.
    learnt = job.new - 1 if taken.side.program == "comlrl" else job.new
    return {
        "side": taken.side.label,
        "dtype": job.dtype,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "rollout_seconds": rollout,
        "update_seconds": update,
        "samples_per_second": samples / seconds,
        "generated_per_second": samples * job.new / rollout,
        "trained_per_second": samples * learnt / update,
        "memory": taken.value("memory"),
        "share_of_limit": least
        and {
            "step": least.step / seconds,
            "rollout": least.rollout / rollout,
            "update": least.update / update,
        },
    }


def answers(side: Side) -> int:
    """Completions of one step."""
    job = side.job
    return job.agents * job.prompts * sum(job.group ** (turn + 1) for turn in range(job.turns))


def merged(old: Sequence[Row], new: Sequence[Row], works: Sequence[Work]) -> list[Row]:
    """Return the new rows, and the old rows that were not measured again, in the order of
    `works`."""
    found: Mapping[tuple[str, str, str], Row] = {
        (one["work"], one["what"], one["dtype"]): one for one in (*old, *new)
    }
    keys = [(work.name, claim.what, claim.dtype) for work in works for claim in work.claims]
    return [found[key] for key in keys if key in found]
