"""References to a user's own objects in configs.

A reference is `package.module:NAME`, or `./file.py:NAME` relative to the config that contains it.
For an object that a program passes it is that of `motet.objects`.
"""

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
from motet.objects import found, is_object


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` with a leading space, or an empty string if no valid name is
    similar."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def look_at(path: Path) -> Literal["file", "folder", "nothing"]:
    """Return what exists at a path given by a user.

    Raises: ConfigError if the path cannot be checked (too long, a link to itself, inside a folder
    without permission), or if it is neither a folder nor a regular file.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        # ValueError: the path contains a null byte.
        return "nothing"
    except OSError as error:
        raise ConfigError(
            f"{shortened(str(path))} cannot be accessed: {error.strerror}; expected a readable path"
        ) from error
    if stat.S_ISDIR(mode):
        return "folder"
    if not stat.S_ISREG(mode):
        raise ConfigError(
            f"{shortened(str(path))} is a device, a pipe or a socket; expected a regular file or "
            "a folder: write the data to a file first"
        )
    return "file"


def is_reference(name: str) -> bool:
    """Return whether `name` is a reference to an object, not a registered name."""
    return ":" in name


def load_object(reference: str, folder: Path = Path()) -> Any:
    """Return the object that `reference` names. File paths are relative to `folder`.

    Raises: ConfigError that says what is missing and what exists instead.
    """
    if is_object(reference):
        return found(reference)
    place, _, name = reference.rpartition(":")
    if place.endswith(".py"):
        module = _load_file(Path(os.path.realpath(folder / place)))
    else:
        try:
            module = importlib.import_module(place)
        except Exception as error:  # a user's module may raise anything on import
            raise ConfigError(
                f"{shortened(repr(reference))}: {shortened(str(error))}; expected an importable "
                f"package.module:NAME or "
                f"./file.py:NAME"
            ) from error
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        said = (
            public
            if len(public) <= 8
            else [*difflib.get_close_matches(name, public, n=8, cutoff=0.0), "..."]
        )
        raise ConfigError(
            f"{reference!r}: {place} defines no {name!r}{nearest(name, public)}; it defines "
            f"{', '.join(said)}"
        )
    return getattr(module, name)


def _load_file(path: Path) -> ModuleType:
    if look_at(path) != "file":
        raise ConfigError(f"{path} does not exist; expected ./file.py:NAME relative to the config")
    # Load each file only once, so that isinstance works between objects of two references to it.
    module_name = (
        f"motet_user_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    )
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
