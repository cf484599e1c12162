"""The packages of this project, whose files and errors are not the user's own."""

from functools import cache
from importlib.util import find_spec
from pathlib import Path

NAMES = frozenset(
    {
        "motet",
        "codejudge",
        "motet_tasks",
        "motet_published",
        "motet_view",
        "motet_serve",
        "motet_verifier",
    }
)


@cache
def folders() -> tuple[Path, ...]:
    """Return the folders of those packages that are installed."""
    found = (find_spec(name) for name in sorted(NAMES))
    return tuple(Path(spec.origin).resolve().parent for spec in found if spec and spec.origin)


def is_ours(module: str) -> bool:
    """Return whether a dotted name belongs to one of the packages."""
    return module.partition(".")[0] in NAMES
