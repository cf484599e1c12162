"""Keys of a run config that cannot change what is learned. Training refuses them.

A key counts as written if its value is not the default; in `algorithm`, if it is not the value of
the named row, unless that has another kind of credit, loss or KL penalty. So a saved config, which
has all defaults, is read back, a config that extends another can set a key back, and a row may have
options that another choice turns off.

Some keys change nothing in a small run, but are not refused, because a larger run of the same
config needs them: the clip range with one update per step, and `repeat_last_reward` and `group_by`
with one turn. Nor are keys that change nothing beside a rare choice, such as bounds of alarms that
are all null.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.algorithms import compares_samples, resolve
from motet.batch.objectives import importance_mode
from motet.config.schema import RunConfig
from motet.config.yaml import KeyPath, dotted, place_of
from motet.credit.baselines import baseline_of
from motet.errors import ConfigError
from motet.settings import Settings

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
        *_of_plan(config),
        *_of_decode(config),
        *_of_optimizers(config),
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
    in_sequence = config.schedule.kind == "sequential"
    same = lag == 0 and engine != "vllm" and not in_sequence
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
            (
                "importance_cap",
                importance_mode(algorithm, lag) == "none" and not in_sequence,
                unused,
                use,
            ),
            ("importance_ratio", same and mode == "auto", why, instead),
            ("importance_ratio", not same and ignored, unused, use),
        ),
        ("algorithm",),
        algorithm,
        resolve(algorithm.name, {}),
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
                not plan.chooses,
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
    own = {
        f"policies.{name}.optimizer": policy.optimizer
        for name, policy in config.policies.items()
        if policy.train != "frozen"
    }
    if config.critic_of:
        own["critic.optimizer"] = config.critic.optimizer if config.critic is not None else None
    yield from replaced_keys(("optimizer",), config.optimizer, own)
