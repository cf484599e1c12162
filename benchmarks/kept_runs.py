"""What long runs have reached: kept as JSON in benchmarks/results/runs.

So a table may come from runs of several days, and a run is not made again if its folder is gone.
"""

import json
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean

import torch
from results_runs import ROOT, RUNS, Experiment, motet, run, summary
from results_tables import Table, machine

FOLDER = ROOT / "benchmarks" / "results" / "runs"
_WRITING = threading.Lock()


@dataclass(frozen=True)
class Reached:
    """What one seed of an experiment has reached, when, and on which machine."""

    date: str
    machine: str
    torch: str
    steps: int
    tokens: int
    cpu_seconds: float
    reward: Mapping[str, float]
    """`before` and `after` training, on the held-out tasks."""
    success: Mapping[str, float | None]
    calls: Mapping[str, float]
    """`Experiment.calls` -> the success of each."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """What `Experiment.measure` returned."""


def reached(one: Experiment, seed: int) -> Reached | None:
    """Return what is kept of a run, or None. Runs with other settings do not count."""
    return _all(one).get(seed)


def of_seeds(one: Experiment) -> Sequence[Reached]:
    """Return what is kept of the seeds of an experiment; they may be fewer than it has."""
    known = _all(one)
    return [known[seed] for seed in one.seeds if seed in known]


def run_and_keep(one: Experiment, seed: int) -> str:
    """Run one seed unless it is kept, keep what it has reached, and return that as a line."""
    found = reached(one, seed)
    measured = found is not None and (one.measure is None or found.figures)
    if found is not None and measured and set(found.calls) == set(one.calls):
        return f"{one.folder(seed).name:<34} kept since {found.date}"
    line = run(one, seed)
    _keep(one, seed, _read(one, seed))
    return line


def made(text: str, command: str, runs: Sequence[Experiment]) -> Table:
    """Return a table of runs that are kept, with the days and machines of these runs.

    Raises: SystemExit if none is kept.
    """
    found = [each for one in runs for each in of_seeds(one)]
    if not found:
        raise SystemExit(f"no run of this table is kept yet: {command} makes them")
    days = sorted({each.date for each in found})
    return Table(
        text,
        command,
        " to ".join(dict.fromkeys((days[0], days[-1]))),
        " and ".join(sorted({each.machine for each in found})),
        " and ".join(sorted({each.torch for each in found})),
    )


def average(values: Sequence[float | None]) -> str:
    """Return for a table the mean of the values that are known, and each of them."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    each = ", ".join(f"{value:.3f}" for value in known)
    return f"{mean(known):.3f}" if len(known) == 1 else f"**{mean(known):.3f}** ({each})"


def _read(one: Experiment, seed: int) -> Reached:
    folder = one.folder(seed)
    said = summary(folder)
    ended = datetime.fromtimestamp((folder / "summary.json").stat().st_mtime, UTC)
    return Reached(
        ended.date().isoformat(),
        machine("cpu"),
        torch.__version__,
        said["steps"],
        said["tokens"],
        round(said["cpu_seconds"], 1),
        *(
            {when: said["heldout"][when][figure] for when in ("before", "after")}
            for figure in ("reward", "success")
        ),
        {call: _call(folder, *call.split()) for call in one.calls},
        {} if one.measure is None else dict(one.measure(folder)),
    )


def _call(folder: Path, command: str, *words: str) -> float:
    """Return the success that a command prints for a run."""
    return float(motet(command, str(folder), *words)["success"])


def _settings(one: Experiment) -> list[str]:
    """Return the config and the overrides, with names in place of the folders of this machine."""
    words = [one.config, *one.overrides]
    for name, folder in {"RUNS": str(RUNS.parent), "DATA": os.environ.get("DATA")}.items():
        words = [word.replace(folder, name) if folder else word for word in words]
    return words


def _all(one: Experiment) -> dict[int, Reached]:
    file = FOLDER / f"{one.name}.json"
    said = json.loads(file.read_text()) if file.is_file() else {}
    if said.get("settings") != _settings(one):
        return {}
    return {int(seed): Reached(**found) for seed, found in said["seeds"].items()}


def _keep(one: Experiment, seed: int, found: Reached) -> None:
    with _WRITING:
        known = dict(sorted({**_all(one), seed: found}.items()))
        said = {"settings": _settings(one), "seeds": {s: asdict(one) for s, one in known.items()}}
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{one.name}.json").write_text(json.dumps(said, indent=1) + "\n")
