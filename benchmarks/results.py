"""Run every experiment behind docs/results.md, and write the tables of that page: `make results`.

Two runs are active at a time, with one thread each. `python benchmarks/results.py debates critics`
runs and writes single tables. The environment variable RUNS names the folder of the runs.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from kept_runs import made, run_and_keep
from results_pairs import centralized, preferences
from results_runs import (
    BUGFIX,
    BUILDERS,
    CENTRALIZED,
    CRITICS,
    DEBATES,
    FROZEN,
    HASTY,
    MANY,
    MUTE,
    OTHERS,
    PERSUADED,
    PREFERENCES,
    QUICKSTART,
    RELAYS,
    ROOT,
    RUNS,
    SILENT,
    STRANGERS,
    ZOO,
    Experiment,
    explained_variance,
    heldout,
    metrics,
    motet,
    run,
    summary,
)
from results_stability import each_seed, others, stability
from results_tables import keep, measured

from motet.evaluation.intervals import student_t
from motet_compare.over_seeds import CONFIDENCE_OF_SEEDS

PAGE = ROOT / "docs" / "results.md"
FAST = 0.8
"""A run counts as having learnt when its training success, as a mean of five steps, reaches this
value."""


def table(rows: Iterator[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * lines[0].count(" | ") + "---|", *lines[1:]])


def before_and_after(experiments: Sequence[Experiment]) -> Iterator[Sequence[str]]:
    yield ("config", "seed", "before", "after", "most frequent convention", "wall s", "CPU s")
    for experiment in experiments:
        after = []
        for seed in experiment.seeds:
            one = summary(experiment.folder(seed))
            heldout = one["heldout"]
            after.append(heldout["after"]["success"])
            settled = [next(iter(labels)) for labels in heldout["after"]["conventions"].values()]
            agreed = settled[0] if len(set(settled)) == 1 else " / ".join(settled)
            figures = (f"{heldout['before']['success']:.3f}", f"{after[-1]:.3f}", agreed)
            yield (
                experiment.config,
                str(seed),
                *figures,
                f"{one['wall_seconds']:.0f}",
                experiment.cpu(one["cpu_seconds"]),
            )
        yield (f"**{experiment.config}, mean**", "", "", f"**{mean(after):.3f}**", "", "", "")


def crossplay() -> str:
    runs = [str(QUICKSTART.folder(seed)) for seed in QUICKSTART.seeds]
    found = motet("crossplay", *runs, "--plot", "docs/crossplay.png")
    settled = [next(iter(named["aux"])) for named in found["conventions"]]
    labels = [f"seed {seed}" for seed in QUICKSTART.seeds]
    rows = [("aux of \\ main of", *labels, "convention")]
    rows += [
        (label, *(f"{value:.2f}" for value in row), name)
        for label, row, name in zip(labels, found["success"], settled, strict=True)
    ]
    other = [
        v
        for row, a in zip(found["success"], settled, strict=True)
        for v, b in zip(row, settled, strict=True)
        if a != b
    ]
    same = [
        v
        for row, a in zip(found["success"], settled, strict=True)
        for v, b in zip(row, settled, strict=True)
        if a == b
    ]
    line = f"Pairs of one convention: mean {mean(same):.2f}, lowest {min(same):.2f}. "
    line += (
        f"Pairs of different ones: mean {mean(other):.2f}, highest {max(other):.2f}."
        if other
        else "One convention only."
    )
    return table(iter(rows)) + "\n\n" + line


def relay_controls() -> Iterator[Sequence[str]]:
    seeds = RELAYS[0].seeds
    yield ("control", *(f"seed {seed}" for seed in seeds))
    for experiment in RELAYS:
        shuffled = [
            motet("messages", str(experiment.folder(seed)), "--shuffle-turn", "1")
            for seed in experiment.seeds
        ]
        yield (
            f"{experiment.config}, messages of another problem",
            *(f"{one['success']:.3f}" for one in shuffled),
        )
    after = [summary(MUTE.folder(seed))["heldout"]["after"]["success"] for seed in MUTE.seeds]
    yield (
        "relay, turn one has weight 0",
        *(f"{value:.3f}" for value in after),
        *("" for _ in seeds[len(after) :]),
    )


def bugfix() -> Iterator[Sequence[str]]:
    yield ("", *(f"seed {seed}" for seed in BUGFIX.seeds), "mean")
    rows: dict[str, list[float]] = {
        "before": [heldout(BUGFIX.folder(seed), "before") for seed in BUGFIX.seeds],
        "**after**": [heldout(BUGFIX.folder(seed), "after") for seed in BUGFIX.seeds],
        "after, the review of another task": [
            motet("messages", str(BUGFIX.folder(seed)), "--shuffle-turn", "1")["success"]
            for seed in BUGFIX.seeds
        ],
        "after, a reviewer that never learns": [
            heldout(SILENT.folder(seed), "after") for seed in SILENT.seeds
        ],
    }
    for name, values in rows.items():
        yield (name, *(f"{value:.3f}" for value in values), f"{mean(values):.3f}")
    clocks = [summary(BUGFIX.folder(seed)) for seed in BUGFIX.seeds]
    yield (
        "wall s / CPU s",
        *(f"{one['wall_seconds']:.0f} / {one['cpu_seconds']:.0f}" for one in clocks),
        "",
    )


def zoo() -> Iterator[Sequence[str]]:
    yield (
        "algorithm",
        *(f"seed {seed}: after (steps to {FAST})" for seed in (0, 1, 2)),
        "mean after",
    )
    for name, experiment in ZOO.items():
        folders = [experiment.folder(seed) for seed in (0, 1, 2)]
        after = [summary(folder)["heldout"]["after"]["success"] for folder in folders]
        cells = (
            f"{a:.3f} ({steps_to_learn(folder)})" for a, folder in zip(after, folders, strict=True)
        )
        yield (name, *cells, f"{mean(after):.3f}")


def steps_to_learn(folder: Path) -> str:
    successes = [row["play/success"] for row in metrics(folder, "play/success")]
    for step in range(5, len(successes) + 1):
        if mean(successes[step - 5 : step]) >= FAST:
            return str(step)
    return "never"


def critics() -> Iterator[Sequence[str]]:
    yield (
        "config",
        "seed",
        "before",
        "after",
        "tokens",
        "explained variance, turn one",
        "turn two",
    )
    for experiment in (RELAYS[0], *CRITICS):
        after, explained = [], []
        for seed in CRITICS[0].seeds:
            folder = experiment.folder(seed)
            one = summary(folder)
            after.append(heldout(folder, "after"))
            shares = (
                [explained_variance(folder, turn) for turn in (1, 2)]
                if experiment in CRITICS
                else []
            )
            explained.append(shares)
            figures = (f"{heldout(folder, 'before'):.3f}", f"{after[-1]:.3f}", f"{one['tokens']:,}")
            said = [f"{share:.2f}" for share in shares] or ["", ""]
            yield (experiment.config, str(seed), *figures, *said)
        spans = [interval(list(column)) for column in zip(*explained, strict=True)] or ["", ""]
        yield (f"**{experiment.config}, mean**", "", "", f"**{mean(after):.3f}**", "", *spans)


def interval(values: Sequence[float]) -> str:
    """Format the mean and the 95 % confidence interval over seeds, by Student's t."""
    half = student_t(CONFIDENCE_OF_SEEDS, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.2f} ± {half:.2f}"


def debates() -> Iterator[Sequence[str]]:
    seeds = DEBATES[0].seeds
    yield ("", *(f"seed {seed}: turn one, turn two" for seed in seeds), "mean of turn two")
    for experiment in DEBATES:
        for when in ("before", "after"):
            turns = [by_turn(summary(experiment.folder(seed))["heldout"][when]) for seed in seeds]
            yield _by_turn(f"{experiment.config}, {when}", turns)
        shuffled = [
            motet("messages", str(experiment.folder(seed)), "--shuffle-turn", "1") for seed in seeds
        ]
        yield _by_turn(
            f"{experiment.config}, peers of another problem", [by_turn(one) for one in shuffled]
        )
    for experiment in STRANGERS:
        turns = [by_turn(summary(experiment.folder(seed))["heldout"]["after"]) for seed in seeds]
        yield _by_turn(f"{experiment.config}, trained with peers of another problem", turns)


def by_turn(evaluation: Mapping[str, Any]) -> list[float]:
    return [turn["success"] for turn in evaluation["by_turn"]]


def _by_turn(name: str, turns: Sequence[Sequence[float]]) -> Sequence[str]:
    return (
        name,
        *(", ".join(f"{value:.3f}" for value in one) for one in turns),
        f"{mean(t[-1] for t in turns):.3f}",
    )


def persuasion() -> Iterator[Sequence[str]]:
    yield (
        "answers corrected because of a peer, per training step",
        "seed 0",
        "seed 1",
        "seed 2",
        "mean",
    )
    for name, experiment in (("β1 = 0", DEBATES[0]), ("β1 = 2", PERSUADED)):
        counts = [
            mean(
                row["play/persuasions"]
                for row in metrics(experiment.folder(seed), "play/persuasions")
            )
            for seed in experiment.seeds
        ]
        yield (name, *(f"{count:.1f}" for count in counts), interval(counts))


# ----------------------------------------------------------------------------------------- the page


@dataclass(frozen=True)
class Part:
    """A table of the page, and the runs that it is computed from."""

    of: Callable[[], str]
    runs: Sequence[Experiment] = ()
    keeps: bool = False
    """Whether what the runs have reached is kept (kept_runs.py), so that those of other days count
    too. Then `--so-far` writes the table without those that are missing."""


def tabled(rows: Callable[[], Iterator[Sequence[str]]]) -> Callable[[], str]:
    return lambda: table(rows())


PARTS = {
    "quickstart": Part(lambda: table(before_and_after([QUICKSTART, FROZEN])), (QUICKSTART, FROZEN)),
    "stability": Part(tabled(stability), (MANY, *HASTY.values())),
    "each_seed": Part(each_seed, (MANY,)),
    "others": Part(tabled(others), tuple(OTHERS.values())),
    "crossplay": Part(crossplay, (QUICKSTART,)),
    "relay": Part(lambda: table(before_and_after(RELAYS)), RELAYS),
    "relay_controls": Part(tabled(relay_controls), (*RELAYS, MUTE)),
    "critics": Part(tabled(critics), (RELAYS[0], *CRITICS)),
    "debates": Part(tabled(debates), (*DEBATES, *STRANGERS)),
    "persuasion": Part(tabled(persuasion), (DEBATES[0], PERSUADED)),
    "bugfix": Part(tabled(bugfix), (BUGFIX, SILENT)),
    "minecraft": Part(lambda: table(before_and_after(BUILDERS)), BUILDERS),
    "zoo": Part(tabled(zoo), tuple(ZOO.values())),
    "preferences": Part(tabled(preferences), tuple(PREFERENCES.values())),
    "centralized": Part(
        tabled(centralized), tuple(one for both in CENTRALIZED.values() for one in both)
    ),
}


def main(parts: Mapping[str, Part], page: Path, make: str = "make results") -> None:
    """Run and write all tables of the page, or only those named on the command line."""
    so_far = "--so-far" in sys.argv
    names = [word for word in sys.argv[1:] if word != "--so-far"] or list(parts)
    unknown = [name for name in names if name not in parts]
    if unknown:
        raise SystemExit(f"no table is called {unknown[0]}; there are: {', '.join(parts)}")
    if so_far and not all(parts[name].keeps for name in names):
        kept = ", ".join(name for name, part in parts.items() if part.keeps)
        raise SystemExit(
            f"--so-far is for tables whose runs are kept: {kept or 'none of this page'}"
        )
    RUNS.mkdir(parents=True, exist_ok=True)
    wanted = dict.fromkeys(
        (run_and_keep if parts[name].keeps else run, one, seed)
        for name in names
        for one in parts[name].runs
        for seed in one.seeds
        if not so_far
    )
    if all(parts[name].keeps for name in names):
        # What is stopped early has the first seeds of all experiments, and no others of a few.
        wanted = dict.fromkeys(sorted(wanted, key=lambda job: job[2]))
    run_all(wanted)
    script = Path(sys.argv[0]).name
    for name in names:
        part = parts[name]
        command = f"python benchmarks/{script} {name}"
        text = part.of()
        table = (
            made(text, command, part.runs)
            if part.keeps
            else measured(text, command, _last_day(part.runs))
        )
        keep(page, name, table, make)
        print(f"\n{table.text}\n\nwrote {name} of docs/{page.name}", flush=True)


def run_all(wanted: Iterable[tuple[Callable[[Experiment, int], str], Experiment, int]]) -> None:
    """Run two at a time. A run that begins with the models of an earlier one waits for it."""
    latest: dict[Path, Future[str]] = {}

    def in_turn(
        how: Callable[[Experiment, int], str], one: Experiment, seed: int, after: list[Future[str]]
    ) -> str:
        for first in after:
            first.result()
        return how(one, seed)

    with ThreadPoolExecutor(2) as pool:
        jobs = []
        for how, one, seed in wanted:
            needed = (each.folder(seed) for each in (one, one.warmed_by) if each is not None)
            after = [latest[folder] for folder in needed if folder in latest]
            latest[one.folder(seed)] = pool.submit(in_turn, how, one, seed, after)
            jobs.append(latest[one.folder(seed)])
        for job in as_completed(jobs):
            print(job.result(), flush=True)


def _last_day(runs: Sequence[Experiment]) -> str:
    """Return the day on which the last of the runs ended, or today if there are none."""
    ends = [
        (one.folder(seed) / "summary.json").stat().st_mtime for one in runs for seed in one.seeds
    ]
    return datetime.fromtimestamp(max(ends, default=time.time()), UTC).date().isoformat()


if __name__ == "__main__":
    main(PARTS, PAGE)
    if not sys.argv[1:]:
        curve = QUICKSTART.folder(0) / "curve.png"
        (ROOT / "docs" / "quickstart.png").write_bytes(curve.read_bytes())
