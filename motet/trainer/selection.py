"""One answer chosen out of several games, with a verifier's scores and without: how often is it right?

A task has n games, and each the answers of all agents at one turn. What chooses among k games is worth its mean over subsets of k
of the n: over all of them where a formula says it or they are few, else over some that a seed draws. No torch, no IO.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, fsum
from typing import TypeAlias

from motet.rollout.passing import pass_at

SUBSETS = 64
"""Votes are averaged over at most so many subsets."""
METHODS = {
    "single": "single answer",
    "majority": "majority vote",
    "weighted": "weighted vote",
    "best": "best of k",
    "any": "any right",
}
"""What is measured -> what people read of it."""


@dataclass(frozen=True)
class Candidate:
    """One answer as it is judged."""

    score: float
    """The verifier's."""
    answer: str | None
    """What it comes to; None where it answers nothing, and then it does not vote."""
    right: bool


Candidates: TypeAlias = Sequence[Sequence[Candidate]]
"""The answers of each game, in the order of games and agents; at least one in each."""
Subset: TypeAlias = tuple[int, ...]
"""Places of games, in order."""


def accuracies(games: Candidates, k: int, seed: int) -> dict[str, float]:
    """Each of METHODS out of k of the games. Raises: ValueError unless 1 <= k <= n."""
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
    """How likely one answer of one game is right; the same for every k."""
    return fsum(sum(one.right for one in game) / len(game) for game in games) / len(games)


def best_of(games: Candidates, k: int) -> float:
    """How likely the answer with the highest score among k games is right; of equal scores the first is taken.

    Over all C(n, k) subsets: with the games sorted by their highest score, the one at place i from 0 decides those C(n−1−i, k−1)
    that hold it and none before it.
    """
    n = len(games)
    tops = sorted((max(game, key=_score) for game in games), key=_score, reverse=True)
    return sum(comb(n - 1 - place, k - 1) for place, top in enumerate(tops) if top.right) / comb(n, k)


def voted(games: Candidates, chosen: Sequence[Subset], weight: Callable[[Candidate], float]) -> float:
    """The share of the chosen subsets in which a vote is right."""
    winners = [elected([one for place in subset for one in games[place]], weight) for subset in chosen]
    return sum(winner is not None and winner.right for winner in winners) / len(winners)


def elected(candidates: Sequence[Candidate], weight: Callable[[Candidate], float]) -> Candidate | None:
    """The first of those that give the answer with the most weight; None where nobody answers, or two answers have the most.

    Weights are summed exactly, so that a tie hangs on no order.
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
    """All subsets of k of n games where there are at most SUBSETS, else SUBSETS different ones."""
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
