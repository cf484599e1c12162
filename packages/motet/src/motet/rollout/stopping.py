"""When a branch or a whole Round ends: the environment, the stop rule, or the turn limit."""

from collections.abc import Mapping
from dataclasses import replace

from motet.core import End, Outcome, Transition
from motet.settings import Plan


def end_of(plan: Plan, turn: int, led_to: Transition) -> End | None:
    """Return why a branch ends after this turn (from 0); None if it goes on."""
    if led_to.done:
        return "done"
    if plan.stop_by == "branch" and _reaches(plan, mean_reward(led_to.rewards)):
        return "stopped"
    return "limit" if turn == len(plan.samples) - 1 else None


def stopped_together(plan: Plan, outcomes: list[Outcome]) -> list[Outcome]:
    """With `stop_by: round`, end all joint actions of a Round whose mean reward reaches
    `stop_at_reward`."""
    means = [mean_reward(outcome.rewards) for outcome in outcomes if outcome.fault is None]
    if plan.stop_by != "round" or not means or not _reaches(plan, sum(means) / len(means)):
        return outcomes
    return [
        outcome if outcome.fault is not None else replace(outcome, end="stopped")
        for outcome in outcomes
    ]


def _reaches(plan: Plan, reward: float) -> bool:
    return plan.stop_at_reward is not None and reward >= plan.stop_at_reward


def mean_reward(rewards: Mapping[str, float]) -> float:
    """Return the mean reward of all agents."""
    return sum(rewards.values()) / len(rewards)
