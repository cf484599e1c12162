"""Run every experiment behind docs/curricula.md, and write its tables: `make results-curricula`.

Two runs are active at a time, with one thread each. Names as arguments run and write single tables.
The environment variable RUNS names the folder of the runs. Finished runs are not run again.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import results
from results import Part, tabled
from results_runs import ROOT, Experiment, heldout, metrics, summary

PAGE = ROOT / "docs" / "curricula.md"
SEEDS = (1, 2, 3)
"""The kinds of sampling were tried with seed 0."""
CONFIG = "benchmarks/curriculum_game.yaml"
EIGHT = Experiment("curriculum_eight_uniform", CONFIG, ("evaluation.every=5",), SEEDS)
STEPS: Mapping[str, Mapping[str, Experiment]] = {
    size: {
        kind: EIGHT
        if (size, kind) == ("eight", "uniform")
        else Experiment(
            f"curriculum_{size}_{kind}",
            CONFIG,
            (*overrides, f"train.task_sampling.kind={kind}"),
            SEEDS,
            EIGHT,
        )
        for kind in ("uniform", "informative", "levels")
    }
    for size, overrides in (
        ("eight", ("evaluation.every=5",)),
        ("two", ("train.steps=160", "train.tasks_per_step=2", "evaluation.every=20")),
    )
}
"""Tasks of a step -> kind of sampling -> its runs, which all sample the same number of games."""
GOOD = 0.8
"""The success on open tasks that a run is to reach."""


def sampling(size: str) -> Iterator[Sequence[str]]:
    """The success on open tasks of every kind of sampling, and how many groups taught."""
    yield (
        "`kind`",
        "before",
        "after: each seed",
        "after: mean",
        f"tokens until {GOOD:g}: each seed",
        "groups that teach",
        "tokens",
    )
    for kind, one in STEPS[size].items():
        folders = [one.folder(seed) for seed in one.seeds]
        after = [heldout(folder, "after") for folder in folders]
        yield (
            f"`{kind}`",
            f"{mean(heldout(folder, 'before') for folder in folders):.3f}",
            ", ".join(f"{value:.3f}" for value in after),
            f"**{mean(after):.3f}**",
            ", ".join(map(tokens_until_good, folders)),
            f"{mean(map(teaching, folders)):.0%}",
            f"{mean(summary(folder)['tokens'] for folder in folders):,.0f}",
        )


def tokens_until_good(folder: Path) -> str:
    """Return the tokens that were sampled for training before the first evaluation that is good."""
    good = (row["step"] for row in metrics(folder, "evaluate/success") if _is_good(row))
    first = next(good, None)
    if first is None:
        return "never"
    steps = metrics(folder, "play/tokens")
    return f"{sum(row['play/tokens'] for row in steps if row['step'] <= first):,.0f}"


def _is_good(row: Mapping[str, float]) -> bool:
    return row["evaluate/success"] >= GOOD


def teaching(folder: Path) -> float:
    """Return the share of the groups of a run whose games did not all end alike."""
    rows = metrics(folder, "credit/groups_failed", "credit/groups_solved")
    return mean(1.0 - row["credit/groups_failed"] - row["credit/groups_solved"] for row in rows)


PARTS = {size: Part(tabled(partial(sampling, size)), tuple(STEPS[size].values())) for size in STEPS}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-curricula")
