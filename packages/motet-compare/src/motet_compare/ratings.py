"""Ratings of players from the scores of their games, in units of Elo.

Bradley and Terry (1952): player i beats player j with probability

    p_ij = 1 / (1 + 10^((r_j - r_i) / 400))

The ratings r maximise the likelihood, by the iteration of Hunter (2004, The Annals of Statistics
32, equation 3). A draw counts as half a win. Every pair has one drawn game more than it played, so
that a player who never loses has a finite rating.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PRIOR = 1.0
"""Drawn games that are added to each pair."""
TOLERANCE = 1e-10
MOST_ROUNDS = 100_000


@dataclass(frozen=True)
class Rating:
    """The rating of a player, whose mean over all players is 0, and its standard error.

    The standard error takes each game for an independent win or loss. Draws vary less, so it is
    too large where many games are drawn.
    """

    elo: float
    error: float


def ratings(success: Sequence[Sequence[float]], games: Sequence[Sequence[int]]) -> list[Rating]:
    """Return the rating of each player.

    Args:
        success: the score of player i in the first place against j in the other, [N][N], from 0
            (all games are lost) to 1. Games of a player with itself are not read.
        games: the number of games behind each of them, [N][N].
    """
    score_NN = np.asarray(success, dtype=np.float64)
    apart_NN = 1.0 - np.eye(len(score_NN))
    games_NN = np.asarray(games, dtype=np.float64)
    won_NN = games_NN * score_NN + games_NN.T * (1.0 - score_NN.T)
    won_NN = (won_NN + PRIOR / 2) * apart_NN
    played_NN = (games_NN + games_NN.T + PRIOR) * apart_NN
    strength_N = _strengths(won_NN.sum(axis=1), played_NN)
    chance_NN = strength_N[:, None] / (strength_N[:, None] + strength_N)
    known_NN = played_NN * chance_NN * (1.0 - chance_NN)
    # The information matrix of the log-strengths; only their differences are known.
    information_NN = np.diag(known_NN.sum(axis=1)) - known_NN
    error_N = np.sqrt(np.diag(np.linalg.pinv(information_NN)))
    log_N = np.log(strength_N)
    unit = 400 / math.log(10)
    return [
        Rating(float(unit * log), float(unit * error))
        for log, error in zip(log_N - log_N.mean(), error_N, strict=True)
    ]


def _strengths(won_N: np.ndarray, played_NN: np.ndarray) -> np.ndarray:
    strength_N = np.ones(len(won_N))
    for _ in range(MOST_ROUNDS):
        pairs_NN = played_NN / (strength_N[:, None] + strength_N)
        new_N: np.ndarray = won_N / pairs_NN.sum(axis=1)
        new_N /= np.exp(np.log(new_N).mean())
        if np.abs(np.log(new_N / strength_N)).max() < TOLERANCE:
            return new_N
        strength_N = new_N
    raise ArithmeticError(f"ratings did not settle in {MOST_ROUNDS} rounds")
