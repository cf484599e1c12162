"""Options of the algorithm that a config may leave out: a run derives them, and says from what.

A key that the config or the algorithm's row sets is kept.
"""

from typing import Any

from motet.algorithms import compares_samples
from motet.config.schema import RunConfig
from motet.core import Environment, class_name
from motet.environments.mixture import Mixture
from motet.environments.tool_use import ToolGame


def with_groups(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Return the config with `algorithm.credit.group_by`, and what was derived.

    If a later turn has one sample per Round, a Round has nothing to compare.
    """
    algorithm, samples = config.algorithm, list(config.rollout.samples)
    if "credit.group_by" not in algorithm.underived:
        return config, []
    one_each = compares_samples(algorithm) and samples[0] > 1 and min(samples) < 2
    chosen = "task" if one_each else "round"
    credit = algorithm.credit.model_copy(update={"group_by": chosen})
    why = f"rollout.samples {samples} has one sample per Round after turn 1"
    said = [f"algorithm.credit.group_by: {chosen}, because {why}"] if one_each else []
    return _with(config, "credit", credit), said


def with_rewards_at_end(
    config: RunConfig, environment: Environment[Any]
) -> tuple[RunConfig, list[str]]:
    """Return the config with `algorithm.repeat_last_reward`, and what was derived."""
    if "repeat_last_reward" not in config.algorithm.underived:
        return config, []
    played = len(config.rollout.samples) > 1 and config.algorithm.returns == "tree"
    at_end = environment.rewards_at_end and played
    why = (
        "the calls of tools take turns, so games differ in length"
        if isinstance(environment, ToolGame)
        else "games of a mixture differ in length, or are rewarded at their end only"
        if class_name(environment) == Mixture.__name__
        else f"{class_name(environment)} rewards only the end of an episode (rewards_at_end)"
    )
    said = [f"algorithm.repeat_last_reward: false, because {why}"] if at_end else []
    return _with(config, "repeat_last_reward", not at_end), said


def _with(config: RunConfig, key: str, value: Any) -> RunConfig:
    algorithm = config.algorithm.model_copy(update={key: value})
    return config.model_copy(update={"algorithm": algorithm})
