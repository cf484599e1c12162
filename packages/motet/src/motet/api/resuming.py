"""Checks whether a run can be resumed.

The config must be the same except for keys that do not change results. A valid checkpoint and the
same tasks are required.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motet.api.code_record import changed_code, changed_versions
from motet.config.load import load_config
from motet.config.schema import RunConfig
from motet.core import Task
from motet.errors import CannotResume, ConfigError
from motet.trainer import checkpoint
from motet.trainer.ahead import pending_of
from motet.trainer.checkpoint import Checkpoint
from motet.trainer.metrics import kept_lines, read_metrics
from motet.trainer.run_folder import RunFolder
from motet.trainer.run_state import fingerprint, machine
from motet.trainer.saving import check_state
from motet.user_code.objects import described, is_object

_SERVICE = r"(base_url|key_variable|timeout_seconds|retries|concurrency)"
FREE = re.compile(
    r"threads|report\..*|alarms\.(?!rollback).*|sandbox\.workers|cluster\.(?!samplers\.engine$).*|"
    rf"(expert|comparator\.endpoint|policies\.[^.]+\.endpoint)\.{_SERVICE}|"
    rf"verifier\.(.+\.)?({_SERVICE}|batch_size)|"
    r"rollout\.(timeout_seconds|call_threads|retries)|"
    r"train\.(checkpoint_every|keep_checkpoints|keep_every|checkpoint_beside|max_fault_share)"
)
"""Config keys that may change on resume, because they do not change results. docs/reliability.md
lists them.

`threads` is one of them: another number of threads is a warning.
"""
_DEVICE = re.compile(r"models\.[^.]+\.device")
"""Keys that may change on resume and change the last bits, as another machine does."""
_FEW_STEPS = 50
"""So many steps a run may take while its first checkpoint is written."""
_WITHOUT_CLUSTER = {"cluster.samplers.engine": "own"}
"""The settings of `cluster` whose results are those of a run without the section."""


@dataclass(frozen=True)
class Resumed:
    """The checkpoint to resume from. None if the run was killed before its first checkpoint."""

    checkpoint: Checkpoint | None = None
    warnings: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """One line for every invalid checkpoint. It changes no result, so the summary does not have it,
    and the resumed run ends with the summary of an unbroken one."""


def resumed(place: Path, settings: RunConfig, tasks: Mapping[str, Sequence[Task]]) -> Resumed:
    """Return the newest valid checkpoint of the run in `place`, with warnings for the user.

    `tasks` are the current tasks of each split.

    Raises: ConfigError if the config or the tasks differ, if the metrics
    file is incomplete, or if no checkpoint is valid.
    """
    if not (place / "config.yaml").is_file():
        raise ConfigError(f"{place} has no run to resume: start it without --resume")
    warnings = _check_config(place, settings)
    changed = changed_code(RunFolder(place), settings)
    warnings += [f"{line}: the rest of the run may differ" for line in changed]
    root = place / "checkpoints"
    checkpoint.recover(root)
    if not checkpoint.folders(root):
        _refuse_lost(RunFolder(place), settings)
        return Resumed(warnings=warnings)
    found, broken = checkpoint.newest(root)
    check_state(found.state, root / f"step-{found.step:06d}" / "state.json")
    then, now = found.state["machine"], machine()
    for split, before in found.state["tasks"].items():
        if fingerprint(tasks.get(split, ())) != before:
            raise CannotResume(
                f"data.{split} gives other tasks than at the start of the run in {place}; "
                "expected the same tasks: restore them"
            )
    said = changed_versions(RunFolder(place), settings)
    differs = [
        f"{key} was {then[key]} and is {now[key]}"
        for key in now
        if then.get(key) != now[key] and key not in said
    ]
    if differs:
        same = f"; threads={then['threads']} keeps the number of threads" * (
            then["threads"] != now["threads"]
        )
        warnings.append(
            f"the machine has changed ({'; '.join(differs)}): results may differ from an "
            f"uninterrupted run in the last bits{same}"
        )
    folder = RunFolder(place)
    _check_metrics(folder, found)
    pending_of(folder, found.step, found.state)
    if not folder.metrics.exists():
        warnings.append(
            f"{folder.metrics} does not exist, so its {found.state['metrics_lines']} lines are lost"
        )
    skipped = [f"skipped an invalid checkpoint: {line}" for line in broken]
    return Resumed(found, warnings, skipped)


def _refuse_lost(folder: RunFolder, settings: RunConfig) -> None:
    """Refuse to begin a run again that has lost its checkpoints. One that was killed before it
    wrote the first has no team, and not many steps.

    Raises: CannotResume.
    """
    lines = read_metrics(folder.metrics) if folder.metrics.is_file() else []
    last = max((line["step"] for line in lines), default=0)
    if folder.team.is_dir() or last > max(settings.train.checkpoint_every or 0, _FEW_STEPS):
        raise CannotResume(
            f"{folder.checkpoints} has no checkpoint, but the run was trained up to step {last}; "
            "expected its checkpoints: restore them, or start it anew with --overwrite"
        )


def _check_metrics(folder: RunFolder, found: Checkpoint) -> None:
    """Raise ConfigError if the metrics file differs from what the checkpoint recorded. A deleted
    file is allowed."""
    if folder.metrics.exists():
        kept_lines(folder.metrics, found.state["metrics_lines"], found.state["metrics_digest"])


def _check_config(place: Path, settings: RunConfig) -> list[str]:
    """Return warnings about objects of Python that were replaced, and models that moved.

    Raises: CannotResume if another key differs that changes results.
    """
    before = load_config(place / "config.yaml")
    then = _WITHOUT_CLUSTER | _flat(before.model_dump(mode="json"))
    now = _WITHOUT_CLUSTER | _flat(settings.model_dump(mode="json"))
    changed = [
        key for key in {**then, **now} if then.get(key) != now.get(key) and not FREE.fullmatch(key)
    ]
    warnings = []
    if "train.steps" in changed and _may_grow(before, settings):
        changed.remove("train.steps")
        steps = before.train.steps
        if settings.train.max_lag and steps is not None:
            warnings.append(
                f"train.steps was {steps} and is {settings.train.steps}: step {steps + 1} "
                "is played with the newest weights, so the run differs from an uninterrupted one "
                "of this length (train.max_lag 1)"
            )
    moved = [key for key in changed if _DEVICE.fullmatch(key)]
    changed = [key for key in changed if key not in moved]
    warnings += [
        f"{key} was {then.get(key)} and is {now.get(key)}: results may differ from an "
        "uninterrupted run in the last bits"
        for key in moved
    ]
    replaced = [key for key in changed if is_object(then.get(key)) and now.get(key) is not None]
    parts = [key.rpartition(".") for key in replaced]
    sections = tuple(f"{section}." for section, _, key in parts if key in ("name", "kind"))
    changed = [key for key in changed if key not in replaced and not key.startswith(sections)]
    if changed:
        differences = "; ".join(
            f"{key} was {then.get(key)} and is {now.get(key)}" for key in changed
        )
        raise CannotResume(
            f"{place} was started with another config: {differences}. Resume with "
            f"{place / 'config.yaml'}"
        )
    return warnings + [
        f"{key} was {described(then[key])} and is {now.get(key)}: the rest of the run may differ"
        for key in replaced
    ]


def _may_grow(before: RunConfig, settings: RunConfig) -> bool:
    """Return whether `train.steps` may grow: the longer run starts like the shorter one if no
    learning rate, no entropy bonus and no mean of the weights depends on the number of steps."""
    then, now = before.train.steps, settings.train.steps
    rates = [
        settings.critic_optimizer,
        *(settings.optimizer_of(name) for name in settings.policies),
    ]
    return (
        then is not None
        and now is not None
        and now > then
        and all(rate.schedule == "constant" for rate in rates)
        and settings.algorithm.entropy_final is None
        and not settings.train.average_share
    )


def _flat(value: Any, key: str = "") -> dict[str, Any]:
    """Flatten nested values to dotted keys.

    Empty containers are leaves too. None values are dropped, so a missing section equals one in
    which everything is None.
    """
    items = (
        value.items()
        if isinstance(value, Mapping)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found: dict[str, Any] = {}
    for name, one in items:
        found |= _flat(one, f"{key}.{name}" if key else str(name))
    return found or ({} if value is None else {key: value})
