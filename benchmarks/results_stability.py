"""Tables of docs/results.md: many seeds of one config, and what higher learning rates do to it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from results_runs import (
    HASTY,
    MANY,
    OTHERS,
    ROOT,
    Experiment,
    heldout,
    metrics,
    summary,
)

PLOT = ROOT / "docs" / "stability.png"
FALL = 0.3
"""A fall: the training success of a step lies so far below the best since the last fall."""


def stability() -> Iterator[Sequence[str]]:
    yield (
        "learning rate",
        "runs",
        "mean after",
        "lowest",
        "below .80",
        "at 0",
        f"falls of over {FALL} per run",
        "steps scaled back",
        "CPU s, median",
    )
    for name, experiment in (("as configured", MANY), *HASTY.items()):
        after = [heldout(experiment.folder(seed), "after") for seed in experiment.seeds]
        cpu = median(summary(experiment.folder(seed))["cpu_seconds"] for seed in experiment.seeds)
        yield (
            name,
            str(len(after)),
            f"**{mean(after):.3f}**",
            f"{min(after):.3f}",
            str(sum(value < 0.8 for value in after)),
            str(sum(value < 0.05 for value in after)),
            *_steps(experiment),
            experiment.cpu(cpu),
        )


def others() -> Iterator[Sequence[str]]:
    yield (
        "run",
        "runs",
        "mean before",
        "mean after",
        "lowest",
        "at 0",
        f"falls of over {FALL} per run",
        "steps scaled back",
    )
    for name, experiment in OTHERS.items():
        before = [heldout(experiment.folder(seed), "before") for seed in experiment.seeds]
        after = [heldout(experiment.folder(seed), "after") for seed in experiment.seeds]
        yield (
            name,
            str(len(after)),
            f"{mean(before):.3f}",
            f"**{mean(after):.3f}**",
            f"{min(after):.3f}",
            str(sum(value < 0.05 for value in after)),
            *_steps(experiment),
        )


def _steps(experiment: Experiment) -> tuple[str, str]:
    """Return the falls per run, and the share of steps that were scaled back."""
    folders = [experiment.folder(seed) for seed in experiment.seeds]
    scaled = [
        row["learn/step_scaled"] < 1.0
        for folder in folders
        for row in metrics(folder, "learn/step_scaled")
    ]
    return (
        f"{mean(falls(successes(folder)) for folder in folders):.2f}",
        f"{mean(scaled):.1%}" if scaled else "no bound",
    )


def each_seed() -> str:
    """List the success after training of every seed of the first row, and draw their curves."""
    _draw([MANY.folder(seed) for seed in MANY.seeds], PLOT)
    after = [f"{heldout(MANY.folder(seed), 'after'):.3f}" for seed in MANY.seeds]
    rows = [" ".join(after[at : at + 12]) for at in range(0, len(after), 12)]
    return "\n".join(["```", *rows, "```"])


def successes(folder: Path) -> list[float]:
    return [row["play/success"] for row in metrics(folder, "play/success", "play/tokens")]


def falls(success: Sequence[float]) -> int:
    best, count = 0.0, 0
    for value in success:
        if value < best - FALL:
            best, count = value, count + 1
        best = max(best, value)
    return count


def _draw(folders: Sequence[Path], path: Path) -> None:
    curves = [successes(folder) for folder in folders]
    figure, axes = plt.subplots(figsize=(7.0, 3.4), layout="constrained")
    for curve in curves:
        axes.plot(range(1, len(curve) + 1), curve, color="tab:blue", alpha=0.22, linewidth=0.9)
    middle = [median(step) for step in zip(*curves, strict=True)]
    axes.plot(range(1, len(middle) + 1), middle, color="black", linewidth=1.8, label="median")
    axes.set(xlabel="step", ylabel="success in training", ylim=(0.0, 1.02), xlim=(1, len(middle)))
    axes.set_title(f"quickstart, {len(curves)} seeds", fontsize=10)
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
