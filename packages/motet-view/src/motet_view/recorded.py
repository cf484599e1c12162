"""Recorded episodes of a run, with rewards and advantages. Nothing is played again."""

import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from motet.api.recorded import recorded_advantages
from motet.api.setup import recorded_config
from motet.core import Episode, SampleId
from motet.errors import ConfigError, MotetError, shortened
from motet.rollout.record import check_rounds, read_episodes
from motet.rollout.summary import episode_stats
from motet.safety.visible import visible
from motet.user_code.looking import looking
from motet.user_code.plugins import nearest

RecordKind = Literal["train", "evaluate"]
FIRST = 3
"""Number of episodes if the caller chooses none."""


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
    of: int = 1
    """How many episodes were recorded at this step."""


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
        for place, one in enumerate(found, start=1):
            check_rounds(one, f"{files[number]}, line {place}")
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
                _recorded(number, episode, credit, len(found))
                for episode in (shown[:FIRST] if rest else shown)
            ]
    if task is not None and task not in seen:
        tasks = list(dict.fromkeys(seen))
        few = ", ".join([*map(visible, tasks[:FIRST]), *["..."] * (len(tasks) > FIRST)])
        others = (
            "without --evaluation games of the training are shown"
            if evaluation
            else "--evaluation shows the games of held-out tasks"
        )
        raise ConfigError(
            f"{folder} has no {kind} episode of task {shortened(repr(task))}"
            f"{nearest(task, tasks)}; expected one of its tasks: {few}; {others}"
        )
    return []


@looking()
def advantages_in(run: Path, file: Path) -> dict[SampleId, float]:
    """Return the advantage of each completion of a step of training, whose episodes are in a file,
    as `RecordedEpisode` has them.

    A credit function of the config is not called, even if this process has it.

    Raises: ConfigError if the config or the episodes cannot be read.
    """
    config = recorded_config(run)
    if config.algorithm.own_credit is not None:
        return {}
    return recorded_advantages(config, read_episodes(file).episodes)


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


def _recorded(
    step: int, episode: Episode, credit: dict[SampleId, float], of: int
) -> RecordedEpisode:
    own = {id: value for id, value in credit.items() if id.episode == episode.id}
    return RecordedEpisode(step, episode, episode_stats(episode).reward, own, of)
