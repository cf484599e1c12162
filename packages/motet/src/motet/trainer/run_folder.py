"""The folder of a run: the paths of its files, who may start there, and how files are written.

runs/NAME/  config.yaml  metrics.jsonl  warmup.jsonl  summary.json  code.json  curve.png
            episodes/  checkpoints/  models/  team/  best/  evaluations/  tensorboard/
            answers.jsonl, if a policy is behind an endpoint
            before.png and after.png, if the environment draws
"""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from motet.core import Episode
from motet.errors import ConfigError
from motet.rollout.record import read_episodes


class RunFolder:
    """The paths of all files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        """The resolved config."""
        self.metrics = path / "metrics.jsonl"
        """One JSON object per line: see `MetricsWriter`."""
        self.warmup = path / "warmup.jsonl"
        """The metrics of the warm-up, in the same format, with steps of its own."""
        self.code = path / "code.json"
        """Hashes of the user's own files that the run loaded, if it loaded any."""
        self.summary = path / "summary.json"
        self.curve = path / "curve.png"
        self.checkpoints = path / "checkpoints"
        """Checkpoints, from which a killed run resumes."""
        self.models = path / "models"
        """Base models that the run created or warmed up."""
        self.answers = path / "answers.jsonl"
        """What policies behind endpoints answered: see `motet.rollout.answer_file`."""
        self.team = path / "team"
        """The trained policies, in the folder formats of transformers and PEFT."""
        self.best = path / "best"
        """A run folder with the team at which train.keep_best was highest, and best.json."""
        self.evaluations = path / "evaluations"
        """What `motet evaluate` and other commands found, as JSON. Training never reads it."""
        self.tensorboard = path / "tensorboard"

    def drawing(self, name: str) -> Path:
        """The first held-out task in the evaluation `name`, if the environment draws."""
        return self.path / f"{name}.png"

    def episodes(self, kind: str, step: int) -> Path:
        """The episodes of one step. `kind` is "train", "pairs" (those that a reward model learned
        from before the step) or the name of an evaluation."""
        return self.path / "episodes" / f"{kind}-{step:06d}.jsonl"

    def recorded(self, kind: str, step: int) -> Sequence[Episode]:
        """Read the episodes of one step.

        Raises: ConfigError if they are missing or broken.
        """
        path = self.episodes(kind, step)
        if not path.is_file():
            raise ConfigError(f"{path} does not exist; expected the episodes of step {step}")
        found = read_episodes(path)
        if found.torn:
            raise ConfigError(
                f"{path} ends in the middle of an episode: delete it, so that the step is sampled "
                "again"
            )
        return found.episodes


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Keep other processes from training in the run folder `path`.

    The kernel's lock on a file beside the folder is held, so it ends with the process, however that
    dies. A file that no process holds means nothing.

    Raises: ConfigError if another process holds the lock, or if the file cannot be created.
    """
    place = Path(os.path.realpath(path))
    made = [parent for parent in place.parents if not parent.exists()]
    lock = FileLock(place.with_name(f".{place.name}.lock"), blocking=False)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise ConfigError(
            f"another process uses {path}: wait until it ends, or stop it, then continue with "
            "--resume"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be locked: {error.strerror}; expected a writable folder"
        ) from error
    try:
        yield
    finally:
        # Remove the file while the lock is held: no other process can hold the lock now.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
        for parent in made:
            with suppress(OSError):  # the folder is not empty any more
                parent.rmdir()


@contextmanager
def claimed(path: Path, *, resume: bool = False, overwrite: bool = False) -> Iterator[RunFolder]:
    """Prepare the folder of a run that is about to start. It is empty, unless the run resumes.

    When a run resumes, partial files of a killed process are removed. If the body raises
    ConfigError, the folder is restored: an overwritten run is put back, and a new folder is
    removed. If a warm-up is finished, the new folder stays, in place of an overwritten run, and the
    error says how to use it.

    Raises: the same as `refuse`, and ConfigError if nothing can be written.
    """
    refuse(path, resume=resume, overwrite=overwrite)
    new, before = path, path.with_name(f".{path.name}.before")
    while not new.parent.exists():
        new = new.parent
    shutil.rmtree(before, ignore_errors=True)
    try:
        if path.exists() and not resume:
            path.rename(before)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be created: {error.strerror}; expected a writable folder"
        ) from error
    for left in (one for folder in (path, path / "models") for one in folder.glob(".*.writing")):
        shutil.rmtree(left) if left.is_dir() else left.unlink()  # left over by a killed process
    try:
        yield RunFolder(path)
    except ConfigError as error:
        if resume:
            raise
        if warmed := _warmed_models(RunFolder(path)):
            settings = " ".join(f"models.{one.name}.path={one}" for one in warmed)
            raise ConfigError(
                f"{error}. What the warm-up has made is kept. To start from it, take another name "
                f"for the run, and set: warmup=null {settings}"
            ) from error
        shutil.rmtree(new)
        if before.exists():
            before.rename(path)
        raise
    finally:
        shutil.rmtree(before, ignore_errors=True)


def _warmed_models(folder: RunFolder) -> list[Path]:
    """Return the models whose warm-up is finished, if the run has one."""
    if not folder.warmup.is_file() or not folder.models.is_dir():
        return []
    return sorted(one for one in folder.models.iterdir() if not one.name.startswith("."))


def holds_run(path: Path) -> bool:
    """Test whether the folder is that of a run, which may not have a checkpoint yet."""
    return any((path / name).exists() for name in ("config.yaml", "metrics.jsonl"))


def refuse(path: Path, *, resume: bool, overwrite: bool) -> None:
    """Check whether a run may start in this folder. Nothing is changed.

    Raises: ConfigError if a run exists and neither flag is given, or if the path is not a run
    folder.
    """
    if resume and overwrite:
        raise ConfigError("got --resume and --overwrite, expected at most one of them")
    blocking = next(
        (parent for parent in path.parents if parent.exists() and not parent.is_dir()), None
    )
    if blocking is not None:
        raise ConfigError(f"{path} cannot be created: {blocking} is a file; expected a folder")
    is_run = holds_run(path)
    if resume and not is_run:
        raise ConfigError(f"{path} has no run to resume: start it without --resume")
    if resume or not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_run:
        raise ConfigError(
            f"{path} exists and is not a run folder: move it away, or set another name"
        )
    if not overwrite:
        raise ConfigError(
            f"{path} exists; expected a new name: --resume continues that run, --overwrite "
            "deletes it and starts again (in Python: resume=True, overwrite=True)"
        )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Add `path` to an OSError, because a failed write does not know its file. Raises: OSError."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees the old file or all of the new one."""
    beside = path.with_name(f".{path.name}.writing")
    with writing(path):
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Write plain values as indented JSON."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
