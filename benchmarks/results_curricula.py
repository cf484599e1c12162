"""Run every experiment behind docs/curricula.md, and write its table: `make results-curricula`.

Two runs are active at a time, with one thread each. The environment variable RUNS names the folder
of the runs. Finished runs are not run again.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

import results
from results import Part, tabled
from results_runs import ROOT, Experiment, heldout, metrics, summary

PAGE = ROOT / "docs" / "curricula.md"
SEEDS = (0, 1, 2)
CONFIG = "benchmarks/curriculum_game.yaml"
UNIFORM = Experiment("curriculum_uniform", CONFIG, (), SEEDS)
SAMPLING: Mapping[str, Experiment] = {
    "`uniform`": UNIFORM,
    **{
        f"`{kind}`": Experiment(
            f"curriculum_{kind}", CONFIG, (f"train.task_sampling.kind={kind}",), SEEDS, UNIFORM
        )
        for kind in ("informative", "levels")
    },
}


def sampling() -> Iterator[Sequence[str]]:
    """The success on open tasks of every kind of sampling, and how many groups taught."""
    yield (
        "task_sampling",
        "before",
        "after: each seed",
        "after: mean",
        "groups that teach",
        "tokens",
    )
    for name, one in SAMPLING.items():
        folders = [one.folder(seed) for seed in one.seeds]
        after = [heldout(folder, "after") for folder in folders]
        yield (
            name,
            f"{mean(heldout(folder, 'before') for folder in folders):.3f}",
            ", ".join(f"{value:.3f}" for value in after),
            f"**{mean(after):.3f}**",
            f"{mean(teaching(folder) for folder in folders):.0%}",
            f"{mean(summary(folder)['tokens'] for folder in folders):,.0f}",
        )


def teaching(folder: Path) -> float:
    """Return the share of the groups of a run whose games did not all end alike."""
    rows = metrics(folder, "credit/groups_failed", "credit/groups_solved")
    return mean(1.0 - row["credit/groups_failed"] - row["credit/groups_solved"] for row in rows)


PARTS = {"sampling": Part(tabled(sampling), tuple(SAMPLING.values()))}

if __name__ == "__main__":
    results.main(PARTS, PAGE, "make results-curricula")
