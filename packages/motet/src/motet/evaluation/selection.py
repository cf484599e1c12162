"""Choose one of several candidates: best of n and majority vote.

They choose among whole games of a task (`best_game`, `majority_game`), and among answers with the
scores of a verifier. For the answers, this module also gives the accuracy of every method: a task
has n games, and each game has the answers of all agents at one turn. A method that chooses among k
games is measured as the mean over subsets of k of the n games: over all of them if there is a
formula or if they are few, else over random subsets.
"""

import random
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, fsum
from typing import Any, TypeAlias, TypeVar

from motet.core import Task
from motet.evaluation.pass_at_k import pass_at_k
from motet.evaluation.playthrough import Playthrough, valid_games

SUBSETS = 64
"""Maximum number of subsets that votes are averaged over."""
ROUNDING = 1e-6
"""Relative difference of two sums of float32 numbers that rounding explains."""
METHODS = {
    "single": "single answer",
    "majority": "majority vote",
    "weighted": "weighted vote",
    "best": "best of k",
    "any": "any right",
}
"""Method -> its label in tables."""
AnswerFunction: TypeAlias = Callable[[Task, Mapping[str, str]], Hashable | None]
"""Returns the answer that the agents' last texts express, or None if they contain no answer."""
Option = TypeVar("Option")


def best_of_n(options: Sequence[Option], score: Callable[[Option], Any]) -> Option:
    """Return the option with the highest score, in a tie the first one.

    Raises: ValueError if there is no option.
    """
    return max(options, key=score)


def one_vote(option: object) -> float:
    """The weight of an option in a majority vote without scores."""
    return 1.0


def majority_vote(
    options: Sequence[Option],
    answer: Callable[[Option], Hashable | None],
    weight: Callable[[Option], float] = one_vote,
) -> list[Option]:
    """Return the first option of each answer with the largest total weight.

    More than one option means a tie. Options without an answer do not vote; if none has an answer,
    the list is empty. Weights are rounded, .1 + .2 is not .3, and a verifier's scores are float32:
    totals that differ by less than `ROUNDING` of the weights are a tie.
    """
    votes: dict[Hashable, list[Option]] = {}
    for option in options:
        given = answer(option)
        if given is not None:
            votes.setdefault(given, []).append(option)
    sums = {given: fsum(map(weight, voters)) for given, voters in votes.items()}
    most = max(sums.values(), default=0.0)
    sizes = [fsum(abs(weight(voter)) for voter in voters) for voters in votes.values()]
    least = most - ROUNDING * max(sizes, default=0.0)
    return [votes[given][0] for given, total in sums.items() if total >= least]


# -------------------------------------------------------------------------------------- whole games


def best_game(games: Sequence[Playthrough]) -> Playthrough | None:
    """Return the game with the highest success, then the highest reward, then the first.

    Returns None if all games failed. This is an oracle, because it looks at success and reward.
    Reward alone is not enough: if every turn is rewarded, failing twice may earn more than solving
    the task at once.
    """
    valid = valid_games(games)
    return best_of_n(valid, lambda game: (game.success or 0.0, game.reward)) if valid else None


def majority_game(games: Sequence[Playthrough], answer: AnswerFunction) -> Playthrough | None:
    """Return the first game with the most common answer. In a tie the first answer wins.

    If no game has an answer, return the first valid game. Returns None if all games failed.
    """
    valid = valid_games(games)
    winners = majority_vote(valid, lambda game: answer(game.task, game.last_words))
    return next(iter(winners or valid), None)


def verbatim(task: Task, texts: Mapping[str, str]) -> Hashable:
    """Return the texts themselves as the answer, for environments that define no `answer`."""
    return tuple(sorted(texts.items()))


# ----------------------------------------------------------------------------- answers with a score


@dataclass(frozen=True)
class Candidate:
    """One judged answer."""

    score: float
    """The score of the verifier."""
    answer: str | None
    """The answer that the text expresses. None if it contains no answer; then it does not vote."""
    right: bool


Candidates: TypeAlias = Sequence[Sequence[Candidate]]
"""The answers of each game, in the order of games and agents. Each game has at least one."""
Subset: TypeAlias = tuple[int, ...]
"""Indices of games, in order."""


def accuracies(games: Candidates, k: int, seed: int) -> dict[str, float]:
    """Return the accuracy of each of METHODS for k of the games.

    Raises: ValueError unless 1 <= k <= n.
    """
    if not 1 <= k <= len(games):
        raise ValueError(f"got k = {k} of n = {len(games)} games; expected 1 <= k <= n")
    chosen = subsets(len(games), k, seed)
    return {
        "single": single_accuracy(games),
        "majority": vote_accuracy(games, chosen, one_vote),
        "weighted": vote_accuracy(games, chosen, _score),
        "best": best_of_k_accuracy(games, k),
        "any": pass_at_k(len(games), sum(any(one.right for one in game) for game in games), k),
    }


def single_accuracy(games: Candidates) -> float:
    """Return the accuracy of one random answer of one game. It is the same for every k."""
    return fsum(sum(one.right for one in game) / len(game) for game in games) / len(games)


def best_of_k_accuracy(games: Candidates, k: int) -> float:
    """Return the accuracy of the answer with the highest score among k games.

    In a tie the first answer counts.

    The mean is over all C(n, k) subsets. With the games sorted by their highest score, the game at
    index i (from 0) is the best one of C(n−1−i, k−1) subsets: those that contain it and none of the
    games before it.
    """
    n = len(games)
    tops = sorted((best_of_n(game, _score) for game in games), key=_score, reverse=True)
    return sum(comb(n - 1 - place, k - 1) for place, top in enumerate(tops) if top.right) / comb(
        n, k
    )


def vote_accuracy(
    games: Candidates, chosen: Sequence[Subset], weight: Callable[[Candidate], float]
) -> float:
    """Return the share of the chosen subsets in which the vote is right. A tie is wrong."""
    right = 0
    for subset in chosen:
        candidates = [one for place in subset for one in games[place]]
        winners = majority_vote(candidates, lambda one: one.answer, weight)
        right += len(winners) == 1 and winners[0].right
    return right / len(chosen)


def subsets(n: int, k: int, seed: int) -> list[Subset]:
    """Return all subsets of k of n games, or SUBSETS different ones if there are more."""
    if comb(n, k) <= SUBSETS:
        return list(combinations(range(n), k))
    draw, found = random.Random(seed), set[Subset]()
    while len(found) < SUBSETS:
        found.add(tuple(sorted(draw.sample(range(n), k))))
    return sorted(found)


def _score(one: Candidate) -> float:
    return one.score
