"""The named algorithms: the whole zoo on one screen. A row is a record; the trainer never asks for its name.

An algorithm of one's own is a row of one's own: `ALGORITHMS["mine"] = Algorithm(...)`, or `algorithm: {name: ./mine.py:mine}`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.credit.baselines import BASELINES
from motet.errors import ConfigError
from motet.losses import POLICY_LOSSES
from motet.plugins import is_reference, load_object, nearest
from motet.settings import Algorithm, Plan

ALGORITHMS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        # CoMLRL (arXiv 2508.04652): the joint reward, no std, sequence sum, no KL
        Algorithm(name="mareinforce", baseline="none"),
        Algorithm(name="magrpo", baseline="group_mean"),
        Algorithm(name="marloo", baseline="leave_one_out"),
        Algorithm(name="maremax", baseline="group_max"),
        # ReMax (arXiv 2310.10505): one greedy path per task
        Algorithm(name="remax", baseline="greedy_path", compare="task"),
        # GRPO (arXiv 2402.03300) in Dr. GRPO's form (2503.20783): magrpo with one agent
        Algorithm(name="grpo", baseline="group_mean"),
    )
}


def resolve(name: str, overrides: Mapping[str, Any], folder: Path = Path()) -> Algorithm:
    """The row called `name` (or the Algorithm at `module:NAME` or `./file.py:NAME`) with single fields replaced.

    Raises: ConfigError for an unknown name; pydantic's ValidationError for overrides that make no sense together.
    """
    row = load_object(name, folder) if is_reference(name) else ALGORITHMS.get(name)
    if not isinstance(row, Algorithm):
        raise ConfigError(
            f"algorithm.name is {name!r}{nearest(name, ALGORITHMS)}; expected one of {', '.join(ALGORITHMS)}, "
            f"or the Algorithm at package.module:NAME or ./file.py:NAME"
        )
    algorithm = Algorithm.model_validate({**row.model_dump(), "name": row.name, **overrides})
    for field, table in (("baseline", BASELINES), ("policy_loss", POLICY_LOSSES)):
        value = getattr(algorithm, field)
        if value not in table:
            raise ConfigError(
                f"algorithm.{field} is {value!r}{nearest(value, table)}; expected one of {', '.join(table)}"
            )
    return algorithm


def check_plan(algorithm: Algorithm, plan: Plan, agents: int) -> None:
    """Refuses a plan under which the algorithm has nothing to compare, or compares what is not alike.

    Raises: ConfigError naming both values.
    """
    samples = list(plan.samples)
    if BASELINES[algorithm.baseline].siblings and algorithm.compare == "round":
        for turn, count in enumerate(samples):
            if count < 2:
                raise ConfigError(
                    f"rollout.samples {samples} gives groups of {count} at turn {turn + 1}, but baseline "
                    f"{algorithm.baseline} compares siblings of one Round: sample at least 2 at every turn, "
                    f"or set algorithm.compare: task"
                )
    if BASELINES[algorithm.baseline].siblings and samples[0] < 2 and algorithm.compare == "task":
        raise ConfigError(
            f"rollout.samples {samples} gives one path per task, but baseline {algorithm.baseline} compares paths: "
            f"sample at least 2 at turn 1, or use baseline: none"
        )
    if (algorithm.returns != "tree" or algorithm.baseline == "greedy_path") and not plan.straight:
        what = f"returns {algorithm.returns}" if algorithm.returns != "tree" else "baseline greedy_path"
        raise ConfigError(f"{what} needs straight paths, got rollout.samples {samples}: use [G, 1, ...]")
    if algorithm.returns != "tree" and plan.pairing == "crossed" and agents > 1 and len(samples) > 1:
        raise ConfigError(f"returns {algorithm.returns} needs straight paths, got rollout.pairing crossed: use aligned")
    if algorithm.name == "grpo" and agents != 1:
        raise ConfigError(f"algorithm grpo trains one agent, the team has {agents}: use magrpo")
