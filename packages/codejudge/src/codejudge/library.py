"""Modules, functions and classes of the library that the judge uses in place of the candidate's.

The candidate only says which object of the library it means. The judge takes its own.
"""

import importlib
import sys
from types import ModuleType
from typing import Any, Final

from codejudge.values import OFTEN, TYPES

PURE: Final = frozenset(
    {
        "bisect",
        "cmath",
        "copy",
        "datetime",
        "functools",
        "heapq",
        "itertools",
        "math",
        "operator",
        "statistics",
    }
)
"""Each side uses its own functions of these modules, which are harmless."""
EXPORTS: Final = (
    "collections", "copy", "datetime", "decimal", "fractions", "functools", "itertools", "math",
    "operator", "cmath", "statistics", "heapq", "bisect", "string",
)  # fmt: skip
"""Modules whose functions and classes tests may use by their bare names."""
for _each in EXPORTS:
    importlib.import_module(_each)
ALIASES: Final = {
    "np": "numpy",
    "pd": "pandas",
    "ET": "xml.etree.ElementTree",
    "dt": "datetime",
    "path": "posixpath",
}
_SHARED: Final = frozenset({*TYPES.values()} - {object})


def pure(module: str, name: str) -> Any:
    """Return what a harmless module (PURE) defines under this name in the judge, or None."""
    if module not in PURE or module not in sys.modules:
        return None
    return vars(sys.modules[module]).get(name)


def meaning(name: str) -> Any:
    """Return what a bare name means in the library: a loaded module, or a name of EXPORTS.

    Raises KeyError if it means nothing.
    """
    home = ALIASES.get(name, name)
    if isinstance(sys.modules.get(home), ModuleType):
        return sys.modules[home]
    for module in EXPORTS:
        if name in vars(sys.modules[module]):
            return vars(sys.modules[module])[name]
    raise KeyError(name)


def known_error(module: str, name: str) -> type | None:
    """Return the judge's own class for an exception of the standard library, or None.

    None also for exceptions that end a test run.
    """
    if module == "builtins" and name == "BaseException":
        return Exception
    package = module.partition(".")[0]
    if package not in sys.stdlib_module_names or package == "unittest" or module not in sys.modules:
        return None
    found = vars(sys.modules[module]).get(name)
    if (
        not isinstance(found, type)
        or not issubclass(found, Exception)
        or found.__module__.startswith("unittest")
    ):
        return None
    return found


def library_class(module: str, name: str) -> type | None:
    """Return the judge's own class for an object of the library, or None.

    Such an object was not sent by value. `isinstance` finds this class.
    """
    often = next(
        (kind for kind, known in OFTEN.items() if (module, name) == ("builtins", known)), None
    )
    if often is not None:
        return often
    package = module.partition(".")[0]
    if package not in sys.stdlib_module_names or package == "unittest" or module not in sys.modules:
        return None
    found = vars(sys.modules[module]).get(name)
    plain = isinstance(found, type) and not any(
        base in _SHARED or base is BaseException for base in found.__mro__
    )
    return found if plain and type(found) is type else None
