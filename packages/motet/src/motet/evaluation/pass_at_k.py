"""pass@k: the probability that at least one of k sampled games succeeds."""

from collections.abc import Sequence
from math import prod

from motet.evaluation.playthrough import Games, mean_of, valid_games


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate 1 − C(n−c, k)/C(n, k) from n games of which c succeeded.

    Source: Chen et al. 2021, arXiv 2107.03374, eq. 1. It is computed as a product of k factors in
    [0, 1], so that no binomial overflows.

    Raises: ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(
            f"pass@{k} of {c} successes in {n} games; expected 1 <= k <= n and 0 <= c <= n"
        )
    return 1.0 - prod(max(n - c - drawn, 0) / (n - drawn) for drawn in range(k))


def mean_pass_at_k(games: Games, ks: Sequence[int]) -> dict[int, float]:
    """Return `k` -> the mean of pass@k over tasks. A game passes if its `success` is 1.

    Returns {} if no game reports `success`. A task with fewer than k valid games is left out of
    pass@k.
    """
    groups = [[game.success for game in valid_games(played)] for played in games]
    if all(success is None for group in groups for success in group):
        return {}
    counts = [(len(group), sum(success == 1.0 for success in group)) for group in groups]
    means = {k: mean_of([pass_at_k(n, c, k) for n, c in counts if n >= k]) for k in ks}
    return {k: mean for k, mean in means.items() if mean is not None}


def powers_of_two(n: int) -> list[int]:
    """Return 1, 2, 4, ... up to n."""
    return [2**power for power in range(n.bit_length())] if n > 0 else []
