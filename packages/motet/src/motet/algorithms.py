"""The table of named algorithms.

An algorithm is only a set of options. The trainer never checks its name.

To add your own algorithm, write `ALGORITHMS["mine"] = Algorithm(...)`, or set
`algorithm: {name: ./mine.py:mine}` in a config.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motet.errors import ConfigError
from motet.settings import (
    Algorithm,
    CispoLoss,
    ClippedLoss,
    CriticCredit,
    GroupCredit,
    KlInLoss,
    KlInReward,
    NoCredit,
    OwnLoss,
    PairCredit,
    Plan,
)
from motet.settings.flat_keys import laid_on, lifted
from motet.settings.rollout import Defaulting
from motet.user_code.objects import is_missing
from motet.user_code.plugins import is_reference, load_function, load_object, nearest

if TYPE_CHECKING:
    from motet.credit.baselines import Baseline, Comparison
    from motet.credit.own import CreditFunction

BASELINE_NAMES = (
    "none", "group_mean", "leave_one_out", "leave_one_agent_out", "difference", "shapley",
    "group_max", "greedy_path", "moving_average",
)  # fmt: skip
"""The names of the table in `credit.baselines`. A config with only these and the losses of the
package is read without torch, whose import takes seconds."""
PPO: dict[str, Any] = {
    "loss": ClippedLoss(kind="clipped_surrogate"),
    "epochs": 4,
    "reduce": "token_mean",
}
"""Options of all algorithms with clipped updates, from PPO (Schulman et al. 2017, arXiv 1707.06347)
and its reference code. Their critics whiten advantages and clip values."""
ALGORITHMS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        # CoMLRL (arXiv 2508.04652): joint reward, sequence sum, no KL. No division by the std,
        # which comlrl 1.4.3 has by default
        Algorithm(name="mareinforce", credit=GroupCredit(baseline="none")),
        Algorithm(name="magrpo", credit=GroupCredit(baseline="group_mean")),
        Algorithm(name="marloo", credit=GroupCredit(baseline="leave_one_out")),
        Algorithm(name="maremax", credit=GroupCredit(baseline="group_max")),
        # COMA (arXiv 1705.08926) from samples: the joint actions of others stay the same
        Algorithm(name="coma", credit=GroupCredit(baseline="leave_one_agent_out")),
        # Difference rewards (Wolpert and Tumer 2001): less what the team earns without the agent
        Algorithm(name="difference", credit=GroupCredit(baseline="difference")),
        # CCPO (arXiv 2603.21563): the same as GRPO compares it
        Algorithm(name="ccpo", credit=GroupCredit(baseline="difference", scale="std")),
        # Shapley values of each joint action over the sets of agents (arXiv 1907.05707)
        Algorithm(name="shapley", credit=GroupCredit(baseline="shapley")),
        # C3 (arXiv 2603.06859): leave-one-out among samples of one context, with `expand: replay`
        Algorithm(name="c3", credit=GroupCredit(baseline="leave_one_out")),
        # Dr. MAS (arXiv 2602.08847): advantages are scaled for each agent over the whole step
        Algorithm(name="dr_mas", credit=GroupCredit(baseline="group_mean", scale="agent_std")),
        # AT-GRPO (arXiv 2510.11062): siblings of one agent at one turn, by the reward of the turn
        Algorithm(
            name="at_grpo",
            credit=GroupCredit(baseline="group_mean", scale="std", group_by="round"),
            returns="current",
        ),
        # GDPO (arXiv 2601.05242): each term of the reward is scaled before they are added
        Algorithm(name="gdpo", credit=GroupCredit(baseline="group_mean", scale="std")),
        # Dr. MAMR (arXiv 2511.02303): what changes the next words of others is worth more
        Algorithm(
            name="dr_mamr", credit=GroupCredit(baseline="group_mean", scale="std", influence=0.1)
        ),
        # RAE (SPIRAL, arXiv 2506.24119): a running mean for each role, for games against each other
        Algorithm(
            name="rae",
            credit=GroupCredit(baseline="moving_average", average_decay=0.95),
            reward_sharing="own",
        ),
        # ReMax (arXiv 2310.10505): the baseline is the return of one greedy path per task
        Algorithm(name="remax", credit=GroupCredit(baseline="greedy_path", group_by="task")),
        # GRPO (arXiv 2402.03300) in Dr. GRPO's form (2503.20783): magrpo with one agent
        Algorithm(name="grpo", credit=GroupCredit(baseline="group_mean")),
        # GSPO (arXiv 2507.18071): one ratio per completion, clipped to a very small range
        Algorithm(
            name="gspo",
            credit=GroupCredit(baseline="group_mean", scale="std"),
            loss=ClippedLoss(kind="gspo", clip_low=3e-4, clip_high=4e-4),
            reduce="sequence_mean",
            minibatches=4,
        ),
        # CISPO (arXiv 2506.13585): clipped weights in place of clipped updates, no lower bound; the
        # upper bound 5 is that of arXiv 2510.13786
        Algorithm(
            name="cispo",
            credit=GroupCredit(baseline="group_mean", scale="std"),
            loss=CispoLoss(clip_low=1.0, clip_high=4.0),
            reduce="token_mean",
            minibatches=4,
        ),
        # On-policy distillation (arXiv 2306.13649, without exchanged data): the reverse KL from a
        # teacher on the student's own samples, and no reward
        Algorithm(name="distillation", credit=NoCredit(), kl=KlInLoss(coefficient=1.0)),
        # CoMLRL's MADPO (comlrl 1.4.3): DPO over joint actions, without a reference
        Algorithm(name="madpo", credit=PairCredit()),
        # CoMLRL's actor-critics (arXiv 2601.21972): TD(λ), the critic reads the own or the joint
        # observation
        Algorithm(name="iac", credit=CriticCredit(view="own", gae_lambda=0.95)),
        Algorithm(name="maac", credit=CriticCredit(view="joint", gae_lambda=0.95)),
        # IPPO (arXiv 2011.09533) and MAPPO (2103.01955): the same with clipped updates
        Algorithm(
            name="ippo",
            credit=CriticCredit(view="own", gae_lambda=0.95, whiten=True, clip_value=0.2),
            **PPO,
        ),
        Algorithm(
            name="mappo",
            credit=CriticCredit(view="joint", gae_lambda=0.95, whiten=True, clip_value=0.2),
            **PPO,
        ),
        # MAPoRL (arXiv 2502.18439): PPO over the tokens of each turn; returns include all agents'
        # later scores
        Algorithm(
            name="maporl",
            credit=CriticCredit(
                view="own", scope="token", gae_lambda=0.95, whiten=True, clip_value=0.2
            ),
            kl=KlInReward(coefficient=0.002),
            returns="discounted_sum",
            reward_sharing="all",
            gamma=0.3,
            minibatches=8,
            **PPO,
        ),
    )
}


def resolve(name: str, overrides: Mapping[str, Any], folder: Path = Path()) -> Algorithm:
    """Return a named algorithm with some fields replaced, and of `credit`, `loss` and `kl` some of
    their fields. Another kind of these takes the place of the whole.

    Fields that neither the row nor `overrides` sets are not in its `model_fields_set`.

    `name` is a key of `ALGORITHMS`, or a reference `module:NAME` or `./file.py:NAME` to an
    Algorithm.

    Raises: ConfigError for an unknown name; pydantic's ValidationError if the fields contradict
    each other.
    """
    row = load_object(name, folder) if is_reference(name) else ALGORITHMS.get(name)
    if not isinstance(row, Algorithm):
        raise ConfigError(
            f"algorithm.name is {name!r}{nearest(name, ALGORITHMS)}; expected one of "
            f"{', '.join(ALGORITHMS)}, "
            f"or the Algorithm at package.module:NAME or ./file.py:NAME"
        )
    said = row.model_dump(exclude_unset=True)
    algorithm = Algorithm.model_validate(laid_on({**said, "name": row.name}, lifted(overrides)))
    if algorithm.group is not None:
        _check_baseline(algorithm.group.baseline, folder)
    _check_loss(algorithm, folder)
    return algorithm


def check_names(algorithm: Algorithm) -> None:
    """Check the names of the baseline and the policy loss. References are not loaded.

    Raises: ConfigError for an unknown name.
    """
    if algorithm.group is not None and not is_reference(algorithm.group.baseline):
        _check_baseline(algorithm.group.baseline, Path())
    if not is_reference(algorithm.loss.kind):
        _check_loss(algorithm, Path())


def _check_loss(algorithm: Algorithm, folder: Path) -> None:
    """Check the policy loss; add the user's own to the table. Raises: ConfigError."""
    name = algorithm.loss.kind
    if not isinstance(algorithm.loss, OwnLoss):
        _check_importance_sampling(algorithm, name != "policy_gradient")
        return
    from motet.losses import POLICY_LOSSES, PolicyLoss, checked_policy_loss

    if is_missing(name):
        return  # only training needs it, and refuses to begin
    if is_reference(name) or name not in POLICY_LOSSES:  # its file may have been edited
        found = _own("loss.kind", name, POLICY_LOSSES, PolicyLoss, folder)
        POLICY_LOSSES[name] = checked_policy_loss(found, f"loss {name}")
    updates = algorithm.epochs * algorithm.minibatches
    several = updates > 1 and algorithm.pairs is None
    if several and POLICY_LOSSES[name].ratio is None:
        raise ConfigError(
            f"loss {name} has no ratio, so it allows one gradient step per "
            f"sample set, got epochs {algorithm.epochs} x minibatches {algorithm.minibatches}: "
            f"give a motet.losses.PolicyLoss with a ratio, or set both to 1"
        )
    _check_importance_sampling(algorithm, POLICY_LOSSES[name].ratio is not None)


def _check_importance_sampling(algorithm: Algorithm, has_ratio: bool) -> None:
    """Raises: ConfigError if importance weights would count the ratio of the loss twice."""
    mode = algorithm.importance_sampling
    token = algorithm.importance_ratio == "token"
    if has_ratio and token and mode in ("truncate", "mask"):
        raise ConfigError(
            f"algorithm.importance_sampling is {mode} with importance_ratio token, but loss.kind "
            f"{algorithm.loss.kind} already has the ratio of each token: use importance_ratio: "
            "joint, or loss.kind: policy_gradient"
        )


def _check_baseline(name: str, folder: Path) -> None:
    """Check the baseline; add the user's own to the table. Raises: ConfigError."""
    if name in BASELINE_NAMES:
        return
    from motet.credit.baselines import BASELINES, Baseline
    from motet.credit.own import checked

    if is_missing(name) or (name in BASELINES and not is_reference(name)):
        return
    found = _own("credit.baseline", name, BASELINES, Baseline, folder)
    # A function without further facts compares a sample with others of its group.
    own = found if isinstance(found, Baseline) else Baseline(found, siblings=True)

    def samples(comparison: "Comparison") -> int:
        return len(comparison.returns_S)

    BASELINES[name] = replace(own, of=checked(own.of, f"baseline {name}", samples))


def _own(field: str, name: str, table: Mapping[str, Any], kind: type, folder: Path) -> Any:
    """Return the user's own function or entry of a table. Raises: ConfigError."""
    if not is_reference(name):
        raise ConfigError(
            f"algorithm.{field} is {name!r}{nearest(name, table)}; expected one of "
            f"{', '.join(table)}, or a function at package.module:NAME or ./file.py:NAME"
        )
    found = load_object(name, folder)
    if not isinstance(found, kind) and not callable(found):
        raise ConfigError(
            f"algorithm.{field} is {name!r} of type {type(found).__name__}; expected a "
            f"function or a {kind.__name__}"
        )
    return found


def credit_function(name: str, folder: Path = Path()) -> "CreditFunction":
    """Return the user's own credit function of this name, with its result checked.

    Raises: ConfigError if there is none.
    """
    from motet.credit.own import CheckedCredit

    key = "algorithm.credit.function"
    if not is_reference(name):
        raise ConfigError(
            f"{key} is {name!r}; expected a function at package.module:NAME or ./file.py:NAME"
        )
    found = load_function(name, key, "a function of a motet.CreditStep", folder)
    return CheckedCredit(found, f"credit function {name}")


def _baseline(group: GroupCredit) -> "Baseline":
    from motet.credit.baselines import baseline_of

    return baseline_of(group.baseline)


def plays_greedy_path(algorithm: Algorithm) -> bool:
    """Return whether the credit reads one greedy path of each task."""
    return algorithm.group is not None and algorithm.group.baseline == "greedy_path"


def plays_absent(algorithm: Algorithm) -> Defaulting:
    """Return whose defaults are played in place of samples, because the credit reads them."""
    group = algorithm.group
    if group is None:
        return "none"
    absent = _baseline(group).absent
    return "one" if absent == "none" and group.influence > 0.0 else absent


def compares_samples(algorithm: Algorithm) -> bool:
    """Return whether advantages depend on the other samples of a group."""
    group = algorithm.group
    return group is not None and (_baseline(group).siblings or group.scale == "std")


def check_plan(algorithm: Algorithm, plan: Plan, agents: int) -> None:
    """Check that the plan gives the algorithm groups that it can compare.

    Raises: ConfigError that names the two settings that do not fit together.
    """
    if algorithm.pairs is not None:
        _check_pairs(algorithm.pairs, plan)
    if algorithm.group is not None:
        _check_groups(algorithm.group, plan)
        _check_influence(algorithm.group, plan, agents)
    if plan.refill:
        _check_refill(algorithm, plan)
    if plan.expand == "replay":
        _check_replay(algorithm, plan)
    if plan.prunes:
        _check_pruning(algorithm, plan)
    if algorithm.stopped_weight != 1.0 and plan.stop_at_reward is None:
        raise ConfigError(
            f"algorithm.stopped_weight {algorithm.stopped_weight} is for turns that a reward ends, "
            f"got rollout.stop_at_reward null: set it, or drop stopped_weight"
        )
    if algorithm.name == "gdpo" and algorithm.group is not None and not algorithm.group.terms:
        raise ConfigError(
            "algorithm gdpo learns from several terms of the environment or the reward, got none: "
            "set algorithm.credit.terms, such as {success: 1, short: 0.2}"
        )
    if algorithm.name == "c3" and plan.expand != "replay" and len(plan.samples) > 1:
        raise ConfigError(
            f"algorithm c3 replays contexts, got rollout.expand {plan.expand}: set rollout.expand: "
            "replay, or use marloo, which has the same baseline"
        )
    if algorithm.name == "grpo" and agents != 1:
        raise ConfigError(f"algorithm grpo trains one agent, but the team has {agents}: use magrpo")


def _check_pairs(pairs: PairCredit, plan: Plan) -> None:
    samples = list(plan.samples)
    if max(samples) < 2:
        raise ConfigError(
            f"rollout.samples {samples} gives one joint action per Round, but credit.kind pairs "
            "compares two: use at least 2 samples at one turn"
        )
    odd = any(count % 2 for count in samples)
    if pairs.compare == "halves" and (plan.pairing != "aligned" or odd):
        raise ConfigError(
            "algorithm.credit.compare halves compares the g-th joint actions of two halves of "
            f"a Round, got rollout.samples {samples} with pairing {plan.pairing}: use even numbers "
            "and pairing: aligned"
        )


def _check_groups(group: GroupCredit, plan: Plan) -> None:
    baseline, samples, comparing = _baseline(group), list(plan.samples), _comparing(group)
    grouped = baseline.siblings or group.scale == "std"
    for turn, count in enumerate(samples):
        if grouped and group.group_by == "round" and count < 2:
            raise ConfigError(
                f"rollout.samples {samples} gives groups of {count} at turn {turn + 1}, but "
                f"{comparing} compares samples of one Round: use at least 2 samples at every "
                "turn, or set algorithm.credit.group_by: task"
            )
    if grouped and samples[0] < 2 and group.group_by == "task":
        raise ConfigError(
            f"rollout.samples {samples} gives one path per task, but {comparing} compares paths: "
            "use at least 2 samples at turn 1, or use baseline: none"
        )
    if group.baseline == "greedy_path" and not plan.straight:
        raise ConfigError(
            f"baseline greedy_path needs 1 sample after turn 1, got rollout.samples {samples}: "
            "use [G, 1, ...]"
        )
    if baseline.crossed and plan.pairing != "crossed":
        raise ConfigError(
            f"baseline {group.baseline} compares joint actions that differ in one agent only, "
            f"got rollout.pairing {plan.pairing}: set rollout.pairing: crossed"
        )


def _check_influence(group: GroupCredit, plan: Plan, agents: int) -> None:
    if group.influence == 0.0:
        return
    if agents == 1 or len(plan.samples) == 1:
        raise ConfigError(
            f"algorithm.credit.influence {group.influence} is for what other agents say in the "
            f"next turn, got {agents} agent(s) and rollout.samples {list(plan.samples)}: play "
            "several turns with several agents, or set influence: 0"
        )
    if plan.prunes:
        raise ConfigError(
            f"algorithm.credit.influence {group.influence} needs the next Round of every joint "
            f"action, but rollout.expand {plan.expand} does not play all of them: use expand: all "
            "or replay, or set influence: 0"
        )


def _check_replay(algorithm: Algorithm, plan: Plan) -> None:
    if not compares_samples(algorithm):
        group = algorithm.group
        got = "no groups" if group is None else f"baseline {group.baseline}"
        raise ConfigError(
            f"rollout.expand replay is for credit that compares samples in one context, got {got}: "
            "set algorithm.credit.baseline=leave_one_out, or rollout.expand=all"
        )
    if min(plan.samples) < 2:
        raise ConfigError(
            f"rollout.expand replay compares samples at every turn, got rollout.samples "
            f"{list(plan.samples)}: use at least 2 at each, or expand: all"
        )


def _check_refill(algorithm: Algorithm, plan: Plan) -> None:
    group = algorithm.group
    if group is None or not _baseline(group).siblings:
        got = "no groups" if group is None else f"baseline {group.baseline}"
        raise ConfigError(
            f"rollout.refill {plan.refill} is for groups that teach nothing because all their "
            f"samples ended alike, got {got}: use a baseline that compares samples, such as "
            "group_mean, or drop refill"
        )


def _comparing(group: GroupCredit) -> str:
    return f"baseline {group.baseline}" if group.scale == "none" else f"scale {group.scale}"


def cautions(algorithm: Algorithm, plan: Plan, agents: int) -> list[str]:
    """Return warnings about combinations that are allowed but bias the gradient or drown it."""
    found = []
    group = algorithm.group or GroupCredit()
    if algorithm.kl and algorithm.kl.kind == "reward" and group.scale == "std":
        found.append(
            "algorithm.credit.scale std with kl.kind reward: a group whose rewards are equal is "
            "compared by its KL alone, and that is divided by its small deviation. Use kl.kind "
            "loss, or scale: none"
        )
    pooled = group.group_by == "task" and plan.expand != "replay"
    rounds = plan.rounds(agents) if pooled else (1,) * len(plan.samples)
    groups = [count * each for count, each in zip(rounds, plan.samples, strict=True)]
    if group.baseline == "group_mean" and len(set(groups)) > 1:
        shares = ", ".join(f"{size - 1}/{size}" for size in groups)
        found.append(
            f"baseline group_mean compares groups of {', '.join(map(str, groups))} at turns 1 to "
            f"{len(groups)}, which weights the gradients of the turns by {shares}: set "
            "algorithm.credit.baseline=leave_one_out, or equal group sizes"
        )
    if _baseline(group).absent == "one" and plan.pairing == "crossed" and agents > 1:
        found.append(
            f"baseline {group.baseline} with rollout.pairing crossed compares as leave_one_out "
            "does, because all samples of an agent meet the same partners, and plays joint actions "
            "without agents for nothing: set pairing: aligned, or use marloo"
        )
    if plan.prunes and algorithm.pruned == "sibling_mean" and algorithm.returns != "current":
        found.append(
            f"algorithm.pruned sibling_mean with rollout.expand {plan.expand} is biased, as "
            "published: later rewards have little or no effect on earlier turns. Use expand: all, "
            "or, if baseline and scale allow it, expand: random with pruned: reweight"
        )
    return found


def _check_pruning(algorithm: Algorithm, plan: Plan) -> None:
    """Check that a plan which prunes joint actions fits the algorithm.

    Raises: ConfigError if the algorithm reads or compares continuations that are not played, or if
    no unbiased estimate exists.
    """
    group = algorithm.group or GroupCredit()
    comparing = _comparing(group)
    if compares_samples(algorithm) and min(plan.samples[1:]) < 2:
        raise ConfigError(
            f"rollout.expand {plan.expand} leaves one path after turn 1, so {comparing} cannot "
            f"compare samples with rollout.samples {list(plan.samples)}: use expand: all, or at "
            "least 2 samples at every turn"
        )
    looks_ahead = algorithm.returns in ("discounted_sum", "last")
    if looks_ahead or algorithm.incentives.any:
        reading = (
            f"algorithm.returns {algorithm.returns}" if looks_ahead else "algorithm.incentives"
        )
        raise ConfigError(
            f"{reading} needs the next Round of every joint action, but rollout.expand "
            f"{plan.expand} does not play all of them: use expand: all"
        )
    if algorithm.pruned == "sibling_mean" or algorithm.returns == "current":
        return
    if plan.expand == "best":
        raise ConfigError(
            "algorithm.pruned reweight needs an unbiased choice, but rollout.expand best "
            "continues only from the best joint action: use expand: random or all, or pruned: "
            "sibling_mean, which is biased as in the published trainer"
        )
    linear = _baseline(group).linear
    if not linear or group.scale != "none":
        raise ConfigError(
            "rollout.expand random with algorithm.pruned reweight needs advantages that are "
            "linear in the returns, got "
            f"{comparing if linear else f'baseline {group.baseline}'}: use another baseline "
            "and scale: none, expand: all, or pruned: sibling_mean, which is biased as in the "
            "published trainer"
        )
