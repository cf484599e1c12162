"""Rewards: (task, texts) -> a score and its named terms. Code, answers and texts are judged here; games ask for the judgement."""

from motet.rewards.reward import Reward, RewardLike, Score

__all__ = ["Reward", "RewardLike", "Score"]
