"""From the rewards of another package, which may have any range, to the success of an episode."""

from collections.abc import Collection


def success_of(rewards: Collection[float]) -> float:
    """Return the mean of what the agents earned, at least 0 and at most 1.

    Where one agent wins what another one loses, this is 0: the rewards say who won.
    """
    return min(1.0, max(0.0, sum(rewards) / len(rewards))) if rewards else 0.0
