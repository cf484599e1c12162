"""Checkpoints: written beside, synced, hashed in a manifest, renamed; the loader takes the newest whose manifest verifies.

    checkpoints/step-000060/  manifest.json  state.json  tensors.safetensors

Safetensors and JSON only: nothing in a checkpoint can run code.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from motet.errors import ConfigError

SCHEMA = 2


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to go on: `state` is plain JSON, `tensors` are weights and optimiser moments by name."""

    step: int
    state: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


def save(root: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Writes `root/step-NNNNNN` so that a reader sees all of it or nothing; keeps the newest `keep`."""
    final = root / f"step-{checkpoint.step:06d}"
    beside = root / f".{final.name}.writing"
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()},
        beside / "tensors.safetensors",
    )
    (beside / "state.json").write_text(json.dumps(dict(checkpoint.state), sort_keys=True))
    hashes = {path.name: _hash(path) for path in sorted(beside.iterdir())}
    (beside / "manifest.json").write_text(json.dumps({"schema": SCHEMA, "step": checkpoint.step, "files": hashes}))
    for path in beside.iterdir():
        _sync(path)
    _sync(beside)
    if final.exists():
        shutil.rmtree(final)
    beside.rename(final)
    _sync(root)
    for old in folders(root)[keep:]:
        shutil.rmtree(old)
    return final


def folders(root: Path) -> list[Path]:
    """Checkpoint folders, newest first, sound or not."""
    return sorted((path for path in root.glob("step-*") if path.is_dir()), reverse=True) if root.is_dir() else []


def newest(root: Path) -> tuple[Checkpoint, list[str]]:
    """The newest sound checkpoint, and a line for every newer one that is broken.

    Raises: ConfigError where there is none.
    """
    broken: list[str] = []
    for folder in folders(root):
        fault = what_is_wrong(folder)
        if fault is None:
            state = json.loads((folder / "state.json").read_text())
            tensors = load_file(folder / "tensors.safetensors")
            return Checkpoint(int(folder.name.removeprefix("step-")), state, tensors), broken
        broken.append(f"{folder}: {fault}")
    found = "; ".join(broken) if broken else "there is none"
    raise ConfigError(f"{root} holds no sound checkpoint to resume from ({found}): start again with --overwrite")


def what_is_wrong(folder: Path) -> str | None:
    """One phrase, or None for a checkpoint whose every file is what the manifest says."""
    manifest_path = folder / "manifest.json"
    if not manifest_path.is_file():
        return "no manifest.json"
    try:
        manifest = json.loads(manifest_path.read_text())
    except ValueError:
        return "manifest.json is not JSON"
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        return f"manifest.json is not of schema {SCHEMA}"
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if _hash(path) != expected:
            return f"{name} is not what was written"
    return None


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
