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

PPO: dict[str, Any] = {
    "policy_loss": "clipped_surrogate",
    "epochs": 4,
    "whiten": True,
    "clip_value": 0.2,
    "reduce": "token_mean",
}
"""What the clipped ones share: Schulman et al. 2017 (arXiv 1707.06347), and the details of its reference code."""
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
        # CoMLRL's actor-critics (arXiv 2601.21972): TD(λ), a critic on the own or on the joint observation
        Algorithm(name="iac", critic_view="own", trace=0.95),
        Algorithm(name="maac", critic_view="joint", trace=0.95),
        # IPPO (arXiv 2011.09533) and MAPPO (2103.01955): the same with clipped updates
        Algorithm(name="ippo", critic_view="own", trace=0.95, **PPO),
        Algorithm(name="mappo", critic_view="joint", trace=0.95, **PPO),
        # MAPoRL (arXiv 2502.18439): PPO over the tokens of each turn, returns that look at everyone's later scores
        Algorithm(
            name="maporl",
            critic_view="own",
            scope="token",
            trace=0.95,
            returns="discounted_sum",
            discount=0.3,
            minibatches=8,
            kl_in="reward",
            kl_coefficient=0.002,
            **PPO,
        ),
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
    grouped = BASELINES[algorithm.baseline].siblings or algorithm.scale == "std"
    comparing = f"baseline {algorithm.baseline}" if algorithm.scale == "none" else f"scale {algorithm.scale}"
    if grouped and algorithm.compare == "round":
        for turn, count in enumerate(samples):
            if count < 2:
                raise ConfigError(
                    f"rollout.samples {samples} gives groups of {count} at turn {turn + 1}, but {comparing} "
                    f"compares siblings of one Round: sample at least 2 at every turn, or set algorithm.compare: task"
                )
    if plan.prunes:
        _check_pruning(algorithm, plan, grouped, comparing)
    if grouped and samples[0] < 2 and algorithm.compare == "task":
        raise ConfigError(
            f"rollout.samples {samples} gives one path per task, but {comparing} compares paths: "
            f"sample at least 2 at turn 1, or use baseline: none"
        )
    if algorithm.baseline == "greedy_path" and not plan.straight:
        raise ConfigError(f"baseline greedy_path needs straight paths, got rollout.samples {samples}: use [G, 1, ...]")
    if algorithm.name == "grpo" and agents != 1:
        raise ConfigError(f"algorithm grpo trains one agent, the team has {agents}: use magrpo")


def cautions(algorithm: Algorithm, plan: Plan, agents: int) -> list[str]:
    """What is allowed, and leads the gradient astray."""
    found = []
    rounds = plan.rounds(agents) if algorithm.compare == "task" else (1,) * len(plan.samples)
    groups = [count * each for count, each in zip(rounds, plan.samples, strict=True)]
    if algorithm.baseline == "group_mean" and len(set(groups)) > 1:
        shares = ", ".join(f"{size - 1}/{size}" for size in groups)
        found.append(
            f"baseline group_mean compares groups of {', '.join(map(str, groups))} at turns 1 to {len(groups)}, and so "
            f"weighs the turns' gradients by {shares}: use baseline leave_one_out, or groups of one size"
        )
    if plan.prunes and algorithm.pruned == "lend":
        found.append(
            f"algorithm.pruned lend under rollout.expand {plan.expand} is the published credit, and biased: later rewards "
            f"teach earlier turns little or nothing: use expand: all, or expand: random with pruned: reweight where "
            f"baseline and scale allow it"
        )
    return found


def _check_pruning(algorithm: Algorithm, plan: Plan, grouped: bool, comparing: str) -> None:
    """Raises: ConfigError where what is read or compared was not played, or no estimate would be unbiased."""
    if grouped and min(plan.samples[1:]) < 2:
        raise ConfigError(
            f"rollout.expand {plan.expand} leaves one path after turn 1, so with rollout.samples {list(plan.samples)} "
            f"{comparing} has nothing to compare: use expand: all, or at least 2 samples at every turn"
        )
    looks_ahead = algorithm.returns in ("discounted_sum", "last")
    if looks_ahead or algorithm.incentives.any:
        reading = f"algorithm.returns {algorithm.returns}" if looks_ahead else "algorithm.incentives"
        raise ConfigError(
            f"{reading} must read what came next, which rollout.expand {plan.expand} does not play for every "
            f"joint action: use expand: all"
        )
    if algorithm.pruned == "lend":
        return
    if plan.expand == "best":
        raise ConfigError(
            "rollout.expand best plays on from the best joint action only, which allows no unbiased "
            "estimate, got algorithm.pruned reweight: use expand: random or all, or pruned: lend, the "
            "published trainer's biased credit"
        )
    linear = BASELINES[algorithm.baseline].linear
    if not linear or algorithm.scale != "none":
        raise ConfigError(
            f"rollout.expand random with algorithm.pruned reweight needs advantages that are linear in "
            f"the returns, got {comparing if linear else f'baseline {algorithm.baseline}'}: use another "
            f"baseline and scale: none, expand: all, or pruned: lend, the published trainer's biased credit"
        )
