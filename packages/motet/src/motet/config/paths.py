"""Where configs and what they name are: paths in configs, configs of packages, folders with a team.

A path in a config is relative to the file that says it, or on the command line to the working
directory. The resolved config has absolute paths, so it means the same from everywhere.
`runs/NAME/models` and `team` are found by their names, so a run folder can be moved.
"""

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from motet.config.yaml import KeyPath, dotted, place_of
from motet.errors import ConfigError
from motet.user_code.installed import installed
from motet.user_code.objects import is_object

REFERENCE = re.compile(r"[^:\s]+\.py:\w+")
"""An object in a file."""


def _is_file(key: KeyPath) -> bool:
    """Return whether the value of a key is always a path. The names in a key may have dots."""
    match key:
        case (
            ("data", "train" | "eval", "path")
            | ("environment", "of", _, "data", "train" | "eval", "path")
            | ("policies", _, "adapter")
            | ("models", _, "chat_template")
        ):
            return True
        case ("verifier", *within, "folder"):
            return all(one in ("ensemble", "agents") for one in within[::2])
    return False


def _is_of_command(key: KeyPath) -> bool:
    """Return whether the value of a key is a word of a command, which starts a server of tools."""
    return key[:1] == ("team",) and key[2:3] == ("tools",) and key[4:5] == ("mcp",) and len(key) > 5


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
    if _is_of_command(at) and value.startswith(("./", "../")):
        return _absolute(value, folder)
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


# ------------------------------------------------------------------------------ configs of packages


SUFFIX = ".yaml"


def named_configs() -> Mapping[str, Path]:
    """Return name -> file of every config in an installed package, in alphabetical order.

    Raises: ConfigError if two packages have a config of one name.
    """
    found: dict[str, Path] = {}
    for point in installed("configs").values():
        try:
            spec = find_spec(point.value)
        except ModuleNotFoundError:  # a package that was removed only in part
            continue
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in folder.rglob(f"*{SUFFIX}"):
                name = path.relative_to(folder).with_suffix("").as_posix()
                other = found.setdefault(name, path)
                if other != path:
                    raise ConfigError(
                        f"two packages have a config {name!r}: {other} and {path}; expected one: "
                        "uninstall the other"
                    )
    return dict(sorted(found.items()))


def config_path(target: str | Path) -> Path:
    """Return the path of a config or run: `target` itself, or the file of that name in a package.

    A path that exists comes first.
    """
    path = Path(target)
    if path.suffix or path.is_absolute() or path.exists():
        return path
    return named_configs().get(path.as_posix(), path)


# ------------------------------------------------------------------------------ folders with a team


RUN_CONFIG = "config.yaml"
"""The config in a run folder."""
TEAM = "team.yaml"
"""The config in an exported folder. Its policies are frozen, in folders beside it."""
_CHECKPOINT = re.compile(r"step-\d{6,}")


def config_file_of(folder: Path) -> Path | None:
    """Return the config file that belongs to a folder. None if it holds no team."""
    found = run_of_checkpoint(folder) or folder
    files = (found / name for name in (RUN_CONFIG, TEAM))
    return next((file for file in files if file.is_file()), None)


def is_exported(folder: Path) -> bool:
    """Return whether `motet export` wrote the folder."""
    return (folder / TEAM).is_file() and not (folder / RUN_CONFIG).is_file()


def run_of_checkpoint(folder: Path) -> Path | None:
    """Return the run that a checkpoint folder belongs to. None if it is no checkpoint."""
    place = folder.resolve()
    run = place.parent.parent
    is_one = _CHECKPOINT.fullmatch(place.name) and place.parent.name == "checkpoints"
    return run if is_one and (run / RUN_CONFIG).is_file() else None
