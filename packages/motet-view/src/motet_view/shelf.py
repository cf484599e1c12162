"""Runs as the viewer sees them: folders that are read again whenever they change."""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import Any

from motet.config.yaml import read_yaml
from motet.errors import ConfigError
from motet.safety.reading import read_json
from motet.trainer.run_folder import RunFolder
from motet.user_code.plugins import look_at
from motet_view.curves import RunCurves
from motet_view.index import GameIndex
from motet_view.links import run_holds
from motet_view.secrets import secrets_of_machine

DEEPEST = 3
"""Folders below a folder of runs are searched this deep."""
_QUIET_SECONDS = 600.0
"""A run that holds its lock and has written nothing for this long may hang, or was killed where
that cannot be seen (`_is_held`)."""


class ShelfRun:
    """One run folder. `name` is unique among the runs of the viewer."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.folder = RunFolder(path)
        self.index = GameIndex(path)
        self.curves = RunCurves(self.folder.metrics)
        self._read: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}

    @property
    def config(self) -> dict[str, Any]:
        """The config as plain values, whatever version wrote it. {} if it cannot be read."""
        return self._once(self.folder.config, lambda path: dict(read_yaml(path).data))

    @property
    def summary(self) -> dict[str, Any]:
        """The summary. {} if there is none yet, or if it is broken."""
        return self._once(self.folder.summary, read_json)

    def _once(self, path: Path, read: Callable[[Path], Any]) -> dict[str, Any]:
        """Read a file, and read it again only if it has changed."""
        try:
            if not run_holds(self.path, path):
                return {}
            now = path.stat()
            stamp = (now.st_mtime_ns, now.st_size)
            if path not in self._read or self._read[path][0] != stamp:
                self._read[path] = (stamp, {})  # if it cannot be read, it is not tried again
                found = read(path)
                self._read[path] = (stamp, found if isinstance(found, dict) else {})
            return self._read[path][1]
        except (ConfigError, OSError, ValueError, RecursionError):
            return {}

    @property
    def evaluated_ns(self) -> int:
        """When the last evaluation was kept. 0: never."""
        kept = self.folder.evaluations
        return kept.stat().st_mtime_ns if kept.is_dir() else 0

    @property
    def secrets(self) -> Sequence[str]:
        return secrets_of_machine(self.config)

    def state(self) -> dict[str, Any]:
        """Return `state` (training, quiet, finished or stopped) and the seconds since it wrote."""
        written = [
            path.stat().st_mtime
            for path in (self.folder.metrics, self.folder.warmup, self.folder.summary)
            if path.is_file()
        ]
        silent = max(time() - max(written), 0.0) if written else None
        place = self.path.resolve()
        lock = place.with_name(f".{place.name}.lock")
        quiet = silent is not None and silent > _QUIET_SECONDS
        if lock.exists() and (not quiet or _is_held(lock)):
            return {"state": "quiet" if quiet else "training", "silent_seconds": silent}
        finished = bool(self.summary) and self.summary.get("finished", True) is True
        return {"state": "finished" if finished else "stopped", "silent_seconds": silent}


def _is_held(lock: Path) -> bool:
    """Return whether a process holds the lock on a file; True where the system does not say it.

    Linux lists the locks of all processes with the number of their files. A killed process leaves
    the file and holds no lock.
    """
    try:
        number = str(lock.stat().st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return lock.exists()
    # "1: FLOCK  ADVISORY  WRITE 4711 fd:00:131077 0 EOF"
    return any(part.rpartition(":")[2] == number for line in lines for part in line.split()[5:6])


def find_runs(paths: Sequence[Path]) -> list[ShelfRun]:
    """Return the runs of these folders. A folder that is no run stands for all runs below it.

    Raises: ConfigError if a folder has no run.
    """
    folders: list[Path] = []
    for path in paths:
        if (kind := look_at(path)) != "folder":
            said = "is a file" if kind == "file" else "does not exist"
            raise ConfigError(f"{path} {said}; expected a run folder, such as runs/quickstart")
        found = [path] if _is_run(path) else _below(path, DEEPEST)
        if not found:
            raise ConfigError(
                f"{path} has no run: expected a folder with a config.yaml, or a folder of such "
                "folders. Train one with: motet train quickstart"
            )
        folders += [one for one in found if one not in folders]
    names = _names(folders)
    return [ShelfRun(folder, name) for folder, name in zip(folders, names, strict=True)]


def _is_run(path: Path) -> bool:
    try:
        return any((path / name).is_file() for name in ("config.yaml", "metrics.jsonl"))
    except OSError:  # a folder that this user may not read
        return False


def _below(path: Path, depth: int) -> list[Path]:
    try:
        inside = sorted(one for one in path.iterdir() if one.is_dir() and one.name[0] != ".")
    except OSError:
        return []
    found = []
    for one in inside:
        if _is_run(one):
            found.append(one)
        elif depth > 1:
            found += _below(one, depth - 1)
    return found


def _names(folders: Sequence[Path]) -> list[str]:
    """Return a short name for each folder. Equal ones get their parent folder, then a number."""
    plain = [folder.resolve().name for folder in folders]
    longer = [
        name if plain.count(name) == 1 else f"{folder.resolve().parent.name}/{name}"
        for folder, name in zip(folders, plain, strict=True)
    ]
    return [
        name if longer.count(name) == 1 else f"{name} ({longer[:place].count(name) + 1})"
        for place, name in enumerate(longer)
    ]
