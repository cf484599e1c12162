from itertools import combinations

import pytest

from motet.evaluation.pass_at_k import mean_pass_at_k, pass_at_k, powers_of_two
from tests.fixtures.finished_games import BROKE, LOST, WON, game


def test_pass_at_k_by_hand():
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 1, 2) == pytest.approx(
        1 - 3 / 6
    )  # C(3,2) = 3 of C(4,2) = 6 pairs do not contain the one that passes
    assert pass_at_k(5, 2, 2) == pytest.approx(1 - 3 / 10)
    assert pass_at_k(5, 2, 3) == pytest.approx(1 - 1 / 10)
    assert (pass_at_k(5, 2, 4), pass_at_k(5, 0, 3), pass_at_k(3, 3, 1), pass_at_k(1, 0, 1)) == (
        1.0,
        0.0,
        1.0,
        0.0,
    )


def test_pass_at_k_is_the_share_of_all_choices_of_k_with_a_success():
    for n in range(1, 7):
        for c in range(n + 1):
            for k in range(1, n + 1):
                chosen = list(combinations([1] * c + [0] * (n - c), k))
                assert pass_at_k(n, c, k) == pytest.approx(sum(map(max, chosen)) / len(chosen))


def test_no_binomial_overflows():
    # 1 - Π (99999-j)/(100000-j) for j < 1000 telescopes to 1 - 99000/100000
    assert pass_at_k(100_000, 1, 1000) == pytest.approx(0.01)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 0), (4, 1, 5), (4, 5, 1), (0, 0, 1)])
def test_what_cannot_be_is_refused(n, c, k):
    with pytest.raises(ValueError, match=f"pass@{k} of {c} successes in {n} games"):
        pass_at_k(n, c, k)


def test_tasks_count_alike_and_only_a_whole_success_passes():
    nearly = game((1.0, {"success": 0.9}))
    games = [[WON, LOST, LOST, nearly], [WON, WON, WON, WON]]
    assert mean_pass_at_k(games, [1, 2]) == {
        1: pytest.approx((0.25 + 1) / 2),
        2: pytest.approx((0.5 + 1) / 2),
    }


def test_games_that_broke_are_no_samples():
    # One task has two valid games of three, the other has none: pass@2 covers only the first task,
    # pass@3 covers none.
    games = [[WON, BROKE, LOST], [BROKE, BROKE, BROKE]]
    assert mean_pass_at_k(games, [1, 2, 3]) == {1: 0.5, 2: 1.0}


def test_where_nobody_says_success_nothing_passes_or_fails():
    assert mean_pass_at_k([[game((1.0, {}))]], [1]) == {}


def test_the_powers_of_two_up_to_n():
    assert [powers_of_two(n) for n in (0, 1, 2, 3, 8, 9)] == [
        [],
        [1],
        [1, 2],
        [1, 2],
        [1, 2, 4, 8],
        [1, 2, 4, 8],
    ]
