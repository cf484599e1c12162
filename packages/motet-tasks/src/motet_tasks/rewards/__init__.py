"""Rewards: map a task and the agents' completions to a score with named terms.

This folder judges code, answers and texts. The environments call it.
"""

from motet.core import Score
from motet.environments.reward import Reward, RewardLike

__all__ = ["Reward", "RewardLike", "Score"]
