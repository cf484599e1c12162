import random
import struct
from itertools import combinations
from math import comb

import pytest

from motet_verifier.candidates import Candidate
from motet_verifier.choosing import (
    METHODS,
    SUBSETS,
    accuracies,
    best_of_k_accuracy,
    majority_vote,
    one_vote,
    single_accuracy,
    subsets,
    vote_accuracy,
)


def one(score, answer="1", right=None):
    """A candidate. The right answer is 7."""
    return Candidate(score, answer, answer == "7" if right is None else right)


def weight(candidate):
    return candidate.score


def winners(candidates, weight=one_vote):
    return majority_vote(candidates, lambda candidate: candidate.answer, weight)


RIGHT, WRONG = "7", "1"


def drawn(seed, games=6, agents=2):
    """Random games whose scores are often equal and whose answers are often None."""
    draw = random.Random(seed)
    return [
        [one(draw.randrange(4) / 4, draw.choice(["7", "1", "2", None])) for _ in range(agents)]
        for _ in range(games)
    ]


def brute_best(games, k):
    won = []
    for subset in combinations(games, k):
        candidates = [candidate for game in subset for candidate in game]
        won.append(max(candidates, key=weight).right)
    return sum(won) / len(won)


def brute_vote(games, k, weight=lambda _: 1.0):
    won = []
    for subset in combinations(games, k):
        sums = {}
        for candidate in (candidate for played in subset for candidate in played):
            if candidate.answer is not None:
                sums[candidate.answer] = sums.get(candidate.answer, 0.0) + weight(candidate)
        most = max(sums.values(), default=None)
        winners = [answer for answer, total in sums.items() if total == most]
        won.append(winners == ["7"])
    return sum(won) / len(won)


# -------------------------------------------------------------------------------------- whole games


# ---------------------------------------------------------------------------------------- best of k


def test_best_of_k_by_hand():
    games = [[one(0.2, RIGHT)], [one(0.9, WRONG)], [one(0.5, RIGHT)], [one(0.1, WRONG)]]
    # Sorted: 0.9 wrong, 0.5 right, 0.2 right, 0.1 wrong. Of 6 pairs, 3 contain the first, 2 more
    # the second, 1 more the third.
    assert best_of_k_accuracy(games, 1) == 0.5
    assert best_of_k_accuracy(games, 2) == (2 + 1) / 6
    assert (
        best_of_k_accuracy(games, 3) == 1 / 4
    )  # of 4 triples, 3 contain the first; the other one contains the second
    assert best_of_k_accuracy(games, 4) == 0.0


def test_the_best_answer_of_a_game_speaks_for_it():
    games = [[one(0.3, WRONG), one(0.8, RIGHT)], [one(0.7, WRONG), one(0.1, RIGHT)]]
    assert (best_of_k_accuracy(games, 1), best_of_k_accuracy(games, 2)) == (0.5, 1.0)


def test_of_equal_scores_the_first_is_taken_within_a_game_and_among_games():
    assert best_of_k_accuracy([[one(0.5, RIGHT), one(0.5, WRONG)]], 1) == 1.0
    assert best_of_k_accuracy([[one(0.5, WRONG), one(0.5, RIGHT)]], 1) == 0.0
    assert best_of_k_accuracy(
        [[one(0.5, RIGHT)], [one(0.5, WRONG)], [one(0.5, WRONG)]], 2
    ) == pytest.approx(2 / 3)
    assert best_of_k_accuracy([[one(0.5, WRONG)], [one(0.5, WRONG)], [one(0.5, RIGHT)]], 2) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_best_of_k_is_the_mean_over_all_subsets(seed):
    games = drawn(seed)
    for k in range(1, 7):
        assert best_of_k_accuracy(games, k) == pytest.approx(brute_best(games, k), abs=1e-12)


def test_a_thousand_games_overflow_nothing():
    games = [[one(place / 1000, RIGHT if place == 999 else WRONG)] for place in range(1000)]
    assert best_of_k_accuracy(games, 500) == pytest.approx(
        0.5
    )  # half of all subsets contain the best game


# -------------------------------------------------------------------------------------------- votes


def test_a_vote_goes_to_the_largest_sum_and_a_tie_to_nobody():
    two_weak, strong = [one(0.3, WRONG), one(0.3, WRONG)], one(0.7, RIGHT)
    assert winners([*two_weak, strong], weight) == [strong]
    assert winners([*two_weak, strong]) == [two_weak[0]]
    right, wrong = one(0.5, RIGHT), one(0.25, WRONG)
    assert winners([right, wrong, wrong], weight) == [right, wrong]
    assert vote_accuracy([[right, wrong, wrong]], [(0,)], weight) == 0.0
    right, wrong = one(0.0, RIGHT), one(0.0, WRONG)
    assert winners([right, wrong], weight) == [right, wrong]
    assert vote_accuracy([[right, wrong]], [(0,)], weight) == 0.0


def test_who_answers_nothing_does_not_vote():
    assert winners([one(0.9, None), one(0.9, None), one(0.1, RIGHT)], weight) == [one(0.1, RIGHT)]
    assert winners([one(0.9, None)], weight) == winners([], weight) == []
    assert vote_accuracy([[one(0.9, None, right=True)]], [(0,)], weight) == 0.0


def test_a_tie_of_tenths_hangs_on_no_order():
    """0.1 + 0.2 + 0.3 is another float than 0.3 + 0.2 + 0.1."""
    up = [one(score, RIGHT) for score in (0.1, 0.2, 0.3)]
    down = [one(score, WRONG) for score in (0.3, 0.2, 0.1)]
    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1
    assert winners([*up, *down], weight) == [up[0], down[0]]


def test_votes_by_hand():
    games = [[one(0.9, RIGHT)], [one(0.5, WRONG)], [one(0.6, WRONG)]]
    pairs = subsets(3, 2, 0)
    # Right against wrong: 0.9 wins twice; with equal weights it is a tie. Wrong and wrong: wrong.
    assert vote_accuracy(games, pairs, weight) == pytest.approx(2 / 3)
    assert vote_accuracy(games, pairs, one_vote) == 0.0
    assert vote_accuracy(games, subsets(3, 3, 0), weight) == 0.0  # 0.9 against 1.1


@pytest.mark.parametrize("seed", range(10))
def test_votes_are_the_mean_over_all_subsets_where_these_are_few(seed):
    games = drawn(seed)
    for k in range(1, 7):
        found = accuracies(games, k, seed)
        assert found["weighted"] == pytest.approx(brute_vote(games, k, weight))
        assert found["majority"] == pytest.approx(brute_vote(games, k))


def test_votes_over_drawn_subsets_come_close_to_all():
    games = drawn(1, games=12)
    seeds = range(40)
    mean = sum(accuracies(games, 5, seed)["weighted"] for seed in seeds) / len(seeds)
    exact = brute_vote(games, 5, weight)
    assert 0.1 < exact < 0.9
    assert mean == pytest.approx(exact, abs=0.03)


# -------------------------------------------------------------------------------------- all methods


@pytest.mark.parametrize(("n", "k"), [(8, 1), (8, 8), (8, 3), (1, 1), (4, 2), (64, 63)])
def test_few_subsets_are_all_there_are(n, k):
    assert comb(n, k) <= SUBSETS
    assert subsets(n, k, 0) == list(combinations(range(n), k))


def test_of_many_subsets_some_are_drawn_the_same_for_the_same_seed():
    found = subsets(8, 4, 5)
    assert len(set(found)) == SUBSETS < comb(8, 4)
    assert all(len(set(subset)) == 4 and list(subset) == sorted(subset) for subset in found)
    assert subsets(8, 4, 5) == found
    assert subsets(8, 4, 6) != found
    assert len(subsets(100, 50, 0)) == SUBSETS


def test_a_single_answer_counts_games_alike():
    assert single_accuracy([[one(0.0, RIGHT), one(0.0, WRONG)], [one(0.0, RIGHT)]]) == 0.75


@pytest.mark.parametrize("seed", range(10))
def test_the_ceiling_is_the_share_of_subsets_with_a_right_answer_and_nothing_is_above_it(seed):
    games = drawn(seed)
    for k in range(1, 7):
        found = accuracies(games, k, seed)
        assert list(found) == list(METHODS)
        hits = [
            any(candidate.right for game in subset for candidate in game)
            for subset in combinations(games, k)
        ]
        assert found["any"] == pytest.approx(sum(hits) / len(hits))
        assert max(found.values()) <= found["any"] + 1e-12


def test_one_game_of_one_agent_is_a_single_answer_by_every_method():
    games = [[one(0.4, RIGHT)], [one(0.9, WRONG)], [one(0.1, RIGHT)]]
    assert accuracies(games, 1, 0) == dict.fromkeys(METHODS, pytest.approx(2 / 3))


def test_a_perfect_verifier_reaches_the_ceiling_and_one_that_errs_always_misses():
    games = [
        [one(0.9, RIGHT), one(0.2, WRONG)],
        [one(0.1, WRONG), one(0.3, "2")],
        [one(0.8, RIGHT), one(0.4, "2")],
    ]
    turned = [
        [one(1.0 - candidate.score, candidate.answer) for candidate in game] for game in games
    ]
    for k in (1, 2, 3):
        found = accuracies(games, k, 0)
        assert found["best"] == pytest.approx(found["any"])
        assert accuracies(turned, k, 0)["best"] == 0.0


@pytest.mark.parametrize("k", [0, 3])
def test_more_games_than_there_are_or_none_are_refused(k):
    with pytest.raises(ValueError, match=f"got k = {k} of n = 2 games; expected 1 <= k <= n"):
        accuracies(drawn(0, games=2), k, 0)


def test_a_tie_that_rounding_breaks_is_a_tie():
    scores = {"x": [0.1, 0.2], "y": [0.3]}
    votes = [(answer, score) for answer, each in scores.items() for score in each]

    def winners(options):
        found = majority_vote(options, lambda one: one[0], lambda one: one[1])
        return sorted(one[0] for one in found)

    assert winners(votes) == winners(votes[::-1]) == ["x", "y"]
    # the same as float32, as a verifier gives them: .30000000447 and .30000001192
    float32 = [(answer, struct.unpack("f", struct.pack("f", one))[0]) for answer, one in votes]
    assert winners(float32) == ["x", "y"]
    assert winners([*votes, ("y", 0.001)]) == ["y"]
