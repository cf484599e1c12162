"""What a run saves: checkpoints, the best team so far, and the team at the end.

The state in a checkpoint is checked before a run resumes from it. A manifest has hashes of the
files of its checkpoint. So a checkpoint that somebody wrote anew, or that another version wrote,
has right hashes and may still hold anything.
"""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, TypeAdapter, ValidationError

from motet.core import CreditState, SamplingState, Success
from motet.core.records import as_json
from motet.errors import CannotResume, MotetError, shortened
from motet.rollout.summary import EndpointUse
from motet.trainer.ahead import pending_of, pending_state
from motet.trainer.checkpoint import (
    Checkpoint,
    CheckpointWriter,
    Retention,
    folders,
    read_checkpoint,
    step_of,
)
from motet.trainer.components import TrainComponents
from motet.trainer.loop import Played
from motet.trainer.metrics import MetricsWriter
from motet.trainer.model_folders import whole_folder
from motet.trainer.reference_reset import ReferenceWatch
from motet.trainer.run_folder import RunFolder, write_json
from motet.trainer.run_state import RunState, fingerprint


@dataclass
class LastStep:
    """The last finished step, with what a checkpoint of it needs."""

    step: int
    state: CreditState
    facts: Mapping[str, Any]
    """The facts of the weights after this step. Every update changes them, so they tell whether the
    weights are still those of this step."""
    evaluated: bool = True
    """False if an evaluation after this step is still to be done."""
    rank: float | None = None
    saved: bool = False
    pending: Played | None = None
    """The games of the next step, if they were played ahead."""


class RunSaver:
    """Writes the weights of one run into its folder."""

    def __init__(
        self, components: TrainComponents, folder: RunFolder, metrics: MetricsWriter
    ) -> None:
        self._folder, self._metrics = folder, metrics
        self._models, self._train = components.models, components.train
        self._fingerprints = {
            "train": fingerprint(components.tasks["train"]),
            "eval": fingerprint(components.heldout),
        }
        retention = Retention(self._train.keep_checkpoints, self._train.keep_every)
        self._writer = CheckpointWriter(folder.checkpoints, retention)
        self._unsynced: list[Path] = []

    def sync_later(self, path: Path) -> None:
        """Have this file on the disk before the next checkpoint counts."""
        self._unsynced.append(path)

    def save(self, last_step: LastStep, run_state: RunState) -> None:
        """Write a checkpoint, in the background if the config says so.

        The checkpoint of a step that has been saved is replaced.
        """
        tensors, facts = self._models.state()
        state = {
            **run_state.state(),
            **as_json(last_step.state),
            "weights": facts,
            "evaluated": last_step.evaluated,
            "tasks": self._fingerprints,
            "metrics_lines": self._metrics.lines,
            "metrics_digest": self._metrics.digest,
            **pending_state(self._folder, last_step.step, last_step.pending),
        }
        if run_state.rollback is not None:
            self._writer.pinned = run_state.rollback.kept(self._train.keep_checkpoints)
        rests_on, self._unsynced = (self._metrics.path, *self._unsynced), []
        self._writer.write(
            Checkpoint(
                last_step.step,
                state,
                tensors,
                last_step.rank,
                write_shards=self._models.write_shards,
            ),
            rests_on,
            anew=last_step.saved,
        )
        last_step.saved = True
        if not self._train.checkpoint_beside:
            self._writer.wait()

    def keep_best(
        self, last_step: LastStep, run_state: RunState, measured: Mapping[str, float]
    ) -> None:
        """Rank a step by `keep_best`, and save the team to `best` if it is the highest so far.

        Raises: MotetError if the run has no such metric.
        """
        if not self._ranks_by(measured):
            return
        metric = self._train.keep_best
        assert metric is not None
        last_step.rank = float(measured[metric])
        if run_state.best is not None and last_step.rank <= run_state.best:
            return
        run_state.best = last_step.rank
        with whole_folder(self._folder.best) as path:
            best = RunFolder(path)
            shutil.copy(self._folder.config, best.config)
            if self._folder.models.is_dir():
                best.models.symlink_to(Path("..") / self._folder.models.name)
            if self._folder.answers.is_file():
                best.answers.symlink_to(Path("..") / self._folder.answers.name)
            self._models.save(best.team)
            found = {"step": last_step.step, "metric": metric, "value": last_step.rank}
            write_json(path / "best.json", found)

    def check_best(self, measured: Mapping[str, float]) -> None:
        """Check by the metrics of the first evaluation that `keep_best` can be ranked by.

        Raises: MotetError if it is a metric of evaluations, and none of these.
        """
        metric = self._train.keep_best
        if metric is not None and metric.startswith("evaluate/") and not measured:
            raise MotetError(
                f"train.keep_best is {metric}, and there are no held-out tasks; expected held-out "
                "tasks, or a metric of the games that are trained on, such as play/success"
            )
        self._ranks_by(measured)

    def _ranks_by(self, measured: Mapping[str, float]) -> bool:
        """Return whether `keep_best` is one of these metrics of a step or of an evaluation.

        Raises: MotetError if the run has no such metric.
        """
        metric = self._train.keep_best
        if metric is None:
            return False
        evaluated = any(name.startswith("evaluate/") for name in measured)
        if metric.startswith("evaluate/") != evaluated:
            return False
        if metric not in measured:
            known = sorted(name for name in measured if name.startswith(("evaluate/", "play/")))
            raise MotetError(
                f"train.keep_best is {metric}, which is not a metric of this run; expected one of "
                f"{', '.join(known)}"
            )
        return True

    def save_team(self) -> None:
        """Wait for the last checkpoint, and save the team."""
        self._writer.wait()
        with whole_folder(self._folder.team) as folder:
            self._models.save(folder)

    def back_to_best(self, run_state: RunState) -> CreditState:
        """Restore the weights, the optimizers and the credit's state of the best checkpoint, and
        its reference.

        The learning rates are lowered by all rollbacks so far. Raises: CannotResume.
        """
        watch = run_state.rollback
        assert watch is not None
        self._writer.wait()
        step = watch.standing.saved[-1]
        place = self._folder.checkpoints / f"step-{step:06d}"
        best = read_checkpoint(place)
        with restoring(place):
            facts = watch.slowed(best.state["weights"])
            facts["versions"] = self._models.facts()["versions"]  # a number is never used again
            self._models.load(best.tensors, facts, best.shards)
            if run_state.reference is not None:
                run_state.reference = ReferenceWatch(**best.state["reference"])
            return credit_of(best)

    def save_after_failure(
        self, last_step: LastStep | None, run_state: RunState
    ) -> Exception | None:
        """Save the last finished step if the weights are still its own. Returns what failed."""
        try:
            unsaved = last_step is not None and not last_step.saved
            if last_step and unsaved and self._models.facts() == last_step.facts:
                self.save(last_step, run_state)
            self._writer.wait()
        except (MotetError, OSError) as failed:
            return failed
        return None

    def saved_step(self) -> int | None:
        """The step of the newest checkpoint."""
        there = folders(self._folder.checkpoints)
        return step_of(there[0]) if there else None


def credit_of(saved: Checkpoint) -> CreditState:
    """The credit state in a checkpoint."""
    parts = {part.name for part in fields(CreditState)} & saved.state.keys()
    return TypeAdapter(CreditState).validate_python({part: saved.state[part] for part in parts})


def last_step_of(saved: Checkpoint, folder: RunFolder) -> LastStep:
    """The finished step that a checkpoint holds. Raises: CannotResume as `pending_of`."""
    state = saved.state
    return LastStep(
        saved.step,
        credit_of(saved),
        state["weights"],
        state["evaluated"],
        saved.rank,
        saved=True,
        pending=pending_of(folder, saved.step, state),
    )


# -------------------------------------------------------------------------- what a checkpoint holds

_MEND = "restore it, or delete that checkpoint to resume from an earlier one"
_UNFIT = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What restoring raises for values of another run. The errors of Motet are not among them."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Figures(_Part):
    success: float | None
    reward: float | None
    faults: int


class _Profile(_Part):
    model_config = ConfigDict(extra="forbid")

    steps: NonNegativeInt = 0
    seconds: dict[str, float] = {}


class _Weights(_Part):
    versions: dict[str, int]
    optimizers: dict[str, dict[str, Any]]
    snapshots: dict[str, list[NonNegativeInt]] = {}


class _Pending(_Part):
    sha256: str
    seconds: dict[str, float]


class _Machine(_Part):
    threads: int


class _State(_Part):
    """The keys without a default are those that every checkpoint of this schema has."""

    machine: _Machine
    tasks: dict[str, str]
    metrics_lines: NonNegativeInt
    metrics_digest: str
    weights: _Weights
    averages: dict[str, tuple[float, float]]
    kl_coefficients: dict[str, float]
    evaluated: bool
    heldout: dict[str, _Figures] = {}
    best: float | None = None
    profile: _Profile = _Profile()
    watch: dict[str, int] | None = None
    rollback: dict[str, Any] | None = None
    reference: dict[str, Any] | None = None
    successes: dict[str, Success] = {}
    sampling: SamplingState = SamplingState()
    alarms: list[dict[str, Any]] = []
    tokens: NonNegativeInt = 0
    step_seconds: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    endpoints: dict[str, EndpointUse] = {}
    pending: _Pending | None = None


def check_state(state: Any, path: Path) -> None:
    """Check the state of a checkpoint. Raises: CannotResume with the file and the first key."""
    try:
        _State.model_validate(state, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "the whole"
        raise CannotResume(
            f"{path}: {shortened(key)}: {first['msg']}; expected the state of a run: {_MEND}"
        ) from error


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Name the checkpoint if what it holds does not fit the run. Raises: CannotResume."""
    try:
        yield
    except _UNFIT as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        said = shortened(f"{type(error).__name__}: {error}")
        raise CannotResume(f"{path} does not fit this run: {said}: {_MEND}") from error
