"""How many games of a task a token budget allows, when one answer is chosen out of n games."""

from collections.abc import Sequence

from motet.evaluation.playthrough import Games, Playthrough


def groups(games: Sequence[Playthrough], n: int) -> list[Sequence[Playthrough]]:
    """Split games into complete groups of `n`. Each group answers the task once."""
    return [games[start : start + n] for start in range(0, len(games) - n + 1, n)]


def tokens_per_group(games: Games, n: int) -> float:
    """Return the tokens generated for one answer out of `n` games.

    This is the mean over groups, then over the tasks that were played; 0 if none was.
    """
    means = []
    for played in games:
        costs = [sum(game.tokens for game in group) for group in groups(played, n)]
        means += [sum(costs) / len(costs)] if costs else []
    return sum(means) / len(means) if means else 0.0


def affordable(games: Games, tokens: float) -> int:
    """Return the largest number of played games that `tokens` per task allow; at least 1."""
    most = min((len(played) for played in games if played), default=1)
    return next((n for n in range(most, 1, -1) if tokens_per_group(games, n) <= tokens), 1)
