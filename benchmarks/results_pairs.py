"""Tables of docs/results.md: learning from pairs, and one policy that answers for all agents."""

from collections.abc import Iterator, Sequence
from statistics import mean

from results_runs import CENTRALIZED, PREFERENCES, games, heldout, summary


def preferences() -> Iterator[Sequence[str]]:
    yield ("method", "games", *(f"seed {seed}" for seed in (0, 1, 2)), "mean")
    first = next(iter(PREFERENCES.values()))
    before = [heldout(first.folder(seed), "before") for seed in first.seeds]
    yield ("before", "0", *(f"{value:.3f}" for value in before), f"{mean(before):.3f}")
    for name, experiment in PREFERENCES.items():
        after = [heldout(experiment.folder(seed), "after") for seed in experiment.seeds]
        cells = (f"{value:.3f}" for value in after)
        yield (name, f"{games(experiment.folder(0)):,}", *cells, f"**{mean(after):.3f}**")


def centralized() -> Iterator[Sequence[str]]:
    yield ("game", "policies", "games", "tokens", "before", "after")
    for game, experiments in CENTRALIZED.items():
        for policies, experiment in zip(("a team", "one for all"), experiments, strict=True):
            folder = experiment.folder(0)
            figures = [f"{heldout(folder, when):.3f}" for when in ("before", "after")]
            tokens = f"{summary(folder)['tokens']:,}"
            yield (game, policies, f"{games(folder):,}", tokens, *figures)
