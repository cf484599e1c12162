"""Keys of a run config that cannot change what is learned. Training refuses them.

A key counts as written if its value is not the default; in `algorithm`, if it is not the value of
the named row, unless that has another kind of credit, loss or KL penalty. So a saved config, which
has all defaults, is read back, a config that extends another can set a key back, and a row may have
options that another choice turns off.

Some keys change nothing in a small run, but are not refused, because a larger run of the same
config needs them: the clip range with one update per step, and `repeat_last_reward` and `group_by`
with one turn.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.algorithms import compares_samples, resolve
from motet.batch.objectives import importance_mode
from motet.config.schema import RunConfig
from motet.config.sections import VLLM_KEYS
from motet.config.yaml import KeyPath, dotted, place_of
from motet.credit.baselines import baseline_of
from motet.errors import ConfigError
from motet.settings import Optimizer, Settings

# -------------------------------------------------------------------------------------------- rules


KeyRules: TypeAlias = Sequence[tuple[str, bool, str, str]]
"""(key, whether it has no effect, why, what to change so that it has one)."""


@dataclass(frozen=True)
class KeyWithoutEffect:
    """A key, its value, why the value has no effect, and how to fix it."""

    path: KeyPath
    value: Any
    why: str
    fix: str

    def __str__(self) -> str:
        return (
            f"{dotted(self.path)}: got {shown(self.value)}, which has no effect, because "
            f"{self.why}: {self.fix}"
        )


def keys_by_rules(
    rules: KeyRules, section: KeyPath, written: Settings, default: Settings
) -> Iterator[KeyWithoutEffect]:
    """Apply the rules to the keys of `written` that differ from `default`; the first that holds
    counts."""
    found: set[str] = set()
    for key, holds, why, instead in rules:
        value, usual = getattr(written, key), getattr(default, key)
        if holds and value != usual and key not in found:
            found.add(key)
            fix = f"leave it at {shown(usual)}, or {instead}"
            yield KeyWithoutEffect((*section, key), value, why, fix)


def replaced_keys(
    section: KeyPath, common: Settings, own: dict[str, Any]
) -> Iterator[KeyWithoutEffect]:
    """Yield the common keys that everyone replaces with their own. `own` is settings by name."""
    fields = [one.model_fields_set if one is not None else set() for one in own.values()]
    everywhere = set.intersection(*fields) if fields else set()
    why = f"it is replaced in {' and '.join(own)}"
    rules = [
        (key, key in everywhere, why, "drop one of those") for key in type(common).model_fields
    ]
    yield from keys_by_rules(rules, section, common, type(common)())


def shown(value: Any) -> str:
    """Return a value as in YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def refuse_keys_without_effect(config: RunConfig) -> None:
    """Refuse a training config with keys that have no effect.

    Raises: ConfigError with one line per key, which names the file and line of the key.
    """
    lines = []
    for key in keys_without_effect(config):
        place = place_of(config.places, key.path)
        lines.append(f"{place}: {key}" if place else str(key))
    if lines:
        raise ConfigError("\n".join(lines))


def keys_without_effect(config: RunConfig) -> list[KeyWithoutEffect]:
    """Return the written keys of a training config that cannot change what is learned."""
    return [
        *_of_algorithm(config),
        *_of_credit(config),
        *_of_kl(config),
        *_of_importance_sampling(config),
        *_of_turn_weights(config),
        *_of_incentives(config),
        *_of_plan(config),
        *_of_decode(config),
        *_of_optimizers(config),
        *_of_schedule(config),
        *_of_bounds(config),
        *_of_cluster(config),
    ]


def _of_algorithm(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    algorithm, plan = config.algorithm, config.rollout
    returns, samples = algorithm.returns, list(plan.samples)
    yield from keys_by_rules(
        (
            (
                "gamma",
                returns in ("last", "current"),
                f"returns: {returns} reads the score of one turn",
                "set returns: tree",
            ),
            ("gamma", len(samples) == 1, _plays_one(config), "play more turns"),
            (
                "repeat_last_reward",
                returns != "tree",
                f"returns: {returns} repeats no reward",
                "set returns: tree",
            ),
            (
                "pruned",
                not plan.prunes,
                f"rollout.expand: {plan.expand} with rollout.samples {samples} prunes nothing",
                "set rollout.expand: random and play more turns",
            ),
        ),
        ("algorithm",),
        algorithm,
        resolve(algorithm.name, {}),
    )


def _plays_one(config: RunConfig) -> str:
    return f"rollout.samples {list(config.rollout.samples)} plays one turn"


def _of_credit(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    algorithm = config.algorithm
    rules: KeyRules = ()
    if (group := algorithm.group) is not None:
        rules = (
            (
                "group_by",
                not compares_samples(algorithm),
                f"baseline: {group.baseline} compares no samples",
                "set baseline: group_mean",
            ),
            (
                "average_decay",
                group.baseline != "moving_average",
                "only baseline: moving_average keeps an average",
                "set baseline: moving_average",
            ),
        )
    elif (critic := algorithm.critic) is not None:
        turns = critic.scope == "turn" and algorithm.returns == "tree"
        one_turn = len(config.rollout.samples) == 1
        rules = (("gae_lambda", turns and one_turn, _plays_one(config), "play more turns"),)
    yield from _of_section("credit", rules, config)


def _of_kl(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    kl = config.algorithm.kl
    if kl is not None:
        fixed = "without a target the coefficient is fixed"
        yield from _of_section("kl", (("horizon", kl.target is None, fixed, "set target"),), config)


def _of_section(name: str, rules: KeyRules, config: RunConfig) -> Iterator[KeyWithoutEffect]:
    """Apply the rules to a section of the algorithm, compared with the row's if that is of the same
    kind, else with the defaults."""
    written = getattr(config.algorithm, name)
    row = getattr(resolve(config.algorithm.name, {}), name)
    usual = row if type(row) is type(written) else type(written).model_construct()
    yield from keys_by_rules(rules, ("algorithm", name), written, usual)


def _of_importance_sampling(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    algorithm, lag = config.algorithm, config.train.max_lag
    mode, engine = algorithm.importance_sampling, config.cluster and config.cluster.samplers.engine
    same = lag == 0 and engine != "vllm"
    why, instead = (
        "with train.max_lag: 0 the weights that learn have played",
        "set train.max_lag: 1",
    )
    unused, use = (
        f"loss.kind: {algorithm.loss.kind} has the ratio of a token",
        "set importance_ratio: joint",
    )
    if mode == "none":
        unused, use = "importance_sampling: none has no weights", "set it to truncate"
    elif algorithm.pairs is not None:
        unused, use = "pairs have no importance weights", "set credit.kind: group"
    # token with a loss that has this ratio turns off the weights, which is an effect.
    ignored = mode == "none" or algorithm.pairs is not None
    yield from keys_by_rules(
        (
            ("importance_sampling", same and mode in ("truncate", "mask"), why, instead),
            ("importance_cap", same and mode == "auto", why, instead),
            ("importance_cap", importance_mode(algorithm, lag) == "none", unused, use),
            ("importance_ratio", same and mode == "auto", why, instead),
            ("importance_ratio", not same and ignored, unused, use),
        ),
        ("algorithm",),
        algorithm,
        resolve(algorithm.name, {}),
    )


def _of_turn_weights(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    weights, turns = config.algorithm.turn_weights, len(config.rollout.samples)
    if weights != resolve(config.algorithm.name, {}).turn_weights:
        for turn, weight in list(enumerate(weights))[turns:]:
            yield KeyWithoutEffect(
                ("algorithm", "turn_weights", turn),
                weight,
                f"rollout.samples {list(config.rollout.samples)} plays {turns} turn(s)",
                "drop it, or play more turns",
            )


def _of_incentives(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    incentives, alone = config.algorithm.incentives, len(config.team) == 1
    with_others = "alpha1" if incentives.alphas == "paper" else "alpha0"
    why, instead = "the team has one agent, so there are no others", "add agents"
    yield from keys_by_rules(
        (
            (
                "alphas",
                incentives.alpha0 == incentives.alpha1,
                "alpha0 and alpha1 are equal",
                "set one of them",
            ),
            *((key, alone, why, instead) for key in (with_others, "beta0", "beta1")),
        ),
        ("algorithm", "incentives"),
        incentives,
        resolve(config.algorithm.name, {}).incentives,
    )


def _of_plan(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    plan, alone = config.rollout, len(config.team) == 1
    samples, group = list(plan.samples), config.algorithm.group
    crossed = group is not None and baseline_of(group.baseline).crossed
    yield from keys_by_rules(
        (
            (
                "pairing",
                (alone or set(samples) == {1}) and not crossed,
                "the team has one agent" if alone else f"samples {samples} is one path",
                "add agents" if alone else "sample more",
            ),
            (
                "expand",
                not plan.prunes,
                f"samples {samples} gives one joint action per Round before the last turn"
                if len(samples) > 1
                else f"samples {samples} plays one turn",
                "sample more" if len(samples) > 1 else "play more turns",
            ),
            (
                "stop_at_reward",
                len(samples) == 1,
                f"samples {samples} plays one turn",
                "play more turns",
            ),
        ),
        ("rollout",),
        plan,
        type(plan)(),
    )


def _of_decode(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    yield from replaced_keys(
        ("decode",),
        config.decode,
        {f"team.{agent}.decode": player.decode for agent, player in config.team.items()},
    )


def _of_optimizers(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    common = config.optimizer
    own: dict[KeyPath, Optimizer | None] = {
        ("policies", name, "optimizer"): policy.optimizer
        for name, policy in config.policies.items()
        if policy.train != "frozen"
    }
    merged = [config.optimizer_of(name) for name in config.policies if name not in config.frozen]
    if config.critic_of:
        own["critic", "optimizer"] = config.critic.optimizer if config.critic is not None else None
        merged.append(config.critic_optimizer)
    replaced = list(
        replaced_keys(("optimizer",), common, {dotted(path): one for path, one in own.items()})
    )
    yield from replaced
    if "final_fraction" not in {key.path[-1] for key in replaced}:
        rules = _without_decay(all(one.schedule == "constant" for one in merged))
        yield from keys_by_rules(rules, ("optimizer",), common, Optimizer())
    for (path, one), whole in zip(own.items(), merged, strict=True):
        if one is not None and "final_fraction" in one.model_fields_set:
            yield from keys_by_rules(
                _without_decay(whole.schedule == "constant"), path, whole, common
            )
    if config.warmup is not None:
        rules = _without_decay(config.warmup.schedule == "constant")
        yield from keys_by_rules(rules, ("warmup",), config.warmup, type(config.warmup)())


def _without_decay(constant: bool) -> KeyRules:
    why = "schedule: constant never lowers the rate"
    return (("final_fraction", constant, why, "set schedule: linear"),)


def _of_schedule(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    schedule, turns = config.schedule, len(config.rollout.samples)
    trained = {
        (name, turn)
        for player in config.team.values()
        for turn, name in enumerate((*player.policy, *player.policy[-1:] * turns)[:turns])
        if name not in config.frozen
    }
    policies, later = {name for name, _ in trained}, {turn for _, turn in trained}
    yield from keys_by_rules(
        (
            (
                "kind",
                schedule.kind == "round_robin" and len(policies) == 1,
                "one policy is trained",
                "train more policies",
            ),
            (
                "kind",
                schedule.kind == "turns" and len(later) == 1,
                "one turn is trained",
                "train more turns",
            ),
        ),
        ("schedule",),
        schedule,
        type(schedule)(),
    )


def _of_bounds(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    alarms = config.alarms
    bounds = [
        alarms.min_entropy,
        alarms.max_kl,
        alarms.max_truncated,
        alarms.max_duplicates,
        alarms.max_frac_return_zero_std,
    ]
    unbounded = bounds == [None] * len(bounds)
    yield from keys_by_rules(
        (
            (
                "max_kl",
                alarms.max_kl is not None and not config.algorithm.needs_reference,
                "without algorithm.kl there is no reference",
                "set algorithm.kl",
            ),
            *(
                (key, unbounded, "every bound is null", "set a bound")
                for key in ("patience", "unless_success", "stop")
            ),
        ),
        ("alarms",),
        alarms,
        type(alarms)(),
    )


def _of_cluster(config: RunConfig) -> Iterator[KeyWithoutEffect]:
    if config.cluster is None:
        return
    samplers, own = config.cluster.samplers, config.cluster.samplers.engine == "own"
    why, instead = "engine: own has no engines", "set samplers.engine: vllm"
    rules = [(key, own, why, instead) for key in VLLM_KEYS]
    yield from keys_by_rules(rules, ("cluster", "samplers"), samplers, type(samplers)())
    rules = [("transfer", own, "engine: own transfers no weights", instead)]
    yield from keys_by_rules(rules, ("cluster",), config.cluster, type(config.cluster)())
