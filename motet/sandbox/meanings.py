"""Which names a suite takes from elsewhere, and from where. Host only: the text is trusted.

A suite may name things that it does not define: what it tests, what the task gives besides, and
what Python has. Only the first two are the program's. So a program that defines an `abs` or an
`isclose` of its own is not believed, unless that is the very function under test.
"""

import ast
import builtins
import importlib
import symtable
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from motet.sandbox.world import ALIASES, EXPORTS

_BUILTINS: Final = frozenset(dir(builtins))
_BUILTIN_FUNCTIONS: Final = frozenset(
    name for name, value in vars(builtins).items() if callable(value) and not isinstance(value, type)
)
_MODULES: Final = sys.stdlib_module_names | ALIASES.keys()
_EXPORTED: Final = frozenset(
    name for module in EXPORTS for name in vars(importlib.import_module(module)) if name[:1] != "_"
)
_HELPERS: Final = frozenset(
    {
        "Counter", "Decimal", "Fraction", "OrderedDict", "date", "datetime", "deepcopy", "defaultdict", "deque", "fabs",
        "inf", "isclose", "isfinite", "isinf", "isnan", "namedtuple", "nan", "partial", "pi", "reduce", "timedelta",
        "timezone",
    }
)  # fmt: skip
"""What the library exports and tests compare with. Where nobody says which name is tested, any other may be."""


class Meanings(NamedTuple):
    """What the names mean that a suite reads and does not define."""

    candidate: list[str]
    """The program's: what is tested, and what the task names."""
    library: list[str]
    """The library's, by the name under which the program has imported it."""
    shadows: list[str]
    """Those of the program's that Python has too: a function under test may be called `sum`."""


def meanings(sources: Sequence[str], tested: str | None, passed: bool) -> Meanings:
    """Of the names in some texts that run one after the other.

    `tested`: what is under test, where somebody says so. `passed`: it is passed to the suite, which need not name it.
    """
    trees = [ast.parse(source) for source in sources]
    free = {name for source in sources for name in _read(source)} - {
        name for source in sources for name in _bound(source)
    }
    known = _EXPORTED if passed or tested in free else _HELPERS
    library = {name for name in free - _BUILTINS - {tested} if name in known or _is_module(name, trees)}
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
    """The names that are looked for among the global ones, somewhere in a text."""
    found: set[str] = set()
    waiting = [symtable.symtable(source, "<suite>", "exec")]
    while waiting:
        table = waiting.pop()
        outside = table.get_type() in ("module", "class")  # a class body finds global names where it has none yet
        found |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (outside or symbol.is_global())
        }
        waiting += table.get_children()
    return found


def _bound(source: str) -> set[str]:
    table = symtable.symtable(source, "<suite>", "exec")
    return {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def _is_module(name: str, trees: Sequence[ast.Module]) -> bool:
    """Whether a name is a module's and is used as one: all that is done with it is to read its attributes."""
    if name not in _MODULES:
        return False
    nodes = [node for tree in trees for node in ast.walk(tree)]
    owners = sum(isinstance(node, ast.Attribute) and _named(node.value) == name for node in nodes)
    return owners == sum(_named(node) == name for node in nodes)


def _named(node: ast.AST) -> str | None:
    return node.id if isinstance(node, ast.Name) else None


def _innermost(trees: Sequence[ast.Module], names: set[str]) -> set[str]:
    """Those of some functions that are called without another of them among the arguments: `pow` in `abs(pow(2, 3) - 8)`.

    Where some are named by all of the texts that name one, the others are out.
    """
    used = [{name for node in ast.walk(tree) if (name := _named(node)) in names} for tree in trees]
    common = set.intersection(*map(set, (each for each in used if each))) if any(used) else set()
    names = {name for name in common if name is not None} or names
    return {name for tree in trees for call, name in _calls(tree, names) if not _calls_another(call, names)}


def _calls(tree: ast.AST, names: set[str]) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (name := _named(node.func)) in names and name is not None:
            yield node, name


def _calls_another(call: ast.Call, names: set[str]) -> bool:
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(True for argument in arguments for _ in _calls(argument, names))
