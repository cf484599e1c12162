"""Elo ratings of players, compared with what can be computed by hand."""

import math

import numpy as np
import pytest

from motet_compare.ratings import PRIOR, ratings


def rated(success, games):
    """Return the ratings where each pair has as many games."""
    return ratings(success, [[games] * len(success)] * len(success))


def elo(score):
    """Return the difference of ratings at which this is the expected score."""
    return 400 * math.log10(score / (1 - score))


def test_by_hand_two_players_differ_by_the_logit_of_their_score():
    """A wins 60 of 80 games, and one more is drawn: 60.5 of 81."""
    a, b = rated([[0.5, 0.7], [0.2, 0.5]], 40)
    score = (0.7 * 40 + 0.8 * 40 + PRIOR / 2) / (80 + PRIOR)
    assert a.elo - b.elo == pytest.approx(elo(score))
    assert a.elo + b.elo == pytest.approx(0.0)


def test_by_hand_the_error_of_two_players_is_half_of_that_of_their_difference():
    """The variance of a logit is 1/(n p (1 - p)), and each rating is half of the difference."""
    a, b = rated([[0.5, 0.7], [0.2, 0.5]], 40)
    score = (0.7 * 40 + 0.8 * 40 + PRIOR / 2) / (80 + PRIOR)
    logit = math.sqrt(1 / ((80 + PRIOR) * score * (1 - score)))
    assert a.error == b.error == pytest.approx(400 / math.log(10) * logit / 2)


def test_equal_players_have_equal_ratings_and_the_diagonal_does_not_count():
    equal = rated([[0.5, 0.5, 0.5], [0.5, 0.9, 0.5], [0.5, 0.5, 0.1]], 10)
    assert [one.elo for one in equal] == pytest.approx([0.0, 0.0, 0.0])


def test_ratings_that_made_the_scores_are_found_again():
    true_N = np.array([200.0, 0.0, -50.0, -150.0])
    score_NN = 1 / (1 + 10 ** ((true_N - true_N[:, None]) / 400))
    found = rated(score_NN.tolist(), 10**6)
    assert [one.elo for one in found] == pytest.approx(true_N, abs=0.01)


def test_who_never_loses_has_a_finite_rating():
    """10 of 10 games and half of the added one: 10.5 of 11 in each of two places."""
    best, worst = rated([[0.5, 1.0], [0.0, 0.5]], 5)
    assert best.elo - worst.elo == pytest.approx(elo(10.5 / 11))


def test_more_games_have_smaller_errors():
    few, many = (rated([[0.5, 0.6], [0.4, 0.5]], games)[0].error for games in (10, 1000))
    assert many == pytest.approx(few / 10, rel=0.05)


def test_each_score_weighs_as_its_own_games():
    """A wins 6 of 8 games in the first place and 1 of 2 in the other, and one more is drawn."""
    a, b = ratings([[0.5, 0.75], [0.5, 0.5]], [[5, 8], [2, 5]])
    assert a.elo - b.elo == pytest.approx(elo((6 + 1 + PRIOR / 2) / (10 + PRIOR)))
