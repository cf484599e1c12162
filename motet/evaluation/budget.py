"""Choose one answer out of several games of one task.

Either the best answer, or the most common one. Also: how many games a token budget allows.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from motet.core import Task
from motet.evaluation.playthrough import Games, Playthrough

AnswerFunction = Callable[[Task, Mapping[str, str]], Hashable | None]
"""Returns the answer that the agents' last texts express, or None if they contain no answer."""


def best(games: Sequence[Playthrough]) -> Playthrough | None:
    """Return the game with the highest success, then the highest reward, then the first.

    Returns None if all games failed. This is an oracle, because it looks at success and reward.
    Reward alone is not enough: if every turn is rewarded, failing twice may earn more than solving
    the task at once.
    """
    held = (game for game in games if game.fault is None)
    return max(held, key=lambda game: (game.success or 0.0, game.reward), default=None)


def commonest(games: Sequence[Playthrough], answer: AnswerFunction) -> Playthrough | None:
    """Return the first game with the most common answer. In a tie the first answer wins.

    Games without an answer do not vote. If no game has an answer, return the first valid game.
    Returns None if all games failed.
    """
    held = [game for game in games if game.fault is None]
    answers = [answer(game.task, game.last_words) for game in held]
    votes = Counter(given for given in answers if given is not None)
    if not votes:
        return held[0] if held else None
    return held[answers.index(votes.most_common(1)[0][0])]


def verbatim(task: Task, texts: Mapping[str, str]) -> Hashable:
    """Return the texts themselves as the answer, for environments that define no `answer`."""
    return tuple(sorted(texts.items()))


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
