"""Resolve the names that a suite uses and does not define.

This runs on the host only: the suite's source is trusted.

Such a name means the function under test, another function of the task, or something of Python.
Only the first two come from the program. So if a program defines its own `abs` or `isclose`, the
suite still uses Python's, unless that is the function under test.
"""

import ast
import builtins
import importlib
import symtable
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from codejudge.library import ALIASES, EXPORTS

_BUILTINS: Final = frozenset(dir(builtins))
_BUILTIN_FUNCTIONS: Final = frozenset(
    name
    for name, value in vars(builtins).items()
    if callable(value) and not isinstance(value, type)
)
_MODULES: Final = sys.stdlib_module_names | ALIASES.keys()
_EXPORTED: Final = frozenset(
    name for module in EXPORTS for name in vars(importlib.import_module(module)) if name[:1] != "_"
)
_HELPERS: Final = frozenset(
    {
        "Counter", "Decimal", "Fraction", "OrderedDict", "date", "datetime", "deepcopy",
        "defaultdict", "deque", "fabs", "inf", "isclose", "isfinite", "isinf", "isnan",
        "namedtuple", "nan", "partial", "pi", "reduce", "timedelta", "timezone",
    }
)  # fmt: skip
"""Names of the library that tests commonly use for comparisons.

If the tested name is not given, only these names and modules mean the library. Any other name may
be under test.
"""


class Meanings(NamedTuple):
    """The names that a suite reads and does not define, by origin."""

    candidate: list[str]
    """Names of the program: the function under test, and other names of the task."""
    library: list[str]
    """Names of the library. The program's imports decide between a module and a class in it."""
    shadows: list[str]
    """Names in `candidate` that are also builtins: a function under test may be called `sum`."""


def meanings(sources: Sequence[str], tested: str | None, passed: bool) -> Meanings:
    """Resolve the names of some sources that run one after the other.

    `tested` is the name under test, if it is given. If `passed` is true, the object under test is
    passed to the suite as an argument, so the suite may not mention its name.
    """
    trees = [ast.parse(source) for source in sources]
    free = {name for source in sources for name in _read(source)} - {
        name for source in sources for name in _bound(source)
    }
    known = _EXPORTED if passed or tested in free else _HELPERS
    library = {
        name for name in free - _BUILTINS - {tested} if name in known or _is_module(name, trees)
    }
    others = free - _BUILTINS - library
    if passed:
        others |= _read(tested or "")
    elif tested in free:
        others.add(str(tested))
    elif not others:
        modules = {name for name in library if _is_module(name, trees)}
        others = _innermost(trees, library - modules or free & _BUILTIN_FUNCTIONS)
    return Meanings(sorted(others), sorted(library - others), sorted(others & _BUILTINS))


def _read(source: str) -> set[str]:
    """Return the names that a source reads as globals anywhere."""
    found: set[str] = set()
    waiting = [symtable.symtable(source, "<suite>", "exec")]
    while waiting:
        table = waiting.pop()
        # A class body reads a global name if it has not defined the name yet.
        outside = table.get_type() in ("module", "class")
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (outside or symbol.is_global())
        }
        waiting += table.get_children()
    return found


def _bound(source: str) -> set[str]:
    table = symtable.symtable(source, "<suite>", "exec")
    return {
        symbol.get_name()
        for symbol in table.get_symbols()
        if symbol.is_assigned() or symbol.is_imported()
    }


def _is_module(name: str, trees: Sequence[ast.Module]) -> bool:
    """Test whether a name is a module name and the sources use it as a module.

    They do if they only read attributes of it.
    """
    if name not in _MODULES:
        return False
    nodes = [node for tree in trees for node in ast.walk(tree)]
    owners = sum(isinstance(node, ast.Attribute) and _named(node.value) == name for node in nodes)
    return owners == sum(_named(node) == name for node in nodes)


def _named(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _innermost(trees: Sequence[ast.Module], names: set[str]) -> set[str]:
    """Return those of some functions that are called with no other of them in the arguments.

    For example `pow` in `abs(pow(2, 3) - 8)`. If some of the functions appear in every source that
    uses any of them, only these are considered.
    """
    used = [{name for node in ast.walk(tree) if (name := _named(node)) in names} for tree in trees]
    common = set.intersection(*map(set, (each for each in used if each))) if any(used) else set()
    names = {name for name in common if name is not None} or names
    return {
        name
        for tree in trees
        for call, name in _calls(tree, names)
        if not _calls_another(call, names)
    }


def _calls(tree: ast.AST, names: set[str]) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _named(node.func)) in names and name is not None:
            yield node, name


def _calls_another(call: ast.Call, names: set[str]) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(True for argument in arguments for _ in _calls(argument, names))
