"""Recorded completions of a run, with rewards and advantages. Nothing is played again."""

from collections.abc import Mapping, Sequence
from typing import Any

from motet.algorithms import credit_function
from motet.config.schema import AlgorithmOfCode, RecordedConfig
from motet.core import CreditState, Episode, Round, SampleId, Scores, Team, walk
from motet.credit.assign import assign_credit
from motet.errors import ConfigError, shortened
from motet.settings import Algorithm
from motet.user_code.plugins import is_reference

_UNFIT = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What the computation of advantages raises for episodes of another game."""


def recorded_advantages(config: RecordedConfig, found: Sequence[Episode]) -> dict[SampleId, float]:
    """Return the advantages of all episodes of a step; empty if the rewards alone do not give them.

    So they are if they need code that the config names; a credit function or a baseline that this
    process has already is used.

    Raises: ConfigError if the episodes do not fit the config, or the config's credit function is
    not in this process.
    """
    algorithm = config.algorithm
    if isinstance(algorithm, AlgorithmOfCode) or not _has_baseline(algorithm):
        return {}
    if algorithm.kl_in_loss is not None:  # the penalty is not part of the advantages
        algorithm = algorithm.model_copy(update={"kl": None})
    needs_more = (
        algorithm.group is None
        or algorithm.kl is not None
        or algorithm.group.baseline == "moving_average"
        or algorithm.group.influence > 0.0
        or config.reward_model is not None
        or _may_have_ratios(algorithm, config.train.max_lag)
        or config.schedule.kind == "sequential"  # each policy has ratios of those before it
    )
    if needs_more or not any(episode.root is not None for episode in found):
        return {}
    team = Team(
        agents={agent: player.policy for agent, player in config.team.items()},
        decode={agent: config.decode_of(agent) for agent in config.team},
        frozen=config.frozen,
    )
    turns = len(config.rollout.samples)
    own = None if algorithm.own_credit is None else credit_function(algorithm.own_credit)
    try:
        credit = assign_credit(found, Scores(), algorithm, CreditState(), team, turns, own)
    except _UNFIT as error:  # a folder of which one file was replaced, or that a stranger made
        raise ConfigError(
            f"the recorded episodes do not fit the run's config: {type(error).__name__}: "
            f"{shortened(str(error))}; expected those that the run wrote"
        ) from error
    return {sample.id: sample.mean_advantage for sample in credit.samples}


def _has_baseline(algorithm: Algorithm) -> bool:
    from motet.credit.baselines import BASELINES

    baseline = "none" if algorithm.group is None else algorithm.group.baseline
    return not is_reference(baseline) or baseline in BASELINES


def _may_have_ratios(algorithm: Algorithm, max_lag: int) -> bool:
    """Return whether importance ratios of completions or joint actions may be in the advantages,
    whatever loss the run had."""
    asked = algorithm.importance_sampling in ("truncate", "mask")
    lagged = max_lag > 0 and algorithm.importance_sampling == "auto"
    return (asked or lagged) and algorithm.importance_ratio != "token"


# ------------------------------------------------------------------------------ completions as rows

COLUMNS = (
    "episode", "task", "turn", "path", "agent", "index", "policy", "prompt", "text", "stop",
    "tokens", "logprobs", "reward", "advantage",
)  # fmt: skip


def sample_rows(
    episodes: Sequence[Episode], advantages: Mapping[SampleId, float]
) -> list[dict[str, Any]]:
    """Return one row per completion, with the keys `COLUMNS`.

    `turn` counts from 0. `path` are the joint actions that led to the Round. `reward` is the mean
    reward of the agent at this turn, over the joint actions with this completion that did not fail;
    None if all of them failed. `advantage` is None without one.
    """
    rows = []
    for episode in episodes:
        if episode.root is None:
            continue
        for path, played in walk(episode.root):
            for agent, samples in played.samples.items():
                for index, sample in enumerate(samples):
                    rows.append(
                        {
                            "episode": episode.id,
                            "task": episode.task.id,
                            "turn": played.turn,
                            "path": path,
                            "agent": agent,
                            "index": index,
                            "policy": sample.policy,
                            "prompt": played.prompts[agent],
                            "text": sample.text,
                            "stop": sample.stop,
                            "tokens": sample.tokens,
                            "logprobs": sample.logprobs,
                            "reward": _reward(played, agent, index),
                            "advantage": advantages.get(SampleId(episode.id, path, agent, index)),
                        }
                    )
    return rows


def _reward(played: Round, agent: str, index: int) -> float | None:
    found = [
        outcome.rewards[agent]
        for outcome in played.outcomes
        if outcome.fault is None and outcome.picks.get(agent) == index
    ]
    return sum(found) / len(found) if found else None
