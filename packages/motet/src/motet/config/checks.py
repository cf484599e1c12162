"""Checks between the sections of a run config: names that exist, sections that fit together."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from motet.config.parts import CriticConfig
from motet.config.run_keys import FOLDER_NAME, RunKeys

Complaint: TypeAlias = tuple[tuple[str, ...], str]
"""The key, and what is wrong with it."""


def complaints_of(config: RunKeys) -> list[Complaint]:
    """Return what is wrong in a config, of the first check that finds something."""
    return (
        _unfit_names(config)
        or _unfit_credit(config)
        or _absent_names(config)
        or _unfit_critic(config)
        or _unfit_reward_model(config)
        or _unfit_preference(config)
        or _unfit_lag(config)
        or _unfit_comparator(config)
        or _unused_names(config)
        or _quantised_and_trained(config)
    )


def _unfit_names(config: RunKeys) -> list[Complaint]:
    """Check the names of policies and models: they are also the names of their folders."""
    named = [
        (section, name) for section in ("models", "policies") for name in getattr(config, section)
    ]
    advice = "expected a folder name: letters, digits and _ . - + ="
    return [
        (key, f"{'.'.join(key)}: {advice}")
        for key in named
        if not re.fullmatch(FOLDER_NAME, key[1])
    ]


def _unfit_credit(config: RunKeys) -> list[Complaint]:
    if config.credit is None or config.algorithm.preference is None:
        return []
    text = (
        f"credit is set, but algorithm {config.algorithm.name} learns from pairs, which have no "
        "advantages: drop credit, or use another algorithm"
    )
    return [(("credit",), text)]


def _absent_names(config: RunKeys) -> list[Complaint]:
    found: list[Complaint] = []
    turns = len(config.rollout.samples)
    for agent, player in config.team.items():
        for name in player.policy:
            if name not in config.policies:
                known = ", ".join(config.policies)
                text = (
                    f"team.{agent} names policy {name!r}; policies are: {known}. Use one of "
                    f"these, or add policies.{name}"
                )
                found.append((("team", agent), text))
        if len(player.policy) > turns:
            text = (
                f"team.{agent} lists {len(player.policy)} policies, but rollout.samples has "
                f"{turns} turn(s): list at most one per turn"
            )
            found.append((("team", agent), text))
    for name, policy in config.policies.items():
        if policy.model not in config.models:
            text = (
                f"policies.{name} names model {policy.model!r}; models are: "
                f"{', '.join(config.models)}"
            )
            found.append((("policies", name), text))
    if config.critic is not None and config.critic.model not in (None, *config.models):
        text = f"critic.model is {config.critic.model!r}; models are: {', '.join(config.models)}"
        found.append((("critic", "model"), text))
    wanted = config.reward_model
    if wanted is not None and wanted.model not in (None, *config.models):
        text = f"reward_model.model is {wanted.model!r}; models are: {', '.join(config.models)}"
        found.append((("reward_model", "model"), text))
    return found


def _unfit_critic(config: RunKeys) -> list[Complaint]:
    algorithm, critic = config.algorithm, config.critic
    if algorithm.critic_view is None:
        text = (
            f"critic is set, but algorithm {algorithm.name} has none: set "
            "algorithm.critic_view, or drop critic"
        )
        return [] if critic is None else [(("critic",), text)]
    taken = [name for name in config.policies if name in config.critic_of.values()]
    if taken:
        return [
            (
                ("policies", taken[0]),
                f"policies.{taken[0]} has the same name as a critic: rename it",
            )
        ]
    critic = critic or CriticConfig()
    if critic.train == "policy" and algorithm.critic_view == "joint":
        text = (
            "critic.train is policy, but a critic with critic_view joint cannot share the "
            "weights of one policy: use full, lora or head"
        )
        return [(("critic", "train"), text)]
    if critic.train == "policy" and any(len(player.policy) > 1 for player in config.team.values()):
        text = "critic.train is policy, but an agent has a policy per turn: use full, lora or head"
        return [(("critic", "train"), text)]
    read = {
        config.policies[name].model for player in config.team.values() for name in player.policy
    }
    if algorithm.scope == "token" and critic.model is not None and read != {critic.model}:
        text = (
            f"critic.model is {critic.model}, but scope token needs the models of the "
            f"policies, which are {', '.join(sorted(read))}: drop critic.model"
        )
        return [(("critic", "model"), text)]
    for agent, player in config.team.items():
        models = {config.policies[name].model for name in player.policy}
        if algorithm.scope == "token" and len(models) > 1:
            text = (
                f"team.{agent} uses the models {', '.join(sorted(models))}, but scope token "
                "needs one model per agent: use one model"
            )
            return [(("team", agent), text)]
    return []


def _unfit_reward_model(config: RunKeys) -> list[Complaint]:
    wanted, turns = config.reward_model, len(config.rollout.samples)
    if wanted is None:
        return []
    if turns > 1:
        text = (
            f"reward_model compares joint actions of one turn, but rollout.samples has {turns} "
            "turns: use one turn, or drop reward_model"
        )
        return [(("reward_model",), text)]
    if wanted.compare == "halves" and config.rollout.pairing != "aligned":
        text = (
            "reward_model.compare halves needs one joint action per sample, got "
            f"rollout.pairing {config.rollout.pairing}: set rollout.pairing: aligned"
        )
        return [(("reward_model", "compare"), text)]
    if "reward-model" in config.policies:
        text = "policies.reward-model has the name of the reward model: rename it"
        return [(("policies", "reward-model"), text)]
    if config.train.steps is not None and wanted.iterations > config.train.steps:
        text = (
            f"reward_model.iterations is {wanted.iterations}, but train.steps is "
            f"{config.train.steps}: use at most one iteration per step"
        )
        return [(("reward_model", "iterations"), text)]
    return []


def _unfit_preference(config: RunKeys) -> list[Complaint]:
    preference = config.algorithm.preference
    if preference is None:
        return []
    mode = preference.replay.mode
    if mode != "current" and config.train.steps == 1:
        text = (
            f"algorithm.preference.replay.mode is {mode}, but train.steps is 1, so there are "
            "no earlier pairs: raise train.steps, or use mode: current"
        )
        return [(("algorithm", "preference"), text)]
    if mode != "current" and config.report.episodes == "none":
        text = (
            f"algorithm.preference.replay.mode {mode} reads the recorded "
            "episodes of earlier steps, but report.episodes is none: set report.episodes: all"
        )
        return [(("report", "episodes"), text)]
    linear = [
        name
        for name in config.policies
        if name not in config.frozen and config.optimizer_of(name).schedule == "linear"
    ]
    if preference.batch_size is not None and linear:
        text = (
            f"algorithm.preference.batch_size is set, and policy {linear[0]} has "
            "optimizer.schedule: linear, but the number of gradient steps is then not known: "
            "use schedule: constant, or algorithm.minibatches in place of batch_size"
        )
        return [(("algorithm", "preference"), text)]
    return []


def _unfit_lag(config: RunKeys) -> list[Complaint]:
    if not config.train.max_lag or config.report.episodes != "none":
        return []
    text = (
        "train.max_lag 1 resumes from the recorded episodes of the step that was played ahead, "
        "but report.episodes is none: set report.episodes: all, or train.max_lag: 0"
    )
    return [(("report", "episodes"), text)]


def _unfit_comparator(config: RunKeys) -> list[Complaint]:
    comparator, turns = config.comparator, len(config.rollout.samples)
    if comparator is None:
        return []
    preference = config.algorithm.preference
    halves = [one for one in (preference, config.reward_model) if one and one.compare == "halves"]
    if not halves:
        text = (
            "comparator plays the second half of the answers, but nothing compares halves: set "
            "compare: halves in algorithm.preference or reward_model, or drop comparator"
        )
        return [(("comparator",), text)]
    if turns > 1:
        text = (
            f"comparator answers in games of one turn, but rollout.samples has {turns} turns: use "
            "one turn, or drop comparator"
        )
        return [(("comparator",), text)]
    if config.cluster is not None:
        text = "comparator does not work with models in processes of their own: drop cluster"
        return [(("comparator",), text)]
    playing = [name for player in config.team.values() for name in player.policy]
    still = [name for name in playing if name in config.frozen]
    if still and preference is not None:
        text = (
            f"policy {still[0]} is frozen, so the comparator's answers have no log-probabilities "
            "under it: train it, or drop comparator"
        )
        return [(("comparator",), text)]
    return _unfit_comparing_team(config, comparator.team)


def _unfit_comparing_team(config: RunKeys, players: Mapping[str, str]) -> list[Complaint]:
    key = ("comparator", "team")
    if players and set(players) != set(config.team):
        text = (
            f"comparator.team names {', '.join(players)}; expected a policy for each of "
            f"{', '.join(config.team)}"
        )
        return [(key, text)]
    for agent, name in players.items():
        if name not in config.policies:
            text = (
                f"comparator.team.{agent} names policy {name!r}; policies are: "
                f"{', '.join(config.policies)}. Use one of these, or add policies.{name}"
            )
            return [(key, text)]
        if name not in config.frozen:
            text = (
                f"comparator.team.{agent} names policy {name!r}, which is trained; use one with "
                "train: frozen (without comparator the present team plays both halves)"
            )
            return [(key, text)]
    return []


def _unused_names(config: RunKeys) -> list[Complaint]:
    playing = {name for player in config.team.values() for name in player.policy}
    playing |= set(config.comparator.team.values() if config.comparator is not None else ())
    loaded = {policy.model for policy in config.policies.values()}
    if config.critic is not None and config.critic.model is not None:
        loaded.add(config.critic.model)
    if config.reward_model is not None and config.reward_model.model is not None:
        loaded.add(config.reward_model.model)
    idle = [
        ("policies", name, "is not used by any agent: add it to team")
        for name in config.policies
        if name not in playing
    ]
    idle += [
        ("models", name, "is not used by any policy: use it in policies")
        for name in config.models
        if name not in loaded
    ]
    return [
        ((section, name), f"{section}.{name} {text}, or drop it") for section, name, text in idle
    ]


def _quantised_and_trained(config: RunKeys) -> list[Complaint]:
    """Refuse to train all weights of a quantized model: gradient steps are far smaller than
    what 8 bits resolve."""
    found: list[Complaint] = []
    critic = config.critic or CriticConfig()
    valued = {
        critic.model or config.policies[config.team[agent].policy[0]].model
        for agent in config.critic_of
    }
    for model, base in config.models.items():
        if base.quantize == "none":
            continue
        fewer = f"models.{model} has quantize: {base.quantize}"
        for name, policy in config.policies.items():
            if policy.model == model and policy.train == "full":
                text = (
                    f"policies.{name} has train: full, but {fewer}: use train: lora or "
                    "frozen, or quantize: none"
                )
                found.append((("policies", name), text))
        if critic.train == "full" and model in valued:
            text = (
                f"critic has train: full, but {fewer}: use critic.train=lora or head, or "
                "another critic.model"
            )
            found.append((("critic",), text))
        wanted = config.reward_model
        if wanted is not None and wanted.train == "full" and model == config.model_of_reward:
            text = (
                f"reward_model has train: full, but {fewer}: use reward_model.train=lora or "
                "head, or another reward_model.model"
            )
            found.append((("reward_model",), text))
        if config.warmup is not None:
            text = (
                f"warmup trains all weights, but {fewer}: drop warmup (warmup: null), or use "
                "quantize: none"
            )
            found.append((("warmup",), text))
    return found
