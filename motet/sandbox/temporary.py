"""Temporary folders that are locked while somebody uses them, so that a later start can clear up after who was killed.

A process that is killed clears nothing up. So each folder is locked (flock) by the process that made it, and by children of it
that keep the descriptor. The kernel lets go when the last of them ends, however it ends; process ids, which are given again, play
no part. A folder is only ever removed by who holds its lock.
"""

import contextlib
import fcntl
import itertools
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MARK = ".motet-temporary"
"""Lies in a folder from when it is locked until nothing else is in it: what has none is not ours, whatever its name."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def folder(prefix: str = "motet-") -> Iterator[Path]:
    """A new folder in the machine's temporary folder until the end of the block. `prefix` begins with "motet-"."""
    sweep()
    path, lock = make(prefix)
    try:
        yield path
    finally:
        remove(path)
        os.close(lock)


def make(prefix: str) -> tuple[Path, int]:
    """A new folder, and the descriptor that locks it. It is the caller's to `remove`."""
    path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    lock = os.open(path, _FOLDER)
    with contextlib.suppress(OSError):  # a file system without locks: then nobody sweeps there
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(os.open(_MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=lock))
    return path, lock


def sweep() -> None:
    """Removes the folders of this user that `make` made and no living process holds. What cannot be removed stays."""
    for entry in os.scandir(tempfile.gettempdir()):
        if entry.name.startswith("motet-"):
            with contextlib.suppress(OSError):  # held, another user's, no folder of ours, or gone meanwhile
                lock = _claimed(entry.path)
                try:
                    remove(Path(entry.path))
                finally:
                    os.close(lock)


def _claimed(path: str) -> int:
    """The lock of a folder that nobody else holds. OSError where there is none to be had."""
    lock = os.open(path, _FOLDER)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark = os.stat(_MARK, dir_fd=lock, follow_symlinks=False)
        if not stat.S_ISREG(mark.st_mode) or {mark.st_uid, os.fstat(lock).st_uid} != {os.geteuid()}:
            raise PermissionError(f"{path} is not this user's")
    except OSError:
        os.close(lock)
        raise
    return lock


def remove(top: Path) -> None:
    """Deletes a folder, whatever a program left there: folders that it may not enter itself, trees too deep for a path.

    Every folder with something in it is first moved to the top, so no path grows. Nothing may run there any more. The mark goes
    last: who is killed here leaves what can still be swept.
    """
    numbers = itertools.count()
    while entries := [entry for entry in top.iterdir() if entry.name != _MARK]:
        for found in entries:
            if found.is_symlink() or not found.is_dir():
                found.unlink()
                continue
            found.chmod(0o700)
            for entry in list(os.scandir(found)):
                inner = Path(entry)
                if not entry.is_dir(follow_symlinks=False):
                    inner.unlink()
                    continue
                try:
                    inner.rmdir()
                except OSError:  # something is in it
                    inner.chmod(0o700)  # a locked folder cannot be moved
                    inner.rename(top / f"{os.getpid()}-{next(numbers)}")
            found.rmdir()
    (top / _MARK).unlink(missing_ok=True)
    top.rmdir()
