"""Python objects in place of names in a config.

A config has plain values only. An object that a program passes, such as `reward=fn`, is kept in a
table of this process, and the config has a reference to it:

    object:MODULE:NAME@HASH

MODULE and NAME say where the function or the class was defined, and HASH identifies its source
code with the plain values that belong to it (defaults, captured variables, attributes). Another
process imports a function or a class of a module, if the hash is still the same. Everything else
(what a notebook or a main script defines, lambdas, instances, rows) must be passed again there, or
replaced by a name.
"""

import functools
import hashlib
import importlib
import inspect
import json
import re
import sys
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

from motet.core.row_values import decoded, identity, json_line, kept
from motet.errors import ConfigError
from motet.safety.reading import ROWS, read_bytes
from motet.user_code.looking import only_imports, only_looks
from motet.user_code.own_code import compiled, is_of_old_text, is_own

PREFIX = "object:"
ROWS_FOLDER = "rows"
"""The folder in a run for the rows that a program passed to `train_team`."""
_kept: dict[str, Any] = {}
_sources: dict[str, Any] = {}
"""The function or class that says where each kept object came from, unless it is rows."""
_recorded: set[str] = set()
"""The rows that the folder of a run gets."""
_folders: list[Path] = []
"""Folders of runs whose rows may be needed."""


def keep(value: Any, origin: Any = None) -> str:
    """Keep an object of this process, and return the reference to it.

    `origin` is the function or class that says where the object came from. By default it is the
    object itself, or its class.
    """
    source = _origin(value) if origin is None else origin
    name = f"{source.__module__}:{source.__qualname__}"
    reference = f"{PREFIX}{name}@{_digest(source, value)}"
    _kept[reference], _sources[reference] = value, source
    return reference


def keep_rows(rows: list[dict[str, Any]], what: str, *, recorded: bool = False) -> str:
    """Keep the rows of a dataset, and return the reference to them. Its hash is that of the rows.

    `rows` have values that `row_values.kept` gave. `what` is the name of the rows in the reference,
    such as train. `recorded`: the folder of a run with them gets them too.
    """
    reference = f"{PREFIX}rows:{what}@{_hash(identity(rows).encode())}"
    _kept[reference] = rows
    if recorded:
        _recorded.add(reference)
    return reference


def record_rows(folder: Path, reference: str) -> None:
    """Write rows into the folder of their run, if they are to be, for `found` of other
    processes."""
    file = _file_of_rows(folder, reference)
    if reference in _recorded and not file.exists():
        file.parent.mkdir(exist_ok=True)
        beside = file.with_name(f".{file.name}.writing")
        beside.write_text("".join(map(json_line, found(reference))), encoding="utf-8")
        beside.replace(file)


def find_rows_in(folder: Path) -> None:
    """Let `found` read the rows that are in the folder of a run."""
    if folder not in _folders and (folder / ROWS_FOLDER).is_dir():
        _folders.append(folder)


def _file_of_rows(folder: Path, reference: str) -> Path:
    what, _, digest = reference.removeprefix(f"{PREFIX}rows:").rpartition("@")
    return folder / ROWS_FOLDER / f"{what}-{digest}.jsonl"


def _read_rows(reference: str) -> list[dict[str, Any]] | None:
    """Return the rows of a reference from the folder of a run. None if there is none with them."""
    if not re.fullmatch(rf"{PREFIX}rows:\w+@\w+", reference):
        return None
    for folder in _folders:
        file = _file_of_rows(folder, reference)
        if file.is_file():
            try:
                lines = read_bytes(file, ROWS).splitlines()
                rows = [kept(decoded(json.loads(line)), f"{file}: a row") for line in lines]
            except (ConfigError, ValueError, RecursionError, OSError) as error:
                raise ConfigError(
                    f"{file} cannot be read: {error}; expected the rows of the run: restore it"
                ) from error
            if keep_rows(rows, what_of(reference), recorded=True) == reference:
                return rows
            raise ConfigError(f"{file} has other rows than the run began with: restore it")
    return None


def what_of(reference: str) -> str:
    """Return the name of the rows in a reference, such as train."""
    return reference.removeprefix(f"{PREFIX}rows:").rpartition("@")[0]


def is_object(name: object) -> bool:
    """Return whether a value of a config is a reference to an object."""
    return isinstance(name, str) and name.startswith(PREFIX)


def is_found(reference: str) -> bool:
    """Return whether this process has the object, or can import the same one."""
    return reference in _kept or _imported(reference) is not None


def is_missing(name: object) -> bool:
    """Return whether a value of a config refers to an object that this process does not have."""
    return is_object(name) and not is_found(str(name))


def needs_its_program(name: object) -> bool:
    """Return whether a value of a config is an object that no other process can import: a lambda,
    or what a main script or a notebook defines."""
    if not is_object(name):
        return False
    module, _, inside = str(name).removeprefix(PREFIX).rpartition("@")[0].partition(":")
    return module == "__main__" or "<" in inside


def found(reference: str) -> Any:
    """Return the object of a reference. A function or class with unchanged source is imported.

    Raises: ConfigError if this process does not have it and cannot import it.
    """
    if not is_found(reference):
        raise ConfigError(
            f"{described(reference)} is not in this process; expected the object, passed again "
            "from Python, or package.module:NAME or ./file.py:NAME in its place"
        )
    return _kept[reference]


def _imported(reference: str) -> Any:
    """Import the object, keep it and return it. None if that gives nothing, or something else.

    Nothing is imported inside `looking()`.
    """
    if only_looks():
        return None
    if needs_its_program(reference):
        return None
    module, _, name = reference.removeprefix(PREFIX).rpartition("@")[0].partition(":")
    if module == "rows":
        return _read_rows(reference)
    before = list(sys.path)
    sys.path.insert(0, str(Path.cwd()))  # as for package.module:NAME
    try:
        with only_imports(module):
            value: Any = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
    except Exception:  # noqa: BLE001 a user's module may raise anything on import
        return None
    finally:
        sys.path[:] = before
    return value if keep(value) == reference else None


def file_behind(reference: str) -> Path | None:
    """Return the file that defines an object of this process, if it is the user's own."""
    if reference not in _sources:
        return None
    try:
        file = inspect.getsourcefile(inspect.unwrap(_sources[reference]))
    except (TypeError, OSError):  # an object of C, or a class of a notebook
        return None
    path = None if file is None else Path(file).resolve()
    return path if path is not None and path.is_file() and is_own(path) else None


def described(reference: str) -> str:
    """Return where the object of a reference came from, for messages."""
    where, _, digest = reference.removeprefix(PREFIX).rpartition("@")
    module, _, name = where.partition(":")
    if module == "rows":
        return f"the rows of data.{name} that a program passed (hash {digest})"
    return f"the Python object {name} of module {module} (source {digest})"


def _origin(value: Any) -> Any:
    """Return the function or class whose source says what `value` does."""
    if isinstance(value, functools.partial):
        return _origin(value.func)
    if isinstance(value, types.MethodType):
        return value.__func__
    return value if isinstance(value, type) or inspect.isroutine(value) else type(value)


def _digest(source: Any, value: Any) -> str:
    return _hash(f"{_source(source)}\n{_plain_values(source, value)}".encode())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _source(origin: Any) -> str:
    """Return the source text of a function or class; without it, its compiled code.

    So is a lambda: its source text is its line, which may have several.
    """
    if "<lambda>" not in origin.__qualname__ and not is_of_old_text(origin):
        with suppress(OSError, TypeError):
            return inspect.getsource(origin)
    if isinstance(origin, type):
        parts = {name: _source(part) for name, part in vars(origin).items() if callable(part)}
        return json.dumps(parts, sort_keys=True)
    code = getattr(origin, "__code__", None)
    return origin.__qualname__ if code is None else repr(compiled(code))


def _plain_values(source: Any, value: Any) -> str:
    """Return the plain values that belong to the object, as text. Other values count by type."""
    said: list[Any] = []
    if isinstance(value, functools.partial):
        said += [list(value.args), value.keywords]
    elif value is not source:
        owner = value.__self__ if isinstance(value, types.MethodType) else value
        said.append({name: _value(one) for name, one in getattr(owner, "__dict__", {}).items()})
    if inspect.isfunction(source):
        said += [source.__defaults__, source.__kwdefaults__]
        said.append([_value(cell.cell_contents) for cell in source.__closure__ or () if _set(cell)])
    try:
        return json.dumps(said, sort_keys=True, default=lambda one: type(one).__name__)
    except (TypeError, ValueError):
        pass  # keys that are no strings, as in {("C", "D"): 3}, or a value that holds itself
    try:
        return identity(said)
    except (ValueError, RecursionError):
        return json.dumps([type(one).__name__ for one in said])


def _value(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)  # a pydantic model: the options of an environment
    return dump(mode="json") if dump is not None and not isinstance(value, type) else value


def _set(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
