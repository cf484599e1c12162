"""Paths in configs: relative to the file that says them, or on the command line to the working
directory.

The resolved config has absolute paths, so it means the same from everywhere. `runs/NAME/models` and
`team` are found by their names, so a run folder can be moved.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.config.yaml import KeyPath, dotted, place_of
from motet.errors import ConfigError
from motet.user_code.objects import is_object

REFERENCE = re.compile(r"[^:\s]+\.py:\w+")
"""An object in a file."""


def _is_file(key: KeyPath) -> bool:
    """Return whether the value of a key is always a path. The names in a key may have dots."""
    match key:
        case (
            ("data", "train" | "eval", "path")
            | ("policies", _, "adapter")
            | ("models", _, "chat_template")
        ):
            return True
        case ("verifier", *within, "folder"):
            return all(one in ("ensemble", "agents") for one in within[::2])
    return False


def _is_model(key: KeyPath) -> bool:
    """Return whether the value of a key is a path, or a name of the hub."""
    return key == ("model", "path") or (key[:1] == ("models",) and key[2:] == ("path",))


def anchored(value: Any, folder: Path, places: Mapping[KeyPath, str], at: KeyPath = ()) -> Any:
    """Return `value` with every path in it absolute. `folder` is where relative paths begin.

    Raises: ConfigError if a file exists only relative to the working directory.
    """
    if isinstance(value, Mapping):
        return {key: anchored(item, folder, places, (*at, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [anchored(item, folder, places, (*at, n)) for n, item in enumerate(value)]
    if not isinstance(value, str) or not value or is_object(value):
        return value
    if REFERENCE.fullmatch(value):
        place, _, name = value.partition(":")
        return f"{os.path.realpath(folder / place)}:{name}"
    if _is_model(at):
        return _model(value, folder)
    if _is_file(at):
        return _file(value, folder, f"{place_of(places, at)}: {dotted(at)}")
    return value


def _model(value: str, folder: Path) -> str:
    """Return a path that exists, or that is written like one, as absolute; else the hub's name."""
    if value.startswith(("./", "../", "~", "/")) or _exists(folder / value):
        return _absolute(value, folder)
    return os.path.realpath(value) if _exists(Path(value)) else value


def _file(value: str, folder: Path, where: str) -> str:
    path, here = _absolute(value, folder), os.path.realpath(value)
    if path != here and not _exists(Path(path)) and _exists(Path(here)):
        instead = os.path.relpath(here, os.path.realpath(folder))
        raise ConfigError(
            f"{where}: {path} does not exist; expected a path relative to the file that says it: "
            f"write {instead}"
        )
    return path


def _absolute(value: str, folder: Path) -> str:
    return os.path.realpath(folder / Path(value).expanduser())


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or with a null byte: reported when it is read
        return False
