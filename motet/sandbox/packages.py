"""Packages outside the standard library that programs may import: the server loads them once, and nothing else is ever found.

While it loads them a gate stands before the import system, through which only the packages named may come; what one of them needs
must be named too. Afterwards the machine's package folders are forgotten. A package still finds its own modules, by its own path.
"""

import contextlib
import importlib
import os
import resource
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

loaded_mb = 0
"""Address space that the packages take, in MB. Programs get as much on top of their limit."""
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""A fork copies no threads, and a program may start none: what computes in parallel would wait for them for ever."""


def load(names: Sequence[str], folders: Sequence[str]) -> None:
    """Imports every one of `names` (a package, or a module in one) from `folders`. Raises whatever such an import raises."""
    global loaded_mb
    before, path = _address_space(), list(sys.path)
    gate = _Gate({name.partition(".")[0] for name in names})
    sys.meta_path.insert(0, gate)
    sys.path += folders
    os.environ |= dict.fromkeys(_ONE_THREAD, "1")
    try:
        for name in names:
            _import_with_late_parts(name)
    finally:
        os.environ.clear()
        sys.path[:] = path
        for folder in folders:
            sys.path_importer_cache.pop(folder, None)
        sys.meta_path.remove(gate)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)  # like the library's generator: the same numbers on every server
    loaded_mb += (_address_space() - before >> 20) + 1


def _import_with_late_parts(name: str) -> None:
    """And the parts that a package loads when somebody asks for them, as numpy does with numpy.fft: later is too late."""
    module = importlib.import_module(name)
    for part in set(dir(module)) - vars(module).keys():
        with contextlib.suppress(Exception):
            getattr(module, part)


class _Gate:
    """The first finder of the import system: says no to whatever is neither allowed nor of the standard library."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = allowed

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        of_the_library = name in sys.stdlib_module_names or name.startswith("_sysconfigdata_")
        if path is None and not of_the_library and name not in self._allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _address_space() -> int:
    """Bytes; 0 where the machine does not say, and limits no address space either."""
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
