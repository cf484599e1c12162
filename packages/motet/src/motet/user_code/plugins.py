"""References to a user's own objects in configs.

A reference is `package.module:NAME`, or `./file.py:NAME` relative to the config that contains it.
For an object that a program passes it is that of `motet.user_code.objects`.

A file that was edited since it was loaded is loaded again, and so is a module beside it.
"""

import difflib
import hashlib
import importlib
import importlib.util
import os
import re
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import machinery
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Literal
from weakref import WeakKeyDictionary

from motet.errors import ConfigError, shortened
from motet.user_code.looking import only_imports, refuse_code
from motet.user_code.objects import file_behind, found, is_object
from motet.user_code.own_code import (
    files_behind,
    is_foreign,
    is_of_old_text,
    is_own,
    place_of_error,
)


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

    A file can import the modules beside it, and a module may lie in the working directory.

    Raises: ConfigError that says what is missing and what exists instead; always inside
    `looking()`, except for an object of this process.
    """
    if is_object(reference):
        return found(reference)
    refuse_code(reference)
    place, _, name = reference.rpartition(":")
    passed = _passed(_anchored(reference, folder))
    if passed is not None:
        return passed
    if not place:
        raise ConfigError(
            f"got {shortened(repr(reference))}, which names no file; expected ./file.py:{name} or "
            f"package.module:{name}"
        )
    if place.endswith(".py"):
        module = _load_file(Path(os.path.realpath(folder / place)))
    else:
        try:
            module = _load_module(place)
        except Exception as error:  # a user's module may raise anything on import
            raise ConfigError(
                f"{shortened(repr(reference))}: {_why(error, Path.cwd())}; expected an importable "
                f"package.module:NAME or ./file.py:NAME"
            ) from error
    if not hasattr(module, name):
        there = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        own = [key for key in there if getattr(there[key], "__module__", None) == module.__name__]
        public = own or [*there]
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


def load_function(
    reference: str, key: str, expected: str, folder: Path = Path()
) -> Callable[..., Any]:
    """Return the function that the config key `key` names by `reference`.

    Raises: ConfigError that begins with the key, as `load_object`, or if it is not a function.
    """
    try:
        named = load_object(reference, folder)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error
    if isinstance(named, type) or not callable(named):
        raise ConfigError(
            f"{key} is {reference!r} of type {type(named).__name__}; expected {expected}"
        )
    function: Callable[..., Any] = named
    return function


_PASSED: dict[str, tuple[Any, dict[Path, str]]] = {}
"""Reference -> the object that the program itself passed, and the files behind it then."""
_PLAIN_NAME = re.compile(r"[^:\s]+\.py")


def reference_to(value: Any) -> str | None:
    """Return a reference to a function or class of the program: /path/file.py:NAME.

    With it another process loads the file, also that of the main script. In this process it leads
    to `value` itself, until the file is edited. None if no file of the user defines it by name (a
    lambda, an inner function, a cell of a notebook), if its module belongs to a package, or if its
    file was edited since it was loaded.
    """
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    name = getattr(value, "__qualname__", "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not value:
        return None
    path = _file_of(module)
    if path is None or not path.is_file() or is_of_old_text(value):
        return None
    spec = getattr(module, "__spec__", None)
    if module.__name__ == "__main__" and spec is not None:
        reference = f"{spec.name}:{name}"  # python -m
    elif module.__package__ or _PLAIN_NAME.fullmatch(str(path)) is None:
        return None
    else:
        reference = f"{path}:{name}"
    _PASSED[reference] = (value, files_behind(path))
    return reference


def _passed(reference: str) -> Any:
    """Return the object that the program passed. None if there is none, or if a file was edited."""
    value, files = _PASSED.get(reference, (None, {}))
    if files and files_behind(next(iter(files))) != files:
        del _PASSED[reference]
        return None
    return value


def _anchored(reference: str, folder: Path) -> str:
    place, _, name = reference.rpartition(":")
    return f"{os.path.realpath(folder / place)}:{name}" if place.endswith(".py") else reference


def code_behind(reference: str) -> dict[Path, str]:
    """Return the user's files that a loaded reference comes from: path -> hash when it was loaded.

    Empty for Motet's own names, installed packages, notebooks, and what this process has not
    loaded.
    """
    if is_object(reference):
        file = file_behind(reference)
        return {} if file is None else files_behind(file)
    if reference in _PASSED:
        return dict(_PASSED[reference][1])
    place = reference.rpartition(":")[0]
    name = _name_of(Path(os.path.realpath(place))) if place.endswith(".py") else place
    module = sys.modules.get(name)
    return {} if module is None else dict(_FILES.get(module, {}))


_FILES: WeakKeyDictionary[ModuleType, dict[Path, str]] = WeakKeyDictionary()
"""Module -> its file and those that it imports, with their hashes when it was loaded."""


def _name_of(path: Path) -> str:
    """Return the name of the module that a file of the user becomes."""
    return (
        f"motet_user_{path.stem}_{hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()}"
    )


def _load_module(name: str) -> ModuleType:
    """Import a module by name; again, if its text has changed."""
    home = Path.cwd()
    known = sys.modules.get(name)
    if known is not None and _is_old(known):
        _forget_old(_FILES.get(known, {}), files_behind(Path(str(known.__file__)).resolve()))
    with _importable(home), _from_text(home), only_imports(name):
        module = importlib.import_module(name)
    _remember(module)
    return module


def _file_of(module: ModuleType) -> Path | None:
    """Return the file of a module if it is the user's own."""
    name = getattr(module, "__file__", None)
    if not isinstance(name, str) or not name.endswith(".py"):
        return None
    file = Path(os.path.realpath(name))
    return file if is_own(file) else None


def _remember(module: ModuleType) -> None:
    """Keep the hashes of a module's files, and of the modules that it brought."""
    file = _file_of(module)
    if file is None or module in _FILES:
        return
    _FILES[module] = files_behind(file)
    for _, beside, path in _modules_of(_FILES[module]):
        if beside not in _FILES:
            _FILES[beside] = files_behind(path)


def _modules_of(files: Iterable[Path]) -> Iterator[tuple[str, ModuleType, Path]]:
    """Yield (name, module, file) of the modules that were loaded from these files."""
    places = set(files)
    names = {path.name for path in places}
    for name, module in list(sys.modules.items()):
        said = getattr(module, "__file__", None)
        if isinstance(said, str) and os.path.basename(said) in names:  # noqa: PTH119 (thousands)
            path = _file_of(module)
            if path in places:
                yield name, module, path


def _is_old(module: ModuleType) -> bool:
    """Return whether a module, or a module that it imports, was loaded from another text."""
    file = _file_of(module)
    if file is None:
        return False
    if module in _FILES:
        return _FILES[module] != files_behind(file)
    return any(
        is_of_old_text(one)
        for one in vars(module).values()
        if getattr(one, "__module__", None) == module.__name__
    )


def _forget_old(before: dict[Path, str], now: dict[Path, str]) -> None:
    """Let the next import of every module behind these files that has changed load it again."""
    for name, module, _ in _modules_of({*before, *now}):
        if name != "__main__" and _is_old(module):
            del sys.modules[name]


class _FromText(machinery.SourceFileLoader):
    """Compiles the text of a file. Python's cache of bytecode misses an edit within a second."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


@contextmanager
def _from_text(folder: Path) -> Iterator[None]:
    """Let imports of files below `folder` compile their text."""

    def hook(path: str) -> machinery.FileFinder:
        place = Path(path or ".").resolve()
        if is_foreign(place) or not place.is_relative_to(folder.resolve()):
            raise ImportError
        return machinery.FileFinder(
            path,
            (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
            (_FromText, machinery.SOURCE_SUFFIXES),
        )

    def forget() -> None:
        for path in list(sys.path_importer_cache):
            if Path(path).is_relative_to(folder):
                del sys.path_importer_cache[path]

    forget()
    sys.path_hooks.insert(0, hook)
    try:
        yield
    finally:
        sys.path_hooks.remove(hook)
        forget()


def _load_file(path: Path) -> ModuleType:
    if look_at(path) != "file":
        here = Path(path.name)
        hint = (
            f". ./{here} exists: set the key to ./{here}:NAME, and each other one with this file"
            if look_at(here) == "file"
            else ""
        )
        raise ConfigError(
            f"{path} does not exist; expected ./file.py:NAME relative to the config{hint}"
        )
    # Load each file only once, so that isinstance works between objects of two references to it.
    module_name = _name_of(path)
    known = sys.modules.get(module_name)
    if known is not None and not _is_old(known):
        return known
    _forget_old({} if known is None else _FILES.get(known, {}), files_behind(path))
    loader = _FromText(module_name, str(path))
    spec = importlib.util.spec_from_file_location(module_name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported; expected a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with (
            _importable(path.parent),
            _also_named(path.stem, module),
            _from_text(path.parent),
            only_imports(path.name),
        ):
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise ConfigError(
            f"{path} cannot be imported: {_why(error, path.parent, module_name)}"
        ) from error
    _remember(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let imports find the modules of `folder` first.

    Modules of the same names that another file brought from its own folder are forgotten: that file
    keeps them, and this one gets its own.
    """
    here = str(folder)
    for name in {file.stem for file in folder.glob("*.py")} - {"__main__", "__init__"}:
        known = sys.modules.get(name)
        origin = getattr(known, "__file__", None) if known is not None else None
        if origin and str(Path(origin).parent) not in (here, *map(os.path.realpath, sys.path)):
            del sys.modules[name]
    importlib.invalidate_caches()
    before = list(sys.path)
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _also_named(name: str, module: ModuleType) -> Iterator[None]:
    """Let a module beside a file import the file by its name, and get the same objects."""
    free = name not in sys.modules and name not in sys.stdlib_module_names
    if free:
        sys.modules[name] = module
    try:
        yield
    finally:
        if free and sys.modules.get(name) is module:
            del sys.modules[name]


def _why(error: Exception, folder: Path, loading: str = "") -> str:
    """Say why an import failed: the error, its line, and the files of a circular import.

    `loading` is the name of the module that is being loaded.
    """
    at = place_of_error(error)
    place = f" ({at})" if at else ""
    said = shortened(f"{type(error).__name__}: {error}")
    back = isinstance(error, ImportError) and loading and error.name == loading
    if not back and "partially initialized module" not in str(error):
        return said + place
    files = [
        Path(frame.filename).name
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent == folder and frame.name == "<module>"
    ]
    chain = " -> ".join([*files, files[0]]) if files else "it"
    return f"circular import, {chain}: {said}{place}: move what both need into a third file"
