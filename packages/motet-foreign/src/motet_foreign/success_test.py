"""Success is the mean reward, from 0 to 1."""

import pytest

from motet_foreign.success import success_of


@pytest.mark.parametrize(
    ("rewards", "success"),
    [([1, -1], 0.0), ([0.5], 0.5), ([1, 0.5], 0.75), ([3, 1], 1.0), ([-1, -1], 0.0), ([], 0.0)],
)
def test_success_is_the_mean_of_the_rewards_within_its_bounds(rewards, success):
    assert success_of(rewards) == success
