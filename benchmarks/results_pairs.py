"""Tables of docs/results.md: learning from pairs, and one policy that answers for all agents."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from statistics import mean

from results_runs import CENTRALIZED, PREFERENCES, games, heldout, metrics

import motet
from motet.rollout.summary import episode_stats

SEEDS = (0, 1, 2)


def preferences() -> Iterator[Sequence[str]]:
    yield ("method", "games", "tokens", *(f"seed {seed}" for seed in SEEDS), "mean")
    first = next(iter(PREFERENCES.values()))
    before = [heldout(first.folder(seed), "before") for seed in SEEDS]
    yield ("before", "0", "0", *(f"{value:.3f}" for value in before), f"{mean(before):.3f}")
    for name, experiment in PREFERENCES.items():
        folders = [experiment.folder(seed) for seed in SEEDS]
        after = [heldout(folder, "after") for folder in folders]
        tokens = mean(spent(folder)[-1] + spent_on_pairs(folder) for folder in folders)
        cells = (f"{value:.3f}" for value in after)
        yield (name, f"{games(folders[0]):,}", f"{tokens:,.0f}", *cells, f"**{mean(after):.3f}**")


def centralized() -> Iterator[Sequence[str]]:
    """Compare after the same number of games, and in training after the same number of tokens."""
    seeds = [f"seed {seed}" for seed in SEEDS]
    yield ("game", "policies", "tokens", "before", *seeds, "mean after", "at equal tokens")
    for game, experiments in CENTRALIZED.items():
        for policies, experiment in zip(("a team", "one for all"), experiments, strict=True):
            folders = [experiment.folder(seed) for seed in SEEDS]
            before = mean(heldout(folder, "before") for folder in folders)
            after = [heldout(folder, "after") for folder in folders]
            tokens = mean(spent(folder)[-1] for folder in folders)
            equal = mean(
                success_at(folder, min(spent(one.folder(seed))[-1] for one in experiments))
                for folder, seed in zip(folders, SEEDS, strict=True)
            )
            cells = (f"{value:.3f}" for value in after)
            ends = (f"**{mean(after):.3f}**", f"{equal:.3f}")
            yield (game, policies, f"{tokens:,.0f}", f"{before:.3f}", *cells, *ends)


def spent(folder: Path) -> list[float]:
    """Return the tokens of the completions of a run, step by step and in all so far."""
    return list(accumulate(row["play/tokens"] for row in metrics(folder, "play/success")))


def spent_on_pairs(folder: Path) -> int:
    """Return the tokens of the games that were played for a reward model."""
    if not any(folder.glob("episodes/pairs-*.jsonl")):
        return 0
    return sum(episode_stats(one).tokens for one in motet.load_run(folder).episodes("pairs"))


def success_at(folder: Path, tokens: float) -> float:
    """Return the success in training, as a mean of the last five steps within `tokens`."""
    successes = [row["play/success"] for row in metrics(folder, "play/success")]
    steps = sum(total <= tokens for total in spent(folder))
    return mean(successes[max(steps - 5, 0) : steps])
