"""Accuracy of choosing one answer out of several games, with and without a verifier.

A task has n games, and each game has the answers of all agents at one turn. A method that chooses
among k games is measured as the mean over subsets of k of the n games: over all of them if there is
a formula or if they are few, else over random subsets. This module uses no torch and no IO.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, fsum
from typing import TypeAlias

from motet.evaluation.pass_at_k import pass_at

SUBSETS = 64
"""Maximum number of subsets that votes are averaged over."""
METHODS = {
    "single": "single answer",
    "majority": "majority vote",
    "weighted": "weighted vote",
    "best": "best of k",
    "any": "any right",
}
"""Method -> its label in tables."""


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
        raise ValueError(f"{k} of {len(games)} games; expected 1 <= k <= n")
    chosen = subsets(len(games), k, seed)
    return {
        "single": single(games),
        "majority": voted(games, chosen, _alike),
        "weighted": voted(games, chosen, _score),
        "best": best_of(games, k),
        "any": pass_at(len(games), sum(any(one.right for one in game) for game in games), k),
    }


def single(games: Candidates) -> float:
    """Return the accuracy of one random answer of one game. It is the same for every k."""
    return fsum(sum(one.right for one in game) / len(game) for game in games) / len(games)


def best_of(games: Candidates, k: int) -> float:
    """Return the accuracy of the answer with the highest score among k games.

    In a tie the first answer counts.

    The mean is over all C(n, k) subsets. With the games sorted by their highest score, the game at
    index i (from 0) is the best one of C(n−1−i, k−1) subsets: those that contain it and none of the
    games before it.
    """
    n = len(games)
    tops = sorted((max(game, key=_score) for game in games), key=_score, reverse=True)
    return sum(comb(n - 1 - place, k - 1) for place, top in enumerate(tops) if top.right) / comb(
        n, k
    )


def voted(
    games: Candidates, chosen: Sequence[Subset], weight: Callable[[Candidate], float]
) -> float:
    """Return the share of the chosen subsets in which the vote is right."""
    winners = [
        elected([one for place in subset for one in games[place]], weight) for subset in chosen
    ]
    return sum(winner is not None and winner.right for winner in winners) / len(winners)


def elected(
    candidates: Sequence[Candidate], weight: Callable[[Candidate], float]
) -> Candidate | None:
    """Return the first candidate of the answer with the largest total weight.

    Returns None if there is no answer or a tie. The weights are summed exactly, so a tie does not
    depend on their order.
    """
    votes: dict[str, list[Candidate]] = {}
    for one in candidates:
        if one.answer is not None:
            votes.setdefault(one.answer, []).append(one)
    sums = {answer: fsum(map(weight, given)) for answer, given in votes.items()}
    most = max(sums.values(), default=0.0)
    winners = [answer for answer, total in sums.items() if total == most]
    return votes[winners[0]][0] if len(winners) == 1 else None


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


def _alike(one: Candidate) -> float:
    return 1.0
