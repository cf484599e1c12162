"""Write and read checkpoints.

A checkpoint is written to a temporary folder, synced, hashed in a manifest, and renamed. The loader
uses the newest checkpoint whose manifest verifies.

    checkpoints/step-000060/
        manifest.json  state.json  tensors.safetensors  tensors-00002.safetensors ...
        home-00001/shard-00001-model-00001-of-00001.safetensors ...

Processes that share weights write a shard each (`models/shards.py`). The formats are safetensors
and JSON only, so loading a checkpoint cannot run code.
"""

import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from motet.errors import CannotResume, ConfigError
from motet.safety.reading import ROWS, read_json

SCHEMA = 4
_NAME = "step-{:06d}"
_STATE, _TENSORS = "state.json", "tensors.safetensors"
SHARDS = "home-{:05d}"
"""The folder of the shards of one home, which torch.distributed.checkpoint names."""
_SHARD = re.compile(r"home-\d{5}/shard-\d{5,}-model-\d{5}-of-\d{5}\.safetensors")
_FILE = re.compile(rf"state\.json|tensors(-\d{{5,}})?\.safetensors|{_SHARD.pattern}")
PART = 2**29
"""Maximum bytes of tensors in a file, unless one tensor is larger. Files are hashed while others
are written."""
MOST_COPIED = 2**30
"""Maximum bytes of tensors that are copied in order to be written in the background."""
_THREADS = 4
"""Each thread hashes one file or waits until it is on the disk."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to resume.

    `state` is plain JSON. `tensors` are weights and optimizer states by name.
    """

    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, Tensor]
    rank: float | None = None
    """The metric of the team at this step, if it was measured. A `Retention` keeps the highest."""
    shards: Sequence[Path] = ()
    """Its folders of shards, if it was read. `tensors` does not have theirs."""
    write_shards: Callable[[Path], None] | None = None
    """Makes the folders of shards in the given folder (`TeamWeights.write_shards`)."""


@dataclass(frozen=True)
class Retention:
    """Which checkpoints are kept.

    The `newest` ones, those of every `every`-th step (0: none), and the one with the highest rank.
    """

    newest: int
    every: int = 0

    def keeps(self, ranks: Mapping[int, float | None]) -> set[int]:
        """Return the steps to keep. `ranks` maps steps to ranks; in a tie the first counts."""
        steps = sorted(ranks)
        ranked = {step: rank for step, rank in ranks.items() if rank is not None}
        best = [min(ranked, key=lambda step: (-ranked[step], step))] if ranked else []
        return {
            *steps[-self.newest :],
            *(step for step in steps if self.every and step % self.every == 0),
            *best,
        }


# ------------------------------------------------------------------------------------------ writing


class CheckpointWriter:
    """Writes checkpoints in a background thread, one at a time, while the run goes on.

    The run waits while the tensors are copied to main memory. If the previous checkpoint is not yet
    written, it also waits for that. There is at most one copy, and its memory is reused. Tensors of
    more than `MOST_COPIED` bytes are not copied: the run waits until they are written.
    """

    def __init__(self, root: Path, retention: Retention) -> None:
        self._root, self._retention = root, retention
        self.pinned: set[int] = set()
        """Steps whose checkpoints are kept too."""
        self._copies: dict[str, Tensor] = {}
        self._thread: threading.Thread | None = None
        self._failed: OSError | None = None

    def write(
        self, checkpoint: Checkpoint, rests_on: Sequence[Path] = (), *, anew: bool = False
    ) -> None:
        """Start to write a checkpoint. Raises: the same as `wait`.

        `rests_on` are files that must be on the disk before the checkpoint is valid. `anew`: as in
        `save`.
        """
        self.wait()
        size = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
        if checkpoint.write_shards is not None or size > MOST_COPIED:
            self._write(checkpoint, rests_on, anew)
            self.wait()
            return
        copy = Checkpoint(
            checkpoint.step,
            json.loads(json.dumps(checkpoint.state)),
            self._copy(checkpoint.tensors),
            checkpoint.rank,
        )
        self._thread = threading.Thread(
            target=self._write, args=(copy, rests_on, anew), name="checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until everything is written. Raises: OSError, once, if writing failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failed, self._failed = self._failed, None
        if failed is not None:
            raise failed

    def _copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        for name, tensor in tensors.items():
            held = self._copies.get(name)
            if held is None or held.shape != tensor.shape or held.dtype != tensor.dtype:
                self._copies[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            self._copies[name].copy_(tensor.detach())
        return {name: self._copies[name] for name in tensors}

    def _write(self, checkpoint: Checkpoint, rests_on: Sequence[Path], anew: bool) -> None:
        try:
            for path in rests_on:
                _sync(path)
            save(self._root, checkpoint, self._retention, self.pinned, anew=anew)
        except (OSError, SafetensorError) as error:
            self._failed = _refused(error, self._root / _NAME.format(checkpoint.step))


def _refused(error: OSError | SafetensorError, path: Path) -> OSError:
    """Return the system's error, with the name of the checkpoint.

    safetensors has the error number of the system only in its message.
    """
    if isinstance(error, OSError):
        return OSError(error.errno, error.strerror, error.filename or str(path))
    found = re.search(r"os error (\d+)", str(error))
    return (
        OSError(int(found[1]), os.strerror(int(found[1])), str(path))
        if found
        else OSError(None, str(error), str(path))
    )


def save(
    root: Path,
    checkpoint: Checkpoint,
    retention: Retention,
    pinned: Collection[int] = (),
    *,
    anew: bool = False,
) -> Path:
    """Write `root/step-NNNNNN` atomically and remove the checkpoints that are not kept.

    `pinned` are steps to keep whatever `retention` says.

    A reader sees all of it or nothing. A valid checkpoint of the same step stays as it is, because
    the same step of the same run has the same content. With `anew` it is replaced: an evaluation
    has ranked the step after it was saved.
    """
    final = root / _NAME.format(checkpoint.step)
    if anew or what_is_wrong(final) is not None:
        root.mkdir(parents=True, exist_ok=True)
        for left in root.glob(".step-*"):  # left over by a run that was killed
            _delete(left)
        beside = root / f".{final.name}.writing"
        try:
            _write_files(beside, checkpoint)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)  # a full disk needs the space
            raise
        leaving = _aside(final)
        beside.rename(final)
        _sync(root)
        _delete(leaving)
    there = {step_of(folder): folder for folder in folders(root)}
    past = {step: _rank(folder) for step, folder in there.items() if step <= checkpoint.step}
    # Also remove later steps: they are broken, because a resumed run starts from a valid one.
    for step in there.keys() - retention.keeps(past) - set(pinned):
        _remove(there[step])
    return final


def _write_files(folder: Path, checkpoint: Checkpoint) -> None:
    folder.mkdir()
    (folder / _STATE).write_text(json.dumps(dict(checkpoint.state), sort_keys=True))
    with ThreadPoolExecutor(_THREADS) as threads:
        hashes = {_STATE: threads.submit(_synced, folder / _STATE)}
        for number, part in enumerate(_parts(checkpoint.tensors), start=1):
            name = _TENSORS if number == 1 else f"tensors-{number:05d}.safetensors"
            save_file(
                {name: tensor.detach().cpu().contiguous() for name, tensor in part.items()},
                folder / name,
            )
            hashes[name] = threads.submit(_synced, folder / name)
        if checkpoint.write_shards is not None:
            checkpoint.write_shards(folder)
        for path in sorted(folder.glob("home-*/*")):
            hashes[f"{path.parent.name}/{path.name}"] = threads.submit(_synced, path)
    files = {name: hash_.result() for name, hash_ in sorted(hashes.items())}
    manifest = {"schema": SCHEMA, "step": checkpoint.step, "rank": checkpoint.rank, "files": files}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in (folder / "manifest.json", *folder.glob("home-*"), folder):
        _sync(path)


def _parts(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Yield the tensors in order, in parts of at most PART bytes; at least one part."""
    part: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        if part and size + tensor.nbytes > PART:
            yield part
            part, size = {}, 0
        part[name] = tensor
        size += tensor.nbytes
    yield part


def _synced(path: Path) -> str:
    """Sync a file to the disk and return its hash."""
    found = file_hash(path)
    _sync(path)
    return found


def _remove(folder: Path) -> None:
    """Remove a checkpoint; for readers it disappears at once."""
    _delete(_aside(folder))


def _aside(folder: Path) -> Path:
    """Give a checkpoint, if it is there, a hidden name, and return that."""
    leaving = folder.with_name(f".{folder.name}.removing")
    if folder.is_symlink() or folder.exists():
        folder.rename(leaving)
    return leaving


def _delete(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def recover(root: Path) -> None:
    """Give a checkpoint its name back that a kill has left under a hidden one, while it was written
    anew: the new one if it is whole, else the old one."""
    for kind in ("writing", "removing"):
        for left in sorted(root.glob(f".step-*.{kind}")):
            number = left.name.removeprefix(".step-").removesuffix(f".{kind}")
            if not number.isdecimal() or (root / f"step-{number}").exists():
                continue
            if what_is_wrong(left, int(number)) is None:
                left.rename(root / f"step-{number}")


def folders(root: Path) -> list[Path]:
    """Return the checkpoint folders, newest first, valid or not."""
    found = (path for path in root.glob("step-*") if path.name.removeprefix("step-").isdecimal())
    return sorted(found, key=step_of, reverse=True)


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix("step-"))


def newest(root: Path, before: int | None = None) -> tuple[Checkpoint, list[str]]:
    """Return the newest valid checkpoint, and one line for every newer one that is broken.

    `before`: consider only steps below this one.

    Raises: ConfigError if there is none.
    """
    broken: list[str] = []
    for folder in folders(root):
        if before is not None and step_of(folder) >= before:
            continue
        fault = what_is_wrong(folder)
        if fault is None:
            return _read(folder), broken
        broken.append(f"{folder}: {fault}")
    found = "; ".join(broken) if broken else "none found"
    raise CannotResume(f"{root} has no valid checkpoint to resume from ({found}): restore one")


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint in a folder. Raises: ConfigError if it is not valid."""
    fault = what_is_wrong(folder)
    if fault is not None:
        raise CannotResume(f"{folder} is not a valid checkpoint: {fault}: restore it")
    return _read(folder)


def _read(folder: Path) -> Checkpoint:
    state = read_json(folder / _STATE, ROWS)
    names = read_json(folder / "manifest.json")["files"]
    files = [folder / name for name in names if name != _STATE]
    tensors: dict[str, Tensor] = {}
    for path in (file for file in files if file.parent == folder):
        try:
            tensors |= load_file(path)
        except SafetensorError as error:
            raise CannotResume(f"{path} cannot be read: {error}: restore it") from error
    shards = dict.fromkeys(path.parent for path in files if path.parent != folder)
    return Checkpoint(step_of(folder), state, tensors, _rank(folder), [*shards])


def what_is_wrong(folder: Path, step: int | None = None) -> str | None:
    """Return what is wrong with a checkpoint, in one phrase. None if it is valid.

    It is valid if the manifest is for its step and every file has the hash in the manifest.

    Args:
        step: its step. Default: that of its name.
    """
    step = step_of(folder) if step is None else step
    manifest_path = folder / "manifest.json"
    if not manifest_path.is_file():
        return "no manifest.json"
    try:
        manifest = read_json(manifest_path)
    except (ConfigError, OSError):
        return "manifest.json is not JSON"
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return f"manifest.json does not have schema {SCHEMA}"
    files = manifest.get("files")
    if manifest.get("step") != step or not isinstance(files, dict):
        return f"manifest.json does not belong to step {step}"
    if not {_STATE, _TENSORS} <= files.keys() or not all(map(_FILE.fullmatch, files)):
        return (
            f"manifest.json lists {', '.join(sorted(files)) or 'no files'}, which is not a "
            "checkpoint"
        )
    for name in files:
        if not (folder / name).is_file():
            return f"{name} is missing"
    with ThreadPoolExecutor(_THREADS) as threads:
        found = threads.map(file_hash, (folder / name for name in files))
        changed = [name for name, hash_ in zip(files, found, strict=True) if hash_ != files[name]]
    return f"{changed[0]} was changed after it was written" if changed else None


def _rank(folder: Path) -> float | None:
    """Return the rank, or None if it was not measured or the manifest cannot be read."""
    try:
        rank = read_json(folder / "manifest.json")["rank"]
    except (ConfigError, OSError, KeyError, TypeError):
        return None
    return rank if isinstance(rank, float) else None


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
