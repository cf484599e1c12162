"""Names of things a user wrote: `package.module:NAME`, or `./file.py:NAME` relative to the config that says so."""

import difflib
import hashlib
import importlib
import importlib.util
import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from motet.errors import ConfigError, shortened


def nearest(name: str, valid: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with a leading space, or nothing when no valid name is close."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def look_at(path: Path) -> Literal["file", "folder", "nothing"]:
    """What stands at a path that a user wrote.

    Raises: ConfigError for a path that cannot be looked at (too long, a link to itself, behind a folder that
    is closed to us), and for what is neither a folder nor a regular file.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a name that no file can have
        return "nothing"
    except OSError as error:
        raise ConfigError(
            f"{shortened(str(path))} cannot be looked at: {error.strerror}; expected a path that can be read"
        ) from error
    if stat.S_ISDIR(mode):
        return "folder"
    if not stat.S_ISREG(mode):
        raise ConfigError(
            f"{shortened(str(path))} is a device, a pipe or a socket; expected a regular file or a folder: "
            f"write what comes out of a pipe to a file first"
        )
    return "file"


def is_reference(name: str) -> bool:
    """Whether `name` points to an object rather than being a registered name."""
    return ":" in name


def load_object(reference: str, folder: Path = Path()) -> Any:
    """The object that `reference` points to; files are looked for under `folder`.

    Raises: ConfigError naming what is missing, and what is there instead.
    """
    place, _, name = reference.rpartition(":")
    if place.endswith(".py"):
        module = _load_file(Path(os.path.realpath(folder / place)))
    else:
        try:
            module = importlib.import_module(place)
        except Exception as error:  # whatever a user's module does when it is imported
            raise ConfigError(
                f"{shortened(repr(reference))}: {shortened(str(error))}; expected an importable package.module:NAME or "
                f"./file.py:NAME"
            ) from error
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        said = public if len(public) <= 8 else [*difflib.get_close_matches(name, public, n=8, cutoff=0.0), "..."]
        raise ConfigError(
            f"{reference!r}: {place} defines no {name!r}{nearest(name, public)}; it defines {', '.join(said)}"
        )
    return getattr(module, name)


def _load_file(path: Path) -> ModuleType:
    if look_at(path) != "file":
        raise ConfigError(f"{path} does not exist; expected ./file.py:NAME relative to the config")
    # One module per file, however often it is named, so that isinstance holds between two references to it.
    module_name = f"motet_user_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise ConfigError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
