"""Choose one of several games of a task: the best one, or the one with the most common answer."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeAlias

from motet.core import Task
from motet.evaluation.playthrough import Playthrough, valid_games

AnswerFunction: TypeAlias = Callable[[Task, Mapping[str, str]], Hashable | None]
"""Returns the answer that the agents' last texts express, or None if they contain no answer."""


def best_game(games: Sequence[Playthrough]) -> Playthrough | None:
    """Return the game with the highest success, then the highest reward, then the first.

    Returns None if all games failed. This is an oracle, because it looks at success and reward.
    Reward alone is not enough: if every turn is rewarded, failing twice may earn more than solving
    the task at once.
    """
    valid = valid_games(games)
    return max(valid, key=lambda game: (game.success or 0.0, game.reward), default=None)


def majority_game(games: Sequence[Playthrough], answer: AnswerFunction) -> Playthrough | None:
    """Return the first game with the most common answer. In a tie the first answer wins.

    If no game has an answer, return the first valid game. Returns None if all games failed.
    """
    valid = valid_games(games)
    said = [(game, answer(game.task, game.last_words)) for game in valid]
    votes = Counter(given for _, given in said if given is not None)
    if not votes:
        return next(iter(valid), None)
    ((common, _),) = votes.most_common(1)
    return next(game for game, given in said if given == common)


def verbatim(task: Task, texts: Mapping[str, str]) -> Hashable:
    """Return the texts themselves as the answer, for environments that define no `answer`."""
    return tuple(sorted(texts.items()))
