"""Shell completion of paths: config files, run folders, and the folders on the way to them.

It imports nothing heavy, because the shell waits for it at every press of the tab key.
"""

from pathlib import Path

CONFIG = "config.yaml"
"""The file that makes a folder that of a run."""


def complete_config(incomplete: str) -> list[str]:
    """Return the YAML files and folders whose path begins with `incomplete`, and the configs of
    packages whose name does."""
    return _found(incomplete, files=True, runs=False) + _named(incomplete)


def complete_run(incomplete: str) -> list[str]:
    """Return the run folders and the other folders whose path begins with `incomplete`."""
    return _found(incomplete, files=False, runs=True)


def complete_target(incomplete: str) -> list[str]:
    """Return the YAML files, run folders and other folders whose path begins with `incomplete`, and
    the configs of packages whose name does."""
    return _found(incomplete, files=True, runs=True) + _named(incomplete)


def _named(incomplete: str) -> list[str]:
    from motet.config.paths import named_configs

    return [name for name in named_configs() if incomplete and name.startswith(incomplete)]


def _found(incomplete: str, *, files: bool, runs: bool) -> list[str]:
    """Return the matches. If a plain folder is the only one, return what is in it.

    The shell adds a space to a single match, and after a folder the path goes on.
    """
    matches = _beginning_with(incomplete, files, runs)
    while len(matches) == 1 and matches[0].endswith("/"):
        inside = _beginning_with(matches[0], files, runs)
        if not inside:
            break
        matches = inside
    return matches


def _beginning_with(incomplete: str, files: bool, runs: bool) -> list[str]:
    head, slash, tail = incomplete.rpartition("/")
    folder = Path(head + slash).expanduser() if head or slash else Path()
    try:
        there = sorted(folder.iterdir())
    except OSError:  # no such folder: nothing to offer
        return []
    names = [path for path in there if path.name.startswith(tail or "") and path.name[0] != "."]
    found = []
    for path in names:
        if path.is_dir():
            run = runs and (path / CONFIG).is_file()
            found.append(f"{head}{slash}{path.name}{'' if run else '/'}")
        elif files and path.suffix in (".yaml", ".yml"):
            found.append(f"{head}{slash}{path.name}")
    return found
