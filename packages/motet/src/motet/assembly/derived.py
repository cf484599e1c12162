"""Options of the algorithm that a config may leave out: a run derives them, and says from what.

A key that the config or the algorithm's row sets is kept.
"""

from typing import Any

from motet.algorithms import compares_samples
from motet.config.schema import RunConfig
from motet.core import Environment


def with_groups(config: RunConfig) -> tuple[RunConfig, list[str]]:
    """Return the config with `algorithm.group_by`, and what was derived.

    If a later turn has one sample per Round, a Round has nothing to compare.
    """
    samples = list(config.rollout.samples)
    one_each = compares_samples(config.algorithm) and samples[0] > 1 and min(samples) < 2
    if not one_each:
        return _with(config, "group_by", "round", "")
    why = f"rollout.samples {samples} has one sample per Round after turn 1"
    return _with(config, "group_by", "task", why)


def with_rewards_at_end(
    config: RunConfig, environment: Environment[Any]
) -> tuple[RunConfig, list[str]]:
    """Return the config with `algorithm.repeat_last_reward`, and what was derived."""
    played = len(config.rollout.samples) > 1 and config.algorithm.returns == "tree"
    if not (environment.rewards_at_end and played):
        return _with(config, "repeat_last_reward", True, "")
    why = f"{type(environment).__name__} rewards only the end of an episode (rewards_at_end)"
    return _with(config, "repeat_last_reward", False, why)


def _with(config: RunConfig, key: str, value: Any, why: str) -> tuple[RunConfig, list[str]]:
    """Set the key if nobody has. Nothing is said without a reason."""
    algorithm = config.algorithm
    if key in algorithm.model_fields_set:
        return config, []
    changed = config.model_copy(update={"algorithm": algorithm.model_copy(update={key: value})})
    written = str(value).lower() if isinstance(value, bool) else value
    return changed, [f"algorithm.{key}: {written}, because {why}"] if why else []
