"""What a unittest suite needs of its jail, read off trusted text: never off the program under judgement, who would choose."""

import ast
import builtins
import re
from collections.abc import Iterator
from typing import Final

_TOGETHER_NAMES: Final = frozenset(
    {
        "MagicMock", "Mock", "NonCallableMock", "PropertyMock", "create_autospec", "mock_open", "patch",
        "redirect_stderr", "redirect_stdout", "catch_warnings", "simplefilter", "assertLogs", "assertNoLogs", "assertWarns",
        "assertWarnsRegex", "seed", "setstate", "setrecursionlimit", "reload", "getsource", "get_type_hints",
        "SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException",
    }
)  # fmt: skip
"""Names that a test writes when it changes something that the program then uses (a function, a stream, a generator of random
numbers), watches what is not a value (a log, a warning), or expects what no judge lets be raised."""
_TOGETHER_MODULES: Final = frozenset(
    {"copyreg", "dataclasses", "dis", "gc", "inspect", "mock", "pickle", "unittest.mock", "weakref"}
)
"""Modules that look into an object, which a stand-in does not bear."""

_FILES: Final = re.compile(
    r"\bopen\s*\("
    r"|\bos\.(?:remove|unlink|rename|replace|mkdir|makedirs|rmdir|removedirs|listdir|scandir|walk|stat|chmod|access|truncate"
    r"|getcwd|chdir|path\.(?:exists|isfile|isdir|getsize|getmtime))\b"
    r"|\b(?:import|from)\s+(?:sqlite3|tempfile|shutil|glob|zipfile|tarfile|shelve|dbm|fileinput|pathlib|openpyxl|docx|PyPDF2|pypdf"
    r"|PIL|reportlab)\b"
    r"|\.(?:read_text|write_text|read_bytes|write_bytes)\("
    r"|['\"][\w./-]+\.(?:txt|log|csv|tsv|json|jsonl|xml|ya?ml|ini|db|sqlite3?|zip|gz|tar|pdf|docx?|xlsx?|png|jpe?g|gif|bmp)['\"]"
)
"""Calls, modules, and names of files."""


def needs_object(source: str) -> bool:
    """Whether tests need the program's objects themselves, so that their suite must run `together` with it.

    True where they patch, mock, capture streams or logs, seed generators, assign to a module's names, inherit from the program's
    classes or look into its objects. ValueError where the text is no Python.
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, RecursionError) as error:
        raise ValueError(f"a suite that is not Python: {error}") from error
    if any(name in _TOGETHER_NAMES for name in _names(nodes)):
        return True
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    return (
        not _TOGETHER_MODULES.isdisjoint(_imported(nodes))
        or any(_root(target) in modules and not isinstance(target, ast.Name) for target in _targets(nodes))
        or _inherits(nodes)
    )


def needs_files(*texts: str) -> bool:
    """Whether a suite, or the programs it is for, read or write files or databases.

    `texts`: the suite, and what is trusted of the program: a skeleton, a solution; they need not parse.
    """
    return any(_FILES.search(text) for text in texts)


def _names(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module


def _targets(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """Everything that is assigned to or deleted."""
    for node in nodes:
        if isinstance(node, ast.Assign | ast.Delete):
            yield from node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            yield node.target


def _root(node: ast.expr) -> str:
    """The name that an attribute of an attribute of ... begins with."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _inherits(nodes: list[ast.AST]) -> bool:
    """Whether a class has a base that is neither the suite's, nor imported, nor builtin: then it is the program's."""
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)} | set(dir(builtins))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            own |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    bases = (base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases)
    return any(isinstance(base, ast.Name | ast.Attribute) and _root(base) not in own for base in bases)
