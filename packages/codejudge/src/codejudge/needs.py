"""Decide from a suite's source how it must be run.

This runs on the host only: the suite's source is trusted.

Usually the tests run in another process than the program and use its objects through proxies
(stand-ins). Nearly all tests work like that. The exceptions need what both would share in one
interpreter: modules that a test patches, standard output, warnings, the seed of the global random
generator, the internals of objects, and classes of the program as base classes of the tests' own.
"""

import ast
import builtins
import re
from collections.abc import Iterator

_SHARED = frozenset(
    {
        "patch", "stdout", "stderr", "stdin", "redirect_stdout", "redirect_stderr", "environ",
        "putenv", "seed", "setstate", "assertLogs", "assertNoLogs", "assertWarns",
        "assertWarnsRegex", "catch_warnings", "simplefilter", "pickle", "inspect", "__doc__",
        "__subclasses__", "reload", "monkeypatch", "caplog", "capsys", "MagicMock", "Mock",
        "NonCallableMock", "PropertyMock", "create_autospec", "mock_open", "setrecursionlimit",
        "get_type_hints", "copyreg", "dataclasses", "weakref", "gc", "SystemExit",
        "KeyboardInterrupt", "GeneratorExit", "BaseException",
    }
)  # fmt: skip
"""Names that show that a suite needs the shared interpreter.

Tests use them only to access shared state, or to expect an exception that the judge never lets a
program raise.
"""
_FILE_MODULES = frozenset(
    {
        "bz2", "csv", "dbm", "filecmp", "fileinput", "glob", "gzip", "lzma", "mmap", "os",
        "pathlib", "shelve", "shutil", "sqlite3", "tarfile", "tempfile", "zipfile",
    }
)  # fmt: skip
_FILE_NAMES = frozenset({"open", "FileHandler", "RotatingFileHandler", "ElementTree"})
_FILE = re.compile(
    r"[\w./-]+\.(?:txt|log|csv|tsv|jsonl?|xml|ya?ml|ini|db|sqlite3?|zip|gz|tar|"
    r"pdf|docx?|xlsx?|png|jpe?g|gif|bmp)"
)
_BUILTINS = frozenset(dir(builtins))


def needs_object(tests: str) -> bool:
    """Test whether `tests` must run in the same process as the program.

    They must if they access shared state or derive classes from the program's classes. Returns
    False for a source that is not Python, because no suite can be made of it.
    """
    tree = _parsed(tests)
    return tree is not None and (
        not _SHARED.isdisjoint(_names(tree))
        or _changes_a_module(tree)
        or _derives_from_a_stranger(tree)
    )


def needs_files(*sources: str) -> bool:
    """Test whether one of `sources` reads or writes files and so needs a scratch folder.

    The sources are tests, or a program that passes them.
    """
    trees = [tree for source in sources if (tree := _parsed(source)) is not None]
    return any(
        _FILE_MODULES & _imported(tree)
        or _FILE_NAMES & set(_names(tree))
        or any(map(_FILE.fullmatch, _texts(tree)))
        for tree in trees
    )


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _names(tree: ast.Module) -> Iterator[str]:
    """Yield every name that is read or written, every attribute, and every import."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.alias(name=name):
                yield name.rpartition(".")[2]


def _texts(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _imported(tree: ast.Module) -> set[str]:
    """Return the imported packages and their local names."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(
                name
                for alias in node.names
                for name in (alias.name.partition(".")[0], alias.asname or "")
            )
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found - {""}


def _changes_a_module(tree: ast.Module) -> bool:
    """Test whether the source sets or deletes a module attribute, as in `time.sleep = ...`."""
    modules = _imported(tree)
    return any(
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store | ast.Del)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        for node in ast.walk(tree)
    )


def _derives_from_a_stranger(tree: ast.Module) -> bool:
    """Test whether a class has a base that the source neither defines nor imports.

    Such a base is a class of the program.
    """
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)} | _BUILTINS
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            own.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)
    bases = (
        base for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for base in node.bases
    )
    return any(isinstance(base, ast.Name) and base.id not in own for base in bases)
