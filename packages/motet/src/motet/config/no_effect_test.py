"""Every option of an algorithm changes what is learned, or is refused where it cannot."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from motet.batch import (
    minibatches,
    pack,
    pack_values,
    policy_objective,
    value_objective,
    weighs_completions,
)
from motet.config.load import dump_config, load_config, make_config
from motet.config.no_effect import keys_without_effect, refuse_keys_without_effect
from motet.config.paths import named_configs
from motet.config.schema import RunConfig
from motet.core import (
    Completion,
    CreditState,
    Episode,
    Outcome,
    Round,
    SampleId,
    Scores,
    Task,
    Team,
    ValueEstimate,
    walk,
)
from motet.core.terms import RIGHT
from motet.credit.assign import assign_credit
from motet.credit.critics import reading_of
from motet.errors import ConfigError
from motet.settings import (
    Algorithm,
    CispoLoss,
    ClippedLoss,
    CriticCredit,
    Decode,
    GroupCredit,
    KlInLoss,
    KlInReward,
    PolicyGradient,
)
from motet.settings.flat_keys import laid_on, lifted
from motet.trainer.score import completions_of
from tests.fixtures.messages import says


def config(algorithm: dict[str, Any] | None = None, **sections: Any) -> RunConfig:
    """Two agents with a policy each play two turns."""
    plain = {
        "name": "small",
        "environment": {"name": "quickstart"},
        "models": {"tiny": {"embedded": {}}},
        "policies": {"p": {"model": "tiny"}, "q": {"model": "tiny"}},
        "team": {"a": "p", "b": "q"},
        "rollout": {"samples": [3, 2]},
        "train": {"steps": 1},
        "algorithm": algorithm or {},
    }
    return make_config(plain | sections)


ROOT = Path(__file__).parents[5]
ALONE = {"policies": {"p": {"model": "tiny"}}, "team": {"a": "p"}}

# ------------------------------------------------------------------------- what is learned


def played(config: RunConfig, path: tuple[int, ...], numbers: random.Random) -> Round:
    """Return a Round whose rewards, tokens and right answers are random. The first joint action of
    the task ends early."""
    plan, turn = config.rollout, len(path)
    count = plan.samples[turn]
    samples = {
        agent: tuple(said(player.policy[0], numbers) for _ in range(count))
        for agent, player in config.team.items()
    }
    outcomes = []
    for index in range(count):
        rewards = {agent: numbers.random() for agent in config.team}
        terms = {RIGHT + agent: float(numbers.random() > 0.5) for agent in config.team}
        end, below = "limit", None
        if path == () and index == 0:
            end = "done"
        elif turn + 1 < len(plan.samples):
            end = "pruned" if plan.expand != "all" and index != 1 else None
            below = played(config, (*path, index), numbers) if end is None else None
        picks = dict.fromkeys(config.team, index)
        outcomes.append(Outcome(picks, rewards, terms, below, end))
    same = (dict.fromkeys(config.team, value) for value in ("?", (1, 2)))
    return Round(turn, *same, samples, tuple(outcomes))


def said(policy: str, numbers: random.Random) -> Completion:
    length = numbers.randint(2, 4)
    logprobs = tuple(-numbers.random() for _ in range(length))
    return Completion(policy, "x", "stop", tokens=(5,) * length, logprobs=logprobs)


def scored(episodes: list[Episode], algorithm: Algorithm, numbers: random.Random) -> Scores:
    reference, values = {}, {}
    for episode in episodes:
        for path, round_ in walk(episode.root):
            for agent, completions in round_.samples.items():
                for index, one in enumerate(completions):
                    id = SampleId(episode.id, path, agent, index)
                    count = (
                        len(one.tokens)
                        if algorithm.critic and algorithm.critic.scope == "token"
                        else 1
                    )
                    found = tuple(numbers.random() for _ in range(count))
                    if algorithm.needs_reference:
                        reference[id] = tuple(-numbers.random() for _ in one.tokens)
                    if algorithm.critic is not None:
                        at = tuple(range(1, 1 + count))
                        values.setdefault(
                            reading_of(id, algorithm.critic),
                            ValueEstimate((1,) * (count + 1), at, found),
                        )
    return Scores(reference, values)


def learned(config: RunConfig) -> list[float]:
    """Return all losses and gradients of three steps. Random log-probabilities and values stand in
    for a model."""
    algorithm, turns = config.algorithm, len(config.rollout.samples)
    team = Team(
        {agent: player.policy for agent, player in config.team.items()},
        dict.fromkeys(config.team, Decode()),
        critics=config.critic_of,
    )
    state, found = CreditState(), []
    for step in range(3):
        numbers = random.Random(step)
        episodes = [
            Episode(f"e{k}", Task(f"e{k}", {}), played(config, (), numbers), greedy(config, k))
            for k in range(3)
        ]
        scores = scored(episodes, algorithm, numbers)
        if weighs_completions(algorithm, config.train.max_lag):
            scores = replace(scores, present=moved(episodes, numbers))
        credit = assign_credit(episodes, scores, algorithm, state, team, turns)
        generator, lag = torch.Generator().manual_seed(step), config.train.max_lag
        found += list(losses(algorithm, lag, state, credit, generator))
        state = credit.state
    return found


def moved(episodes, numbers) -> dict[SampleId, tuple[float, ...]]:
    return {
        id: tuple(value + numbers.random() - 0.5 for value in completion.logprobs)
        for id, _, completion in completions_of(episodes)
        if completion.logprobs is not None
    }


def greedy(config: RunConfig, number: int) -> Round:
    plan = config.rollout.model_copy(
        update={"samples": (1,) * len(config.rollout.samples), "expand": "all"}
    )
    return played(config.model_copy(update={"rollout": plan}), (), random.Random(100 + number))


def losses(algorithm, max_lag, state, credit, generator) -> Iterator[float]:
    policy_loss = policy_objective(algorithm, state.kl_coefficients, max_lag)
    value_loss = value_objective(algorithm, 1.0)
    for part in minibatches(credit.samples, algorithm.epochs, algorithm.minibatches, 0):
        for batch in pack(part, 10_000, algorithm.reduce, {"p": 9, "q": 9}):
            noise_BL = torch.randn(batch.mask_BL.shape, generator=generator)
            logp_BL = (batch.behaviour_logp_BL + noise_BL).requires_grad_()
            entropy_BL = (2.0 * logp_BL).exp()
            loss, _ = policy_loss(batch, logp_BL, entropy_BL)
            yield from (loss.item(), *backward(loss, logp_BL))
    for part in minibatches(credit.values, algorithm.epochs, algorithm.minibatches, 0):
        for values in pack_values(part, 10_000):
            noise_BL = torch.randn(values.mask_BL.shape, generator=generator)
            guess_BL = (values.old_values_BL + noise_BL).requires_grad_()
            loss, _ = value_loss(values, guess_BL)
            yield from (loss.item(), *backward(loss, guess_BL))


def backward(loss, at_BL) -> list[float]:
    loss.backward()
    return at_BL.grad.flatten().tolist()


# ------------------------------------------------------------------------- every option

CLIPPED = {"loss": {"kind": "clipped_surrogate"}}
IN_REWARD = {"kl": {"kind": "reward", "coefficient": 0.1}}
DIVERGENCE = {"kl": {"kind": "loss", "coefficient": 0.1}}
AVERAGED = {"credit": {"baseline": "moving_average"}}
PRUNING = {"rollout": {"samples": [3, 2], "expand": "random"}}
LAGGED = {"train": {"steps": 1, "max_lag": 1}}
EFFECTS: dict[str, tuple[dict[str, Any], Any, dict[str, Any]]] = {
    # option: (the options around it, its value, other sections of the config)
    "credit.kind": ({}, "pairs", {}),
    "credit.baseline": ({}, "leave_one_out", {}),
    "credit.scale": ({}, "std", {}),
    "credit.group_by": ({}, "task", {}),
    "credit.average_decay": (AVERAGED, 0.5, {}),
    "credit.terms": ({"credit": {"scale": "std"}}, {"terms": {"right": 1.0}}, {}),
    "credit.view": ({"name": "iac"}, "joint", {}),
    "credit.scope": ({"name": "iac"}, "token", {}),
    "credit.gae_lambda": ({"name": "iac"}, 0.5, {}),
    "credit.whiten": ({"name": "iac"}, True, {}),
    "credit.clip_value": ({"name": "iac"}, 0.1, {}),
    "loss.kind": ({}, "clipped_surrogate", {}),
    "loss.clip_low": (CLIPPED, 0.5, {}),
    "loss.clip_high": (CLIPPED, 0.5, {}),
    "loss.clip_dual": (CLIPPED, 1.5, {}),
    "kl.kind": (IN_REWARD, DIVERGENCE["kl"], {}),
    "kl.coefficient": (DIVERGENCE, 0.2, {}),
    "kl.estimator": (DIVERGENCE, "k3", {}),
    "kl.target": (DIVERGENCE, 0.5, {}),
    "kl.horizon": ({"kl": {**DIVERGENCE["kl"], "target": 0.5}}, 100, {}),
    "gamma": ({}, 0.5, {}),
    "returns": ({}, "discounted_sum", {}),
    "reward_sharing": ({}, "all", {}),
    "repeat_last_reward": ({}, False, {}),
    "pruned": ({}, "sibling_mean", PRUNING),
    "reduce": ({}, "token_mean", {}),
    "turn_weights": ({}, (1.0, 0.5), {}),
    "entropy_coefficient": ({}, 0.1, {}),
    "epochs": (CLIPPED, 2, {}),
    "minibatches": (CLIPPED, 2, {}),
    "importance_sampling": ({}, "none", LAGGED),
    "importance_cap": ({}, 1.1, LAGGED),
    "importance_ratio": ({}, "token", LAGGED),
}  # fmt: skip
INCENTIVES = {
    "alphas": ({"alpha0": 1.0}, "code"),
    "alpha0": ({}, 1.0),
    "alpha1": ({}, 1.0),
    "beta0": ({}, 1.0),
    "beta1": ({}, 1.0),
}
ELSEWHERE = {
    "name", "incentives", "stop_at_kl", "self_imitation", "kl.reset_every", "stopped_weight",
    "credit.function", "credit.influence", "entropy_final",
}  # fmt: skip
"""A name; the options of INCENTIVES; options that the training loop reads (its tests); one for
turns that a reward ended (assign_test); one that names code (own_test); and one that reads games
without an agent (influence_test). Those of pairs are in preferences_test."""
KINDS = {
    "credit": (GroupCredit, CriticCredit),
    "loss": (PolicyGradient, ClippedLoss, CispoLoss),
    "kl": (KlInReward, KlInLoss),
}


def with_option(around: dict[str, Any], option: str, value: Any) -> dict[str, Any]:
    """Return the options around it, and the option with its value."""
    section, _, key = option.partition(".")
    whole = isinstance(value, dict) or not key
    return laid_on(lifted(around), {section: value if whole else {key: value}})


def test_the_table_has_every_option():
    nested = {
        f"{section}.{key}"
        for section, kinds in KINDS.items()
        for kind in kinds
        for key in kind.model_fields
    }
    assert set(EFFECTS) | ELSEWHERE == set(Algorithm.model_fields) - set(KINDS) | nested
    assert set(INCENTIVES) == set(type(Algorithm().incentives).model_fields)


@pytest.mark.parametrize("option", EFFECTS)
def test_an_option_changes_what_is_learned(option):
    around, value, sections = EFFECTS[option]
    with_it = config(with_option(around, option, value), **sections)
    without = config(around, **sections)
    assert keys_without_effect(with_it) == []
    assert learned(with_it) != learned(without)


@pytest.mark.parametrize("option", INCENTIVES)
def test_an_incentive_changes_what_is_learned(option):
    around, value = INCENTIVES[option]
    with_it, without = (
        config({"incentives": {**around, **chosen}}) for chosen in ({option: value}, {})
    )
    assert keys_without_effect(with_it) == []
    assert learned(with_it) != learned(without)


ONE_TURN = {"rollout": {"samples": [3]}}
REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, Any, str]] = [
    # the options around it, other sections, the option, its value, the reason and the fix
    (
        {"returns": "last"}, {}, "gamma", 0.5,
        "returns: last … one turn … at 1.0 … returns: tree",
    ),
    (
        {"name": "maporl", "returns": "current"}, {}, "gamma", 0.5,
        "returns: current … one turn … at 0.3 … returns: tree",
    ),
    (
        {}, ONE_TURN, "gamma", 0.5,
        "rollout.samples [3] … one turn … at 1.0 … more turns",
    ),
    (
        {"name": "iac"}, ONE_TURN, "credit.gae_lambda", 0.5,
        "rollout.samples [3] … one turn … at 0.95 … more turns",
    ),
    (
        {"returns": "last"}, {}, "repeat_last_reward", False,
        "returns: last … at true … returns: tree",
    ),
    (
        {"name": "mareinforce"}, {}, "credit.group_by", "task",
        "baseline: none … at round … baseline: group_mean",
    ),
    (
        {}, {}, "pruned", "sibling_mean",
        "rollout.expand: all … rollout.samples [3, 2] … at reweight … rollout.expand: random … "
        "more turns",
    ),
    (
        {}, {}, "credit.average_decay", 0.5,
        "only baseline: moving_average … at 0.9 … baseline: moving_average",
    ),
    (
        DIVERGENCE, {}, "kl.horizon", 100,
        "without a target … coefficient … at 10000 … set target",
    ),
    (
        {}, {}, "importance_cap", 3.0,
        "train.max_lag: 0 … at 2.0 … train.max_lag: 1",
    ),
    (
        {**CLIPPED, "importance_ratio": "token"}, LAGGED, "importance_cap", 3.0,
        "loss.kind: clipped_surrogate … ratio of a token … at 2.0 … importance_ratio: joint",
    ),
    (
        {}, {}, "importance_ratio", "sequence",
        "train.max_lag: 0 … at auto … train.max_lag: 1",
    ),
    (
        {"importance_sampling": "none"}, LAGGED, "importance_ratio", "sequence",
        "importance_sampling: none … at auto … truncate",
    ),
    (
        {"importance_sampling": "none"}, LAGGED, "importance_cap", 3.0,
        "importance_sampling: none … at 2.0 … truncate",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("around", "sections", "option", "value", "message"), REFUSED)
def test_an_option_is_refused_exactly_where_it_changes_nothing(
    around, sections, option, value, message
):
    with_it = config(with_option(around, option, value), **sections)
    without = config(around, **sections)
    assert learned(with_it) == learned(without)
    assert keys_without_effect(without) == []
    (key,) = keys_without_effect(with_it)
    assert key.path == ("algorithm", *option.split("."))
    assert says(key, f"no effect … {message}")


@pytest.mark.parametrize("mode", ["truncate", "mask"])
def test_importance_weights_of_the_weights_that_played_are_refused(mode):
    (key,) = keys_without_effect(config({"importance_sampling": mode}))
    assert key.path == ("algorithm", "importance_sampling")
    assert says(key, "train.max_lag: 0 … weights … played")
    assert keys_without_effect(config({"importance_sampling": mode}, **LAGGED)) == []
    engines = {"cluster": {"samplers": {"engine": "vllm"}}}
    assert keys_without_effect(config({"importance_sampling": mode}, **engines)) == []


@pytest.mark.parametrize(
    ("algorithm", "sections"),
    [
        # one update per step: the ratio is 1 but for rounding, and more updates need the range
        ({**CLIPPED, "clip_low": 0.1, "clip_high": 0.3, "clip_dual": 3.0}, {}),
        ({"name": "iac", "clip_value": 0.2}, {}),
        # other plans of the same config need them
        ({"group_by": "task", "repeat_last_reward": False}, ONE_TURN),
        # a named row has them, and the config does not
        ({"name": "maporl", "returns": "last"}, {}),
        ({"name": "remax"}, {}),
        # the value that the row has anyway
        ({"name": "iac", "group_by": "round", "gae_lambda": 0.95}, ONE_TURN),
    ],
)
def test_what_is_only_inactive_is_not_refused(algorithm, sections):
    assert keys_without_effect(config(algorithm, **sections)) == []


# ------------------------------------------------------------------------- other sections

FAST = {"learning_rate": 1e-3}


def policies(p: dict[str, Any] | None = None, q: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"p": {"model": "tiny", **(p or {})}, "q": {"model": "tiny", **(q or {})}}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"rollout": {"samples": [3], "pairing": "crossed"}, **ALONE},
            "rollout.pairing … crossed … no effect … one agent … aligned … add agents",
        ),
        (
            {"rollout": {"samples": [1, 1], "pairing": "crossed"}},
            "rollout.pairing … crossed … no effect … samples [1, 1] … one path … aligned … "
            "sample more",
        ),
        (
            {"rollout": {"samples": [3], "expand": "random"}},
            "rollout.expand … random … no effect … samples [3] … one turn … "
            "leave it at all … more turns",
        ),
        (
            {"rollout": {"samples": [1, 4], "expand": "random"}},
            "rollout.expand … random … no effect … samples [1, 4] … "
            "one joint action per Round … leave it at all … sample more",
        ),
        (
            {"rollout": {"samples": [3], "stop_at_reward": 1.0}},
            "rollout.stop_at_reward … 1.0 … no effect … samples [3] … one turn … null … "
            "more turns",
        ),
        (
            {
                "decode": {"temperature": 0.5},
                "team": {
                    "a": {"policy": "p", "decode": {"temperature": 0.7}},
                    "b": {"policy": "q", "decode": {"temperature": 0.8}},
                },
            },
            "decode.temperature … 0.5 … no effect … team.a.decode … team.b.decode … 1.0 … "
            "drop",
        ),
        (
            {"optimizer": FAST, "policies": policies({"optimizer": FAST}, {"train": "frozen"})},
            "optimizer.learning_rate … 0.001 … no effect … policies.p.optimizer … 5e-06 … "
            "drop",
        ),
    ],
)  # fmt: skip
def test_a_key_of_another_section_is_refused(sections, message):
    with pytest.raises(ConfigError) as refused:
        refuse_keys_without_effect(config(**sections))
    assert says(refused.value, message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "sections",
    [
        {"optimizer": FAST, "policies": policies({"optimizer": {"learning_rate": 1e-4}})},
        # the critics read the common settings
        {
            "optimizer": FAST,
            "policies": policies({"optimizer": FAST}, {"optimizer": FAST}),
            "algorithm": {"name": "iac"},
        },
    ],
)
def test_a_key_that_someone_reads_is_accepted(sections):
    assert keys_without_effect(config(sections.pop("algorithm", None), **sections)) == []


@pytest.mark.parametrize(
    "path",
    [
        *(path for name, path in named_configs().items() if "/" not in name),
        ROOT / "examples" / "same_number.yaml",
    ],
    ids=lambda path: path.stem,
)
def test_a_shipped_config_has_no_key_without_effect(path):
    assert keys_without_effect(load_config(path)) == []


def test_every_key_is_named_with_its_line(tmp_path):
    base, file = tmp_path / "base.yaml", tmp_path / "run.yaml"
    base.write_text(dump_config(config({"credit": {"average_decay": 0.5}})))
    file.write_text("extends: base.yaml\nalgorithm:\n  returns: last\n  gamma: 0.5\n")
    with pytest.raises(ConfigError) as refused:
        refuse_keys_without_effect(load_config(file))
    starts = [line.partition(": got")[0] for line in str(refused.value).splitlines()]
    line = base.read_text().splitlines().index("    average_decay: 0.5") + 1
    assert sorted(starts) == [
        f"{base}:{line}: algorithm.credit.average_decay",
        f"{file}:4: algorithm.gamma",
    ]


def test_a_flat_key_of_before_is_named_as_it_was_written(tmp_path):
    (tmp_path / "base.yaml").write_text(dump_config(config()))
    file = tmp_path / "run.yaml"
    file.write_text("extends: base.yaml\nalgorithm:\n  name: mareinforce\n  average_decay: 0.5\n")
    with pytest.raises(ConfigError) as refused:
        refuse_keys_without_effect(load_config(file, ["algorithm.group_by=task"]))
    starts = [line.partition(": got")[0] for line in str(refused.value).splitlines()]
    assert starts == [
        "override 'algorithm.group_by=task': algorithm.credit.group_by",
        f"{file}:4: algorithm.average_decay: algorithm.credit.average_decay",
    ]


def test_a_config_that_extends_another_sets_a_key_back(tmp_path):
    (tmp_path / "base.yaml").write_text(dump_config(config({**DIVERGENCE, "kl_estimator": "k3"})))
    file = tmp_path / "run.yaml"
    file.write_text("extends: base.yaml\nalgorithm: {kl_in: reward, kl_coefficient: 0.1}\n")
    assert keys_without_effect(load_config(file)) == []
