"""Keep what evaluations find in the folders of their runs, where `motet view` shows it."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motet.assembly.trained import steps_behind
from motet.config.paths import RUN_CONFIG, is_exported, run_of_checkpoint
from motet.core.records import as_json
from motet.errors import ConfigError
from motet.safety.secret_values import shown_config
from motet.trainer.run_folder import RunFolder, write_json

ABOUT = "about"
"""The entry of a kept file that says how it was made."""
_LONGEST = 120
"""Characters of the name of a file."""


@dataclass(frozen=True)
class _Shelf:
    """Where the evaluations of a target are kept."""

    run: Path
    """The run folder. A checkpoint and the best team belong to one."""
    part: str
    """The name of a checkpoint, "best", or nothing."""
    step: int | None
    """The training steps behind the weights."""
    identity: tuple[int, int]


class Keeper:
    """Keeps an evaluation of some targets. Make it before they are played.

    A run is never harmed: one that was started anew meanwhile, or that cannot be written, stays as
    it is. A run that trains does not read what is kept.
    """

    def __init__(self, targets: Sequence[str | Path]) -> None:
        self._exports = [place for place in map(Path, targets) if _is_export(place)]
        found = [_shelf(place) for place in map(Path, targets) if place not in self._exports]
        self._shelves = [shelf for shelf in found if shelf is not None]

    def keep(self, kind: str, options: Sequence[str], figures: Any) -> list[str]:
        """Write RUN/evaluations/NAME.json for every target that is a run or a part of one.

        The name follows from the kind and the options: the same evaluation replaces itself.

        Args:
            kind: such as "shuffled-turn-1".
            options: what else was asked for, such as "--samples 10", or an override.
            figures: a record, or its JSON.

        Returns one line for each target: where it was kept, or why not.
        """
        said = [
            f"not kept: {place} is an exported team, which is left as it is"
            for place in self._exports
        ]
        return said + [_kept(shelf, kind, options, figures) for shelf in self._shelves]


def _is_export(place: Path) -> bool:
    return place.is_dir() and is_exported(place)


def _shelf(target: Path) -> _Shelf | None:
    """Return where evaluations of a target are kept. None if it is the config of no run."""
    run, part = run_of_checkpoint(target), target.resolve().name
    if run is None:
        best = (target / "best.json").is_file()
        run, part = (target.resolve().parent, "best") if best else (target, "")
    if not (run / RUN_CONFIG).is_file():
        return None
    step = None
    with suppress(ConfigError, KeyError, TypeError, ValueError):  # an older or broken summary
        step = steps_behind(target)
    return _Shelf(run, part, step, _identity(run))


def _kept(shelf: _Shelf, kind: str, options: Sequence[str], figures: Any) -> str:
    path = RunFolder(shelf.run).evaluations / f"{_name(shelf.part, kind, options)}.json"
    shown = [_without_secrets(option) for option in options]
    about = {"kind": kind, "team": shelf.part, "step": shelf.step, "options": shown}
    try:
        if _identity(shelf.run) != shelf.identity:
            return f"not kept in {path}: the run was started anew meanwhile"
        path.parent.mkdir(exist_ok=True)
        write_json(path, {**as_json(figures), ABOUT: about})
    except (OSError, ValueError) as error:  # ValueError: a figure that is not finite
        with suppress(OSError):
            path.with_name(f".{path.name}.writing").unlink()
        why = error.strerror if isinstance(error, OSError) else None
        return f"not kept in {path}: {why or error}"
    return f"kept in {path}: motet view shows it"


def _name(part: str, kind: str, options: Sequence[str]) -> str:
    """Return the name of a file: all words, with a hash of the options if they are no words."""
    words = (one.lstrip("-").replace("=", "-").replace(" ", "-") for one in options)
    name = "-".join(one for one in (part, kind, *words) if one)
    if len(name) <= _LONGEST and all(one.isalnum() or one in "-_" for one in name):
        return name
    hashed = hashlib.sha256("\n".join(options).encode()).hexdigest()[:8]
    return "-".join(one for one in (part, kind, hashed) if one)


def _without_secrets(option: str) -> str:
    key, is_set, value = option.partition("=")
    shown = shown_config({key: value})[key] if is_set else shown_config(key)[""]
    return f"{key}={shown}" if is_set else str(shown)


def _identity(folder: Path) -> tuple[int, int]:
    """Return the device and inode of a folder. A run that is overwritten gets another one."""
    found = folder.stat()
    return found.st_dev, found.st_ino
