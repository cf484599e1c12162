"""Intervals of rates: by hand, and their coverage by exact sums over binomials."""

from math import comb, sqrt

import pytest

from motet.evaluation.intervals import (
    Estimate,
    Z,
    effective_count,
    rate_difference,
    rate_of,
    student_t,
    wilson,
    within,
)


def coverage(rate: float, tasks: int, interval=wilson) -> float:
    """The probability that the interval of k successes in `tasks` tasks contains the rate."""
    total = 0.0
    for k in range(tasks + 1):
        low, high = interval(k / tasks, tasks)
        if low <= rate <= high:
            total += comb(tasks, k) * rate**k * (1.0 - rate) ** (tasks - k)
    return total


def test_none_of_four_is_up_to_a_half():
    # the upper end: Z²/(n + Z²) = 3.8415/7.8415
    assert wilson(0.0, 4) == (0.0, pytest.approx(0.48990, abs=1e-5))
    assert wilson(1.0, 4) == (pytest.approx(0.51010, abs=1e-5), 1.0)


def test_the_ends_are_where_the_normal_test_turns():
    # 8 of 10, as in textbooks: .490 to .943
    low, high = wilson(0.8, 10)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    for end in (low, high):
        assert abs(0.8 - end) == pytest.approx(Z * sqrt(end * (1.0 - end) / 10))


@pytest.mark.parametrize("tasks", [20, 100, 200])
def test_the_coverage_is_95_percent_on_average_and_rarely_far_below(tasks):
    rates = [k / 200 for k in range(1, 200)]
    covered = [coverage(rate, tasks) for rate in rates]
    assert 0.945 < sum(covered) / len(covered) < 0.965
    assert sum(one < 0.92 for one in covered) <= 0.05 * len(covered)


def test_a_high_rate_is_covered_that_the_bootstrap_misses():
    # of 100 tasks, with the ends of the bootstrap's distribution, which is binomial(100, k/100)
    def bootstrap_of(rate, tasks):
        chances = [comb(tasks, k) * rate**k * (1 - rate) ** (tasks - k) for k in range(tasks + 1)]
        below = [sum(chances[: k + 1]) for k in range(tasks + 1)]
        low = next(k for k, one in enumerate(below) if one >= 0.025)
        high = next(k for k, one in enumerate(below) if one >= 0.975)
        return low / tasks, high / tasks

    assert coverage(0.98, 100, bootstrap_of) < 0.91
    assert coverage(0.98, 100) > 0.94


def test_one_game_per_task_counts_the_tasks():
    values = [1.0, 0.0, 0.0, 1.0, 1.0]
    assert effective_count(values, 5) == 5
    found = rate_of([*values, None], 5, 0)
    assert found == Estimate(pytest.approx(0.6), *wilson(0.6, 5))


def test_games_of_a_task_that_always_end_alike_tell_no_more_than_one():
    assert effective_count([1.0, 0.0, 0.0, 1.0], games=400) == 4


def test_games_that_do_not_depend_on_their_task_count_one_by_one_up_to_the_doubt_of_the_variance():
    # 40 tasks of 4 games: 2 of 4 in each. No variance between the tasks: all games count.
    lowered = (Z / student_t(0.95, 39)) ** 2
    assert effective_count([0.5] * 40, 160) == pytest.approx(160 * lowered)
    # rates .25 and .75 in turn: p(1 − p)·tasks/variance = .25·40/.0625 = 160
    assert effective_count([0.25, 0.75] * 20, 160) == pytest.approx(160 * lowered)
    # .1 and .9: .25·40/.16 = 62.5 games
    assert effective_count([0.1, 0.9] * 20, 400) == pytest.approx(62.5 * lowered)
    # tasks of no success at all: one trial each, because their games may depend on each other
    assert effective_count([0.0] * 40, 160) == 40


@pytest.mark.parametrize("within", [0.3, 0.8, 0.98])
def test_clustered_rates_are_covered_whether_games_of_a_task_are_alike_or_not(within):
    """Six tasks of two games, of one of two kinds (as likely): alike, both games end alike with the
    rate; or independent. Every outcome (0, 1 or 2 successes per task) is enumerated."""
    alike = {0: 1 - within, 1: 0.0, 2: within}
    free = {0: (1 - within) ** 2, 1: 2 * within * (1 - within), 2: within**2}
    for chances in (alike, free):
        total = 0.0
        for zeros in range(7):
            for ones in range(7 - zeros):
                twos = 6 - zeros - ones
                chance = (
                    comb(6, zeros)
                    * comb(6 - zeros, ones)
                    * chances[0] ** zeros
                    * chances[1] ** ones
                    * chances[2] ** twos
                )
                values = [0.0] * zeros + [0.5] * ones + [1.0] * twos
                found = rate_of(values, 12, 0)
                total += chance * (found.low <= within <= found.high)
        assert total > 0.88, chances  # Wilson itself, 6 tasks of one game: from .88


def test_paired_differences_by_hand():
    # All of four against none: 1, and the lower end 1 − √(.4899² + .4899²)
    lead = rate_difference([1.0] * 4, [0.0] * 4, 4, 0)
    assert (lead.mean, lead.high) == (1.0, 1.0)
    assert lead.low == pytest.approx(1.0 - 0.48990 * sqrt(2.0), abs=1e-4)
    # Two teams that never fail: still in doubt, √(.4899² + 0²) on both sides.
    never = rate_difference([1.0] * 4, [1.0] * 4, 4, 0)
    assert (never.low, never.mean, never.high) == pytest.approx((-0.48990, 0.0, 0.48990), abs=1e-4)
    # The same successes in the same tasks: the correlation is (1 − .5)/1, with Newcombe's
    # correction. Wilson gives .5 ± .34996, so √(d² − d² + d²).
    same = rate_difference([1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], 4, 0)
    assert (same.low, same.mean, same.high) == pytest.approx((-0.34996, 0.0, 0.34996), abs=1e-4)
    assert rate_difference([None], [1.0], 1, 0) is None


def test_a_success_outside_0_to_1_is_no_rate():
    assert rate_of([3.0, 3.0], 2, 0) == Estimate(3.0, 3.0, 3.0)
    assert rate_of([None], 1, 0) is None


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (9, 2.262), (30, 2.042)],
)
def test_the_quantiles_are_those_of_the_tables(freedom, expected):
    assert student_t(0.95, freedom) == pytest.approx(expected, abs=5e-4)


def test_other_confidences():
    assert student_t(0.99, 4) == pytest.approx(4.604, abs=5e-4)
    assert student_t(0.5, 1) == pytest.approx(1.0), "half of Cauchy's distribution is in [-1, 1]"


def test_one_degree_is_cauchy_and_two_have_a_closed_form():
    assert within(1.0, 1) == pytest.approx(0.5)
    assert within(2.0, 2) == pytest.approx(2.0 / sqrt(2.0 + 4.0))
