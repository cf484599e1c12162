import pytest

from motet.evaluation.intervals import Estimate, bootstrap, estimate, paired_difference


def test_values_that_are_all_alike_leave_no_doubt():
    assert bootstrap([0.5] * 7, seed=0) == Estimate(0.5, 0.5, 0.5)
    assert bootstrap([3.0], seed=0) == Estimate(3.0, 3.0, 3.0)


def test_two_tasks_could_have_been_either_one_twice():
    """A resample contains the first task twice with probability 1/4, and the second too. So the 95
    % interval reaches from one value to the other."""
    assert bootstrap([0.0, 1.0], seed=0) == Estimate(0.5, 0.0, 1.0)


def test_the_interval_of_a_share_is_the_textbook_one():
    found = bootstrap([1.0] * 30 + [0.0] * 70, seed=1)
    half = 1.96 * (0.3 * 0.7 / 100) ** 0.5
    assert found.mean == pytest.approx(0.3)
    assert found.low == pytest.approx(0.3 - half, abs=0.015)
    assert found.high == pytest.approx(0.3 + half, abs=0.015)


def test_a_seed_gives_the_same_interval_again():
    values = [k % 7 / 7 for k in range(40)]
    assert bootstrap(values, seed=3) == bootstrap(values, seed=3)
    assert bootstrap(values, seed=3) != bootstrap(values, seed=4)


def test_no_values_are_no_mean():
    with pytest.raises(ValueError, match="no values to resample"):
        bootstrap([], seed=0)
    assert estimate([None, None], seed=0) is None
    assert estimate([None, 2.0], seed=0) == Estimate(2.0, 2.0, 2.0)


def test_a_lead_is_counted_task_by_task():
    """The first is ahead by 0.25 in every task. A task without one of the values does not count."""
    other = [0.0, 0.25, 0.5, 0.75, None, 1.0]
    first = [0.25, 0.5, 0.75, 1.0, 5.0, None]
    assert paired_difference(first, other, seed=0) == Estimate(0.25, 0.25, 0.25)
    assert paired_difference([None], [1.0], seed=0) is None
