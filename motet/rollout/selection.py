"""One answer out of several games of one task: the best one, the commonest one, and how many games a budget of tokens allows."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from motet.core import Task
from motet.rollout.playthrough import Games, Playthrough

Answer = Callable[[Task, Mapping[str, str]], Hashable | None]
"""What the last texts of the agents come to; None where they answer nothing."""


def best(games: Sequence[Playthrough]) -> Playthrough | None:
    """The game with the highest success, and of such the highest reward, the first of equals: an oracle, for it looks at both.
    None where all broke.

    Reward alone would not do: where every turn is paid, failing twice may earn more than solving at once.
    """
    held = (game for game in games if game.fault is None)
    return max(held, key=lambda game: (game.success or 0.0, game.reward), default=None)


def commonest(games: Sequence[Playthrough], answer: Answer) -> Playthrough | None:
    """The first game with the answer that most games give, the first seen of equals. Games without an answer do not vote, and
    where none has one the first game stands. None where all broke."""
    held = [game for game in games if game.fault is None]
    answers = [answer(game.task, game.last_words) for game in held]
    votes = Counter(given for given in answers if given is not None)
    if not votes:
        return held[0] if held else None
    return held[answers.index(votes.most_common(1)[0][0])]


def verbatim(task: Task, texts: Mapping[str, str]) -> Hashable:
    """The answer of an environment that cannot say what an answer is: the very texts."""
    return tuple(sorted(texts.items()))


def groups(games: Sequence[Playthrough], n: int) -> list[Sequence[Playthrough]]:
    """Games in whole groups of `n`, each of which can answer the task once; what is left over answers nothing."""
    return [games[start : start + n] for start in range(0, len(games) - n + 1, n)]


def tokens_per_group(games: Games, n: int) -> float:
    """Generated for one answer out of `n` games: the mean over groups, and over tasks that were played; 0 where none was."""
    means = []
    for played in games:
        costs = [sum(game.tokens for game in group) for group in groups(played, n)]
        means += [sum(costs) / len(costs)] if costs else []
    return sum(means) / len(means) if means else 0.0


def affordable(games: Games, tokens: float) -> int:
    """The largest n of games that were played for which `tokens` per task suffice; 1 where they never do."""
    most = min((len(played) for played in games if played), default=1)
    return next((n for n in range(most, 1, -1) if tokens_per_group(games, n) <= tokens), 1)
