"""Choose one of several answers by the scores of a verifier or by a vote, and measure the choice.

A task has n games, and each game has the answers of all agents at one turn. A method that chooses
among k games is measured as the mean over subsets of k of the n games: over all of them if there is
a formula or if they are few, else over random subsets.
"""

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, fsum
from pathlib import Path
from typing import TypeAlias, TypeVar

from motet.core.seeding import derive
from motet.evaluation.intervals import Estimate, rate_of
from motet.evaluation.pass_at_k import pass_at_k
from motet.trainer.plot import FAINT, HELDOUT, INK, REWARD, TRAINED, figure_in
from motet_verifier.candidates import Candidate, JudgedPools, Pool

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
LINES = {
    "single": (FAINT, "--"), "majority": (REWARD, "-"), "weighted": (HELDOUT, "-"),
    "best": (TRAINED, "-"), "any": (INK, ":"),
}  # fmt: skip
"""Method -> color and style of its line."""
Option = TypeVar("Option")


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


# --------------------------------------------------------------------------------------- accuracies


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
    tops = sorted((max(game, key=_score) for game in games), key=_score, reverse=True)
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


# --------------------------------------------------------------------------------------- as a table


@dataclass(frozen=True)
class SelectionRow:
    """The results for one k at one turn. Metrics are None if no task has k games."""

    k: int
    tasks: int
    """Number of tasks with at least k valid games. Only these count; in the others too many games
    failed."""
    tokens_per_task: float | None
    """Tokens generated by k games up to and including the turn."""
    all_subsets: bool
    """Whether votes are averaged over all subsets of k games, or only over SUBSETS of them. All
    other methods always use all subsets."""
    accuracy: dict[str, Estimate | None]
    """Method of METHODS -> share of tasks that it answers correctly."""


@dataclass(frozen=True)
class SelectionTable:
    """The results of answer selection. They are determined by the games, the scores and
    the seed."""

    turns: list[list[SelectionRow]]
    """For each turn, the rows of all k. Empty if no answer could be judged."""
    scored: int
    left_out: int
    causes: dict[str, int]


def selection_table(judged: JudgedPools, best_of: Sequence[int], seed: int) -> SelectionTable:
    """Return the rows of every turn, for each k of `best_of` in ascending order."""
    ks = sorted(set(best_of))
    turns = [[_row(judged.pools, turn, k, seed) for k in ks] for turn in range(judged.turns)]
    return SelectionTable(turns, judged.scored, judged.left_out, judged.causes)


def _row(pools: Sequence[Pool], turn: int, k: int, seed: int) -> SelectionRow:
    enough = [pool for pool in pools if len(pool.games) >= k]
    # Use the same subsets at every turn, so that turns differ only in the answers.
    found = [
        accuracies(pool.at(turn), k, derive(seed, "selection", pool.task.id, k)) for pool in enough
    ]
    games = sum(len(pool.games) for pool in enough)  # games // k choices share no game
    tokens = [k * pool.tokens_per_game(turn) for pool in enough]
    return SelectionRow(
        k=k,
        tasks=len(enough),
        tokens_per_task=sum(tokens) / len(tokens) if tokens else None,
        all_subsets=all(comb(len(pool.games), k) <= SUBSETS for pool in enough),
        accuracy={
            method: rate_of([one[method] for one in found], games // k, seed) for method in METHODS
        },
    )


def selection_curves(turns: Sequence[Sequence[SelectionRow]], path: Path) -> None:
    """Plot accuracy against tokens per task for every selection method, one panel per turn.

    `turns` are those of an evaluation's `selection`. If tokens cannot be counted, the axis is the
    number of games.
    """
    count = max(1, len(turns))
    counted = all(row.tokens_per_task for rows in turns for row in rows if row.tasks)
    axis, unit = ("tokens_per_task", "generated tokens") if counted else ("k", "games")
    with figure_in(path, 1.6 + 3.8 * count, 4.4) as figure:
        panels = figure.subplots(1, count, sharey=True, squeeze=False)[0]
        for number, (axes, rows) in enumerate(zip(panels, turns, strict=False), start=1):
            shown = [row for row in rows if row.tasks]
            places = [getattr(row, axis) for row in shown]
            for method, (color, style) in LINES.items():
                values = [one.mean for row in shown if (one := row.accuracy[method]) is not None]
                label = METHODS[method]
                axes.plot(places, values, style, color=color, marker="o", markersize=4, label=label)
            axes.set_xscale("log", base=2)
            axes.set_xticks(places, [f"{place:,.0f}" for place in places])
            axes.minorticks_off()
            axes.set(xlabel=f"{unit} per task", title=f"turn {number}")
        panels[0].set(ylabel="accuracy", ylim=(-0.03, 1.03))
        lines, columns = panels[0].get_legend_handles_labels(), len(LINES) if count > 1 else 3
        figure.legend(*lines, loc="outside lower center", ncols=columns)
