"""Configs that installed packages bring, found by name: `quickstart`, `verifiers/tiny`."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from motet.user_code.installed import installed

SUFFIX = ".yaml"


def named_configs() -> Mapping[str, Path]:
    """Return name -> file of every config in an installed package, in alphabetical order."""
    found: dict[str, Path] = {}
    for point in installed("configs").values():
        try:
            spec = find_spec(point.value)
        except ModuleNotFoundError:  # a package that was removed only in part
            continue
        for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
            for path in folder.rglob(f"*{SUFFIX}"):
                found[path.relative_to(folder).with_suffix("").as_posix()] = path
    return dict(sorted(found.items()))


def config_path(target: str | Path) -> Path:
    """Return the path of a config or run: `target` itself, or the file of that name in a package.

    A path that exists comes first.
    """
    path = Path(target)
    if path.suffix or path.is_absolute() or path.exists():
        return path
    return named_configs().get(path.as_posix(), path)
