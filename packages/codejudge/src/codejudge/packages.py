"""Load the packages outside the standard library that programs may import.

The server loads them once, at start. Meanwhile an import hook admits only the named packages, so
every dependency of a package must be named too. Afterwards the server forgets the machine's package
folders and programs can import no other package. A loaded package still finds its own modules
through its own path.
"""

import contextlib
import importlib
import os
import resource
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

loaded_mb = 0
"""Address space of the loaded packages, in MB. It is added to the memory limit of each program."""
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Variables that limit libraries to one thread. A fork copies no threads and a program may start
none, so parallel code would wait forever for its worker threads.
"""


def load(names: Sequence[str], folders: Sequence[str]) -> None:
    """Import every package or module in `names` from `folders`.

    Raises whatever such an import raises.
    """
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
        # Like the standard library's generator: the same numbers on every server.
        sys.modules["numpy.random"].seed(0)
    loaded_mb += (_address_space() - before >> 20) + 1


def _import_with_late_parts(name: str) -> None:
    """Import a module, including the parts that it loads on first access.

    numpy loads numpy.fft that way, for example. A program could not load it later.
    """
    module = importlib.import_module(name)
    for part in set(dir(module)) - vars(module).keys():
        with contextlib.suppress(Exception):
            getattr(module, part)


class _Gate:
    """The first finder of the import system.

    Raises ModuleNotFoundError for a module that is neither allowed nor in the standard library.
    """

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = allowed

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        of_the_library = name in sys.stdlib_module_names or name.startswith("_sysconfigdata_")
        if path is None and not of_the_library and name not in self._allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _address_space() -> int:
    """Return the address space of this process in bytes.

    Returns 0 except on Linux; address space is not limited elsewhere.
    """
    if sys.platform != "linux":
        return 0
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
