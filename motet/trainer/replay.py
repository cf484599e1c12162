"""A step of a recorded run once more: from the nearest checkpoint before it, learnt again from the episodes on record, or sampled
again from its seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from motet.core import CreditState, Episode, Task
from motet.errors import ConfigError
from motet.rollout.record import read_episodes
from motet.trainer import checkpoint, figures
from motet.trainer.loop import Ensemble, Pace, learn_step, play_step, tasks_of
from motet.trainer.metrics import read_metrics
from motet.trainer.run_folder import RunFolder
from motet.trainer.session import Weights, credit_of


@dataclass(frozen=True)
class Replay:
    """What came of a step, beside what the run recorded of it."""

    step: int
    start: int
    """The step whose checkpoint it went on from; 0 is the beginning of the run."""
    episodes: tuple[Episode, ...]
    """What was played, or read from the record."""
    sampled: bool
    same_episodes: bool | None
    """Whether what was sampled is what is on record; None where there is no record, or nothing was sampled."""
    compared: int
    """Metrics that both have."""
    different: Mapping[str, tuple[float, float]]
    """Metric -> on record, and now."""
    same_weights: bool | None
    """Whether all trained weights and optimiser states are those of the step's checkpoint; None where there is none."""

    @property
    def same(self) -> bool:
        """Whether nothing that was compared differs."""
        return self.same_episodes is not False and not self.different and self.same_weights is not False


async def replay(
    ensemble: Ensemble,
    weights: Weights,
    tasks: Sequence[Task],
    pace: Pace,
    folder: RunFolder,
    step: int,
    *,
    sample: bool,
    learn: bool = True,
    told: Callable[[int, int], object] = lambda done, of: None,
) -> Replay:
    """Brings `weights`, which are those of the run's beginning, to where `step` began, and runs it.

    Steps before it are learnt from their records, and sampled again where there are none. `told` hears how many of how many steps
    are done. Raises: ConfigError for a record that is missing or broken; what the step itself raised, such as TrainingDiverged.
    """
    start, state = _restore(folder.checkpoints, weights, step)
    for number in range(start + 1, step):
        told(number - start - 1, step - start)
        episodes = _recorded(folder, number) or await play_step(
            ensemble, tasks_of(number, tasks, ensemble.seed, pace), number
        )
        _, state = await learn_step(ensemble, episodes, number, pace, state)
    told(step - start - 1, step - start)
    recorded = _recorded(folder, step)
    if not sample and recorded is None:
        raise ConfigError(f"{folder.episodes('train', step)} is not there: sample the step again, without --recorded")
    played = await play_step(ensemble, tasks_of(step, tasks, ensemble.seed, pace), step) if sample else None
    episodes = tuple(played if played is not None else recorded or ())
    same_episodes = None if played is None or recorded is None else tuple(played) == tuple(recorded)
    now: Mapping[str, float] = {}
    if learn:
        now = figures.of_step((await learn_step(ensemble, episodes, step, pace, state))[0])
    told(step - start, step - start)
    then = next((row for row in read_metrics(folder.metrics) if row["step"] == step and "play/tokens" in row), {})
    both = [name for name in now if name in then and not name.startswith("time/")]
    return Replay(
        step=step,
        start=start,
        episodes=episodes,
        sampled=sample,
        same_episodes=same_episodes,
        compared=len(both),
        different={name: (then[name], now[name]) for name in both if then[name] != now[name]},
        same_weights=_same_weights(folder.checkpoints, weights, step) if learn else None,
    )


def _restore(root: Path, weights: Weights, step: int) -> tuple[int, CreditState]:
    if not any(checkpoint.step_of(found) < step for found in checkpoint.folders(root)):
        return 0, CreditState()
    saved, _ = checkpoint.newest(root, before=step)
    weights.load(saved.tensors, saved.state["weights"])
    return saved.step, credit_of(saved)


def _recorded(folder: RunFolder, number: int) -> Sequence[Episode] | None:
    path = folder.episodes("train", number)
    if not path.is_file():
        return None
    found = read_episodes(path)
    if found.torn:
        raise ConfigError(f"{path} ends in the middle of an episode: remove it, and the step is sampled again")
    return found.episodes


def _same_weights(root: Path, weights: Weights, step: int) -> bool | None:
    there = [found for found in checkpoint.folders(root) if checkpoint.step_of(found) == step]
    if not there or checkpoint.what_is_wrong(there[0]) is not None:
        return None
    saved, _ = checkpoint.newest(root, before=step + 1)
    return same_tensors(saved.tensors, weights.state()[0])


def same_tensors(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """To the bit."""
    return first.keys() == other.keys() and all(
        torch.equal(tensor.cpu(), other[name].detach().cpu()) for name, tensor in first.items()
    )


def last_played(folder: RunFolder) -> int:
    """The last step with episodes on record, or else with metrics. Raises: ConfigError where there is none."""
    names = [path.stem.removeprefix("train-") for path in folder.episodes("train", 0).parent.glob("train-*.jsonl")]
    steps = [int(name) for name in names if name.isdecimal()]
    rows: list[dict[str, Any]] = read_metrics(folder.metrics) if folder.metrics.is_file() else []
    steps += [row["step"] for row in rows if "play/tokens" in row]
    if not steps:
        raise ConfigError(f"{folder.path} has no training step on record: train it first")
    return max(steps)
