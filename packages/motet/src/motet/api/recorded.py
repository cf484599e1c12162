"""Recorded episodes and completions of a run, with rewards and advantages. Nothing is played
again."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from motet.algorithms import credit_function
from motet.api.setup import recorded_config
from motet.config.schema import AlgorithmOfCode, RecordedConfig
from motet.core import CreditState, Episode, Round, SampleId, Scores, Team, walk
from motet.credit.assign import assign_credit
from motet.errors import ConfigError, MotetError, shortened
from motet.rollout.record import read_episodes
from motet.rollout.summary import episode_stats
from motet.settings import Algorithm
from motet.user_code.looking import looking
from motet.user_code.plugins import is_reference, nearest

RecordKind = Literal["train", "evaluate"]
FIRST = 3
"""Number of episodes if the caller chooses none."""


_UNFIT = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What the computation of advantages raises for episodes of another game."""


@dataclass(frozen=True)
class RecordedEpisode:
    """One episode of a run."""

    step: int
    episode: Episode
    reward: float | None
    advantages: dict[SampleId, float] = field(default_factory=dict)
    """Advantage of each completion; the mean over tokens if there is one per token. Empty in
    evaluations, if the algorithm needs more than the rewards (a critic, a KL penalty in the reward,
    a moving average, a learned reward, pairs), and if it needs code that the run names, which is
    never loaded."""


@looking()
def episodes(
    run: str | Path,
    *,
    step: int | None = None,
    worst: int | None = None,
    best: int | None = None,
    faults: bool = False,
    task: str | None = None,
    evaluation: bool = False,
) -> list[RecordedEpisode]:
    """Return recorded episodes of a run folder. Without a choice, the first three are returned.

    Args:
        step: the training step, or the step after which an evaluation was made. Default: the last
            recorded one; with `faults` or `task`, the last one that has such an episode.
        worst: only this many, those with the lowest reward.
        best: only this many, those with the highest reward.
        faults: only those with faults.
        task: only those of this task id.
        evaluation: games of evaluations, not of training.

    Raises: ConfigError.
    """
    kind: RecordKind = "evaluate" if evaluation else "train"
    folder = Path(run)
    config = recorded_config(folder)
    if best is not None and worst is not None:
        raise ConfigError("got best and worst, expected at most one of them")
    files = _files(folder, kind, step)
    seen: list[str] = []
    for number in sorted(files, reverse=True):
        found = read_episodes(files[number]).episodes
        seen += [episode.task.id for episode in found]
        chosen = [
            episode
            for episode in found
            if (task is None or episode.task.id == task)
            and (not faults or episode_stats(episode).faults)
        ]
        if chosen:
            shown = _ranked(chosen, best, worst)
            rest = best is None and worst is None and not faults and task is None
            credit: dict[SampleId, float] = {}
            if kind == "train":
                with suppress(MotetError):  # such as a credit function that is not loaded
                    credit = recorded_advantages(config, found)
            return [
                _recorded(number, episode, credit) for episode in (shown[:FIRST] if rest else shown)
            ]
    if task is not None and task not in seen:
        raise ConfigError(
            f"{folder} has no {kind} episode of task {task!r}{nearest(task, seen)}; expected one "
            "of its tasks"
        )
    return []


@looking()
def advantages_of_step(run: str | Path, step: int) -> dict[SampleId, float]:
    """Return the advantage of each completion of a training step, as `RecordedEpisode` has them.

    A credit function of the config is not called, even if this process has it.

    Raises: ConfigError if the config or the episodes cannot be read.
    """
    folder = Path(run)
    path = _files(folder, "train", step)[step]
    config = recorded_config(folder)
    if config.algorithm.own_credit is not None:
        return {}
    return recorded_advantages(config, read_episodes(path).episodes)


def _files(folder: Path, kind: RecordKind, step: int | None) -> dict[int, Path]:
    """Return step -> file. Raises: ConfigError if there is none, or not this one."""
    files = {
        int(found[1]): path
        for path in (folder / "episodes").glob(f"{kind}-*.jsonl")
        if (found := re.fullmatch(rf"{kind}-(\d+)", path.stem))
    }
    if not files:
        raise ConfigError(
            f"{folder} has no recorded {kind} episodes; expected episodes/{kind}-*.jsonl: "
            "report.episodes: all records every training step"
        )
    if step is None:
        return files
    if step not in files:
        raise ConfigError(
            f"{folder} has no {kind} episodes of step {step}; it has steps {min(files)} to "
            f"{max(files)}"
        )
    return {step: files[step]}


def _ranked(found: list[Episode], best: int | None, worst: int | None) -> list[Episode]:
    if best is None and worst is None:
        return found
    count = best if worst is None else worst
    if count is None or count < 1:
        raise ConfigError(f"got {count} episodes; expected 1 or more")
    paid = [(episode_stats(episode).reward, episode) for episode in found]
    known = [(reward, episode) for reward, episode in paid if reward is not None]
    order = sorted(known, key=lambda pair: pair[0], reverse=worst is None)
    return [episode for _, episode in order[:count]]


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
        or config.reward_model is not None
        or _may_have_ratios(algorithm, config.train.max_lag)
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
    return {sample.id: _mean(sample.advantage) for sample in credit.samples}


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


def _mean(advantage: float | tuple[float, ...]) -> float:
    if isinstance(advantage, tuple):
        return sum(advantage) / max(len(advantage), 1)
    return advantage


def _recorded(step: int, episode: Episode, credit: dict[SampleId, float]) -> RecordedEpisode:
    own = {id: value for id, value in credit.items() if id.episode == episode.id}
    return RecordedEpisode(step, episode, episode_stats(episode).reward, own)


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
