"""Temporary folders that are locked while somebody uses them, so that a later start can clear up after who was killed.

A process that is killed clears nothing up. So each folder is locked (flock) by the process that made it, and by children of it
that keep the descriptor. The kernel lets go when the last of them ends, however it ends; process ids, which are given again, play
no part. A folder is only ever removed by who holds its lock.
"""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MARK = ".motet-temporary"
"""Lies in a folder from when it is locked until nothing else is in it, and says whose it is: another folder, or a copy of one,
has none, whatever its name."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK_BYTES = 4096
"""More than any mark has."""


@contextlib.contextmanager
def folder(prefix: str = "motet-", suffix: str = "", place: Path | None = None) -> Iterator[Path]:
    """A new folder until the end of the block, in `place` or in the machine's temporary folder, where `prefix` begins with
    "motet-". Who was killed with such a folder left it: those with its beginning and end go first."""
    sweep("motet-" if place is None else prefix, suffix, place)
    path, lock = make(prefix, suffix, place)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):  # what is left now can be swept later
            remove(path)
        os.close(lock)


def make(prefix: str, suffix: str = "", place: Path | None = None) -> tuple[Path, int]:
    """A new folder, and the descriptor that locks it. It is the caller's to `remove`."""
    path = Path(tempfile.mkdtemp(suffix, prefix, place)).resolve()
    lock = os.open(path, _FOLDER)
    with contextlib.suppress(OSError):  # a file system without locks: then nobody sweeps there
        fcntl.flock(lock, fcntl.LOCK_EX)  # who sweeps may hold it until he finds no mark
        mark = os.open(_MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=lock)
        os.write(mark, _said(path.name))
        os.close(mark)
    return path, lock


def sweep(prefix: str = "motet-", suffix: str = "", place: Path | None = None) -> None:
    """Removes the folders of this user that `make` made and no living process holds. What cannot be removed stays."""
    with contextlib.suppress(OSError):  # a machine without a temporary folder, or one that may not be listed
        for entry in os.scandir(tempfile.gettempdir() if place is None else place):
            if entry.name.startswith(prefix) and entry.name.endswith(suffix):
                with contextlib.suppress(OSError):  # held, another user's, no folder of ours, or gone meanwhile
                    lock = _claimed(entry.path)
                    try:
                        remove(Path(entry.path))
                    finally:
                        os.close(lock)


def _said(name: str) -> bytes:
    """What the mark of a folder says: locks hold on one machine only, and several may share a file system."""
    return f"{os.uname().nodename}\n{name}\n".encode(errors="surrogateescape")


def _claimed(path: str) -> int:
    """The lock of a folder that nobody else holds. OSError where there is none to be had."""
    lock = os.open(path, _FOLDER)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark = os.open(_MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=lock)
        try:
            found, said = os.fstat(mark), os.read(mark, _MARK_BYTES)
        finally:
            os.close(mark)
        ours = {found.st_uid, os.fstat(lock).st_uid} == {os.geteuid()}
        if not (stat.S_ISREG(found.st_mode) and ours and said == _said(Path(path).name)):
            raise PermissionError(f"{path} is not this user's on this machine")
    except OSError:
        os.close(lock)
        raise
    return lock


def remove(top: Path) -> None:
    """Deletes a folder, whatever a program left there: folders that it may not enter itself, trees too deep for a path.

    Every folder with something in it is first moved to the top, so no path grows, and no name but those of the top is looked up
    twice: who owns what lies deeper cannot put a link in its place. Nothing may run there any more. The mark goes last: who is
    killed here leaves what can still be swept.
    """
    handle = os.open(top, _FOLDER)
    try:
        while names := [entry.name for entry in os.scandir(handle) if entry.name != _MARK]:
            for name in names:
                _remove(name, handle)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_MARK, dir_fd=handle)
    finally:
        os.close(handle)
    top.rmdir()


def _remove(name: str, top: int) -> None:
    """Deletes what lies in the folder `top` under this name, but moves the folders in it that are not empty to the top."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=top, follow_symlinks=False).st_mode):
        return os.unlink(name, dir_fd=top)
    os.chmod(name, 0o700, dir_fd=top)
    handle = os.open(name, _FOLDER, dir_fd=top)
    try:
        for entry in list(os.scandir(handle)):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=handle)
                continue
            try:
                os.rmdir(entry.name, dir_fd=handle)
            except OSError:  # something is in it
                _move(entry.name, handle, top)
    finally:
        os.close(handle)
    return os.rmdir(name, dir_fd=top)


def _move(name: str, out_of: int, into: int) -> None:
    to = secrets.token_hex(16)
    try:
        os.rename(name, to, src_dir_fd=out_of, dst_dir_fd=into)
    except PermissionError:  # a locked folder of an ordinary user's
        os.chmod(name, 0o700, dir_fd=out_of)
        os.rename(name, to, src_dir_fd=out_of, dst_dir_fd=into)
