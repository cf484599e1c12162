"""Which code is the user's own: the files behind it, and where an error of it was raised.

Python's own modules, installed packages and the packages of this project are not: they have
versions. Files are read and parsed, and nothing is run.
"""

import ast
import hashlib
import sys
import sysconfig
import time
import traceback
import types
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from motet.errors import MotetError

Argument = TypeVar("Argument")

OURS = frozenset(
    {
        "motet",
        "codejudge",
        "motet_tasks",
        "motet_published",
        "motet_view",
        "motet_compare",
        "motet_foreign",
        "motet_serve",
        "motet_verifier",
        "motet_cluster",
    }
)
"""The packages of this project."""
_STARTED = time.time()
"""When this process loaded Motet, in seconds of the epoch."""
_FOREIGN = {"site-packages", "dist-packages"}
_NOT_OWN = [
    Path(sysconfig.get_paths()["stdlib"]).resolve(),
    Path(sysconfig.get_paths()["platstdlib"]).resolve(),
]
_MOST = 8000
"""Maximum characters of a traceback that is recorded; its end is kept."""


@cache
def _our_folders() -> tuple[Path, ...]:
    found = (find_spec(name) for name in sorted(OURS))
    return tuple(Path(spec.origin).resolve().parent for spec in found if spec and spec.origin)


def is_ours(module: str) -> bool:
    """Return whether a dotted name belongs to a package of this project."""
    return module.partition(".")[0] in OURS


def is_foreign(path: Path) -> bool:
    """Return whether a path is among the installed packages."""
    return not _FOREIGN.isdisjoint(path.parts)


def is_own(file: Path) -> bool:
    """Return whether a file is the user's own."""
    return not is_foreign(file) and not any(
        file.is_relative_to(folder) for folder in (*_NOT_OWN, *_our_folders())
    )


def files_behind(file: Path) -> dict[Path, str]:
    """Return the file and all files of the user that it imports, with a hash of their bytes.

    Imports are looked for beside the importing file, in the working directory and on `sys.path`,
    also those inside functions.
    """
    found: dict[Path, str] = {}
    ahead = [file]
    while ahead:
        one = ahead.pop()
        if one in found or not is_own(one):
            continue
        try:
            text = one.read_bytes()
        except OSError:  # the import itself says so
            continue
        found[one] = hashlib.sha256(text).hexdigest()[:12]
        ahead += [*_packages(one), *_imports(one, text, file.parent)]
    return found


def _packages(file: Path) -> Iterator[Path]:
    """Yield the files of the packages that a file lies in."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        yield folder / "__init__.py"
        folder = folder.parent


def _imports(file: Path, text: bytes, home: Path) -> Iterator[Path]:
    for level, parts in _imported_names(text):
        if level:
            yield from _in(file.parents[min(level, len(file.parents)) - 1], parts)
        else:
            yield from _named(parts, file, home)


@lru_cache(maxsize=256)
def _imported_names(text: bytes) -> list[tuple[int, list[str]]]:
    """Return the dots and the dotted name of everything that a program imports, also in functions.

    It is empty if the text is no program: its own import says so.
    """
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    plain = [one for node in nodes if isinstance(node, ast.Import) for one in node.names]
    return [(0, one.name.split(".")) for one in plain] + [
        (node.level, [*(node.module.split(".") if node.module else []), one.name])
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    ]


def _named(parts: list[str], file: Path, home: Path) -> Iterator[Path]:
    """Yield the files of a dotted name, such as those of a package and of its module."""
    if is_ours(parts[0]):
        return
    for folder in dict.fromkeys([file.parent, home, Path.cwd(), *map(Path, sys.path)]):
        if is_foreign(folder):
            continue
        there = list(_in(folder, parts))
        if there:
            yield from there
            return
    module = sys.modules.get(parts[0])  # such as of an editable install
    origin = getattr(module, "__file__", None)
    if origin is not None and Path(origin).name == "__init__.py":
        yield from _in(Path(origin).resolve().parent.parent, parts)


def _in(folder: Path, parts: list[str]) -> Iterator[Path]:
    """Yield the files of a dotted name below a folder. The last part may be an object."""
    for part in parts:
        if part == "*":
            return
        module = folder / f"{part}.py"
        if module.is_file():
            yield module.resolve()
            return
        folder = folder / part
        if not folder.is_dir():
            return
        if (folder / "__init__.py").is_file():
            yield (folder / "__init__.py").resolve()


# -------------------------------------------------------------------------------------- old text


def compiled(code: types.CodeType) -> tuple[object, ...]:
    """Return the instructions, names and constants of compiled code, without its place in a
    file."""
    constants = [
        compiled(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts
    ]
    return (code.co_code, code.co_names, tuple(constants))


def is_of_old_text(origin: object) -> bool:
    """Return whether a function, or a method of a class, differs from the text of its file now.

    A process that has imported a file keeps its functions when the file is edited.
    """
    parts = list(vars(origin).values()) if isinstance(origin, type) else [origin]
    codes = [part.__code__ for part in parts if isinstance(part, types.FunctionType)]
    for name in {code.co_filename for code in codes}:
        file = Path(name)
        try:
            if file.stat().st_mtime < _STARTED - 1.0:
                continue  # this process cannot have read an earlier text
            whole = compile(file.read_bytes(), name, "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):
            continue  # no file, such as a cell of a notebook
        there = {(code.co_qualname, compiled(code)) for code in _within(whole)}
        if any(
            (code.co_qualname, compiled(code)) not in there
            for code in codes
            if code.co_filename == name
        ):
            return True
    return False


def _within(code: types.CodeType) -> Iterator[types.CodeType]:
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield one
            yield from _within(one)


# ----------------------------------------------------------------------------------------- errors


def origin(error: BaseException) -> BaseException:
    """Return the exception that user code raised: the cause of Motet's own, the first of a
    group."""
    while True:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        elif error.__cause__ is not None and is_ours(type(error).__module__):
            error = error.__cause__
        else:
            return error


def called(function: Callable[[Argument], Any], given: Argument, who: str) -> Any:
    """Call a user's function of tensors. `who` names it.

    Errors of the machine, such as too little memory, pass through. Raises: MotetError with the line
    of the user's file for every other error.
    """
    try:
        return function(given)
    except (MotetError, MemoryError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # of torch, which is not imported here
            raise
        place = place_of_error(error)
        raise MotetError(
            f"{who} raised {type(error).__name__}: {error}{f' ({place})' if place else ''}"
        ) from error


def place_of_error(error: BaseException) -> str:
    """Return `FILE:LINE in FUNCTION: CODE`, or "" if no line is known.

    The line is the last one outside Motet and the libraries. If there is none, it is the last line
    of all, unless the error is Motet's own and explains itself.
    """
    first = origin(error)
    if isinstance(first, SyntaxError) and first.filename and _is_users(first.filename):
        return f"{first.filename}:{first.lineno}: {(first.text or '').strip()}"
    frames = [
        frame
        for frame in traceback.extract_tb(first.__traceback__)
        if not frame.filename.startswith("<frozen")
    ]
    own = [frame for frame in frames if _is_users(frame.filename)]
    if not own and (not frames or is_ours(type(first).__module__)):
        return ""
    frame = (own or frames)[-1]
    code = f": {frame.line}" if frame.line else ""
    return f"{frame.filename}:{frame.lineno} in {frame.name}{code}"


def trace_of(error: BaseException) -> str:
    """Return the whole traceback as text, shortened at its beginning if it is very long."""
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= _MOST else f"...{text[-_MOST:]}"


def _is_users(file: str) -> bool:
    # Tests of the package lie beside its code and play the user.
    return not file.startswith("<") and (file.endswith("_test.py") or is_own(Path(file).resolve()))
