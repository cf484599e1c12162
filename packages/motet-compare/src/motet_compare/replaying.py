"""Replay a step of a recorded run from the nearest checkpoint before it.

The step is trained again from its recorded episodes, or sampled again from its seed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from motet.core import CreditState, Episode
from motet.errors import ConfigError
from motet.trainer import checkpoint, figures
from motet.trainer.components import Models, TrainComponents
from motet.trainer.loop import (
    Played,
    fit_step,
    learn_step,
    play_step,
    refuse_too_many_faults,
    tasks_of,
)
from motet.trainer.metrics import read_metrics
from motet.trainer.run_folder import RunFolder
from motet.trainer.saving import credit_of, restoring


@dataclass(frozen=True)
class ReplayResult:
    """The result of a replayed step, compared with the record of the run."""

    step: int
    start: int
    """The step of the checkpoint that the replay starts from; 0 is the beginning of the run."""
    episodes: tuple[Episode, ...]
    """The episodes that were played again or read from the record."""
    sampled: bool
    same_episodes: bool | None
    """Whether the sampled episodes equal the recorded ones. None if nothing was recorded or
    sampled."""
    compared: int
    """The number of metrics that exist in both."""
    different: Mapping[str, tuple[float, float]]
    """Metric -> (recorded value, replayed value)."""
    same_weights: bool | None
    """Whether all trained weights and optimizer states equal the checkpoint of the step. None if it
    has none, or if it is one of several processes: their sums have another order."""

    code_changed: tuple[str, ...] = ()
    """One line for every key whose code is other than when the run loaded it, and for every package
    with another version."""

    @property
    def same(self) -> bool:
        """Whether everything that was compared is equal."""
        return (
            self.same_episodes is not False
            and not self.different
            and self.same_weights is not False
        )


async def replay(
    components: TrainComponents,
    folder: RunFolder,
    step: int,
    *,
    sample: bool,
    learn: bool = True,
    on_progress: Callable[[int, int], object] = lambda done, of: None,
) -> ReplayResult:
    """Train the models from the beginning of the run up to `step`, and replay that step.

    Earlier steps are trained from their recorded episodes, or sampled again if there are none. With
    `train.max_lag` they must be recorded, and the step is sampled before the step before it is
    trained, as in the run.
    `on_progress` receives the number of finished steps and their total.

    Raises: ConfigError if a record is missing or broken; what the step itself raised, such as
    TrainingDiverged.
    """
    start, state, ahead = await _up_to(components, folder, step, sample, on_progress)
    every = components.algorithm.reset_every
    if every and (step - 1) // every > max(start - 1, 0) // every:
        raise ConfigError(
            f"algorithm.kl.reset_every {every} may have moved the reference between the "
            f"checkpoint of step {start} and step {step}, which a replay does not repeat: replay a "
            "step that follows a later checkpoint (train.checkpoint_every, train.keep_checkpoints)"
        )
    on_progress(step - start - 1, step - start)
    recorded = _recorded(folder, step)
    if not sample and recorded is None:
        missing = folder.episodes("train", step)
        raise ConfigError(f"{missing} does not exist: remove --recorded to sample the step again")
    fitted = await fit_step(components, step, folder.recorded)
    played, same_episodes = Played(recorded or ()), None
    if sample:
        played = ahead or await _sampled(components, step, state)
        if recorded is not None:
            same_episodes = tuple(played.episodes) == tuple(recorded)
    now: Mapping[str, float] = {}
    if learn:
        learned, _ = await learn_step(components, played, step, state, fitted, folder.recorded)
        now = figures.of_step(learned)
    on_progress(step - start, step - start)
    then = _metrics_of(folder, step)
    both = [name for name in now if name in then and not name.startswith("time/")]
    return ReplayResult(
        step=step,
        start=start,
        episodes=tuple(played.episodes),
        sampled=sample,
        same_episodes=same_episodes,
        compared=len(both),
        different={name: (then[name], now[name]) for name in both if then[name] != now[name]},
        same_weights=_same_weights(folder.checkpoints, components.models, step) if learn else None,
    )


def _metrics_of(folder: RunFolder, step: int) -> Mapping[str, float]:
    steps = (row for row in read_metrics(folder.metrics) if "play/tokens" in row)
    return next((row for row in steps if row["step"] == step), {})


async def _up_to(
    components: TrainComponents,
    folder: RunFolder,
    step: int,
    sample: bool,
    on_progress: Callable[[int, int], object],
) -> tuple[int, CreditState, Played | None]:
    """Train the models from a checkpoint up to the step before `step`.

    Returns the step of the checkpoint, the credit state, and the games of `step` if they are
    sampled and were played ahead in the run: before the step before it was learnt.
    """
    before = step - components.lag(step) if sample else step
    start, state = _restore(folder.checkpoints, components.models, before)
    ahead: Played | None = None
    for number in range(start + 1, step):
        on_progress(number - start - 1, step - start)
        if number == before:
            ahead = await _sampled(components, step, state)
        state = await _repeat(components, number, state, folder)
    return start, state, ahead


async def _sampled(components: TrainComponents, number: int, state: CreditState) -> Played:
    played = await play_step(components, tasks_of(components, number, state), number)
    refuse_too_many_faults(components, played.episodes, f"step {number}")
    return played


async def _repeat(
    components: TrainComponents, number: int, state: CreditState, folder: RunFolder
) -> CreditState:
    """Train on the recorded episodes of a step, or on episodes that are sampled again."""
    fitted = await fit_step(components, number, folder.recorded)
    episodes = _recorded(folder, number)
    if not episodes and components.train.max_lag:
        raise ConfigError(
            f"{folder.episodes('train', number)} does not exist; expected the episodes of step "
            f"{number}, because train.max_lag is 1 and the weights that played them are gone"
        )
    sampled = None if episodes else await _sampled(components, number, state)
    played = sampled or Played(episodes or ())
    _, state = await learn_step(components, played, number, state, fitted, folder.recorded)
    return state


def _restore(root: Path, models: Models, step: int) -> tuple[int, CreditState]:
    if not any(checkpoint.step_of(found) < step for found in checkpoint.folders(root)):
        return 0, CreditState()
    saved, _ = checkpoint.newest(root, before=step)
    with restoring(root / f"step-{saved.step:06d}"):
        models.load(saved.tensors, saved.state["weights"], saved.shards)
        return saved.step, credit_of(saved)


def _recorded(folder: RunFolder, number: int) -> Sequence[Episode] | None:
    if not folder.episodes("train", number).is_file():
        return None
    return folder.recorded("train", number)


def _same_weights(root: Path, models: Models, step: int) -> bool | None:
    there = [found for found in checkpoint.folders(root) if checkpoint.step_of(found) == step]
    if not there or checkpoint.what_is_wrong(there[0]) is not None:
        return None
    saved, _ = checkpoint.newest(root, before=step + 1)
    if saved.shards or models.write_shards is not None:
        return None
    return same_tensors(saved.tensors, models.state()[0])


def same_tensors(first: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Return whether the tensors are equal bit by bit."""
    return first.keys() == other.keys() and all(
        torch.equal(tensor.cpu(), other[name].detach().cpu()) for name, tensor in first.items()
    )


def last_played(folder: RunFolder) -> int:
    """Return the last step with recorded episodes or metrics.

    Raises: ConfigError if there is none.
    """
    names = [
        path.stem.removeprefix("train-")
        for path in folder.episodes("train", 0).parent.glob("train-*.jsonl")
    ]
    steps = [int(name) for name in names if name.isdecimal()]
    rows: list[dict[str, Any]] = read_metrics(folder.metrics) if folder.metrics.is_file() else []
    steps += [row["step"] for row in rows if "play/tokens" in row]
    if not steps:
        raise ConfigError(f"{folder.path} has no recorded training step: train it first")
    return max(steps)
