"""Temporary folders with a lock, so that a later start can remove those of killed processes.

A killed process removes nothing. So the process that made a folder locks it (flock), and so do its
children that keep the descriptor. The kernel releases the lock when the last of them ends, for
whatever reason. Process ids are not used, because the system reuses them. Only the process that
holds the lock of a folder removes it.
"""

import contextlib
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

_MARK = ".temporary-owner"
"""A file that identifies the owner of a folder. It exists from when the folder is locked until
everything else in it is deleted. Other folders, and copies of a folder, have no valid mark,
whatever their names.
"""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MARK_BYTES = 4096
"""Larger than any mark."""


@contextlib.contextmanager
def folder(prefix: str, suffix: str = "", place: Path | None = None) -> Iterator[Path]:
    """Yield a new folder, in `place` or in the machine's temporary folder. Removes it afterwards.

    First removes the folders that killed processes left: those with this prefix and suffix. In the
    machine's temporary folder, those whose prefix has the same first word, such as "app-".
    """
    sweep(prefix.partition("-")[0] + "-" if place is None else prefix, suffix, place)
    path, lock = make(prefix, suffix, place)
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):  # the rest can be swept later
            remove(path)
        os.close(lock)


def make(prefix: str, suffix: str = "", place: Path | None = None) -> tuple[Path, int]:
    """Return a new folder and the descriptor that locks it. The caller must `remove` it."""
    path = Path(tempfile.mkdtemp(suffix, prefix, place)).resolve()
    lock = os.open(path, _FOLDER)
    with contextlib.suppress(OSError):  # a file system without locks is never swept
        fcntl.flock(lock, fcntl.LOCK_EX)  # a sweep may hold the lock until it finds no mark
        mark = os.open(
            _MARK, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=lock
        )
        os.write(mark, _said(path.name))
        os.close(mark)
    return path, lock


def sweep(prefix: str, suffix: str = "", place: Path | None = None) -> None:
    """Remove this user's folders that `make` made and that no living process has locked.

    Folders that cannot be removed stay.
    """
    # The machine may have no temporary folder, or one that cannot be listed.
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir() if place is None else place):
            if entry.name.startswith(prefix) and entry.name.endswith(suffix):
                # It may be locked, of another user, not made by us, or already removed.
                with contextlib.suppress(OSError):
                    lock = _claimed(entry.path)
                    try:
                        remove(Path(entry.path))
                    finally:
                        os.close(lock)


def _said(name: str) -> bytes:
    """Return the content of a folder's mark.

    It names the machine, because locks hold on one machine only and machines may share a file
    system.
    """
    return f"{os.uname().nodename}\n{name}\n".encode(errors="surrogateescape")


def _claimed(path: str) -> int:
    """Return the lock of a folder that nobody else has locked.

    Raises OSError if it is locked, or is not a folder of ours.
    """
    lock = os.open(path, _FOLDER)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mark = os.open(
            _MARK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=lock
        )
        try:
            found, said = os.fstat(mark), os.read(mark, _MARK_BYTES)
        finally:
            os.close(mark)
        ours = {found.st_uid, os.fstat(lock).st_uid} == {os.geteuid()}
        if not (stat.S_ISREG(found.st_mode) and ours and said == _said(Path(path).name)):
            raise PermissionError(f"{path} does not belong to this user on this machine")
    except OSError:
        os.close(lock)
        raise
    return lock


def remove(top: Path) -> None:
    """Delete a folder with all its content, including unreadable folders and very deep trees.

    Each subfolder that is not empty is first moved to the top. So paths stay short, and only names
    in the top folder are looked up twice: whoever owns deeper entries cannot replace them by a
    link. No program may run in the folder any more. The mark is deleted last, so that a folder that
    is only partly removed can still be swept.
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
    """Delete the entry `name` of the folder `top`. First move its non-empty subfolders to `top`."""
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
            except OSError:  # the folder is not empty
                _move(entry.name, handle, top)
    finally:
        os.close(handle)
    return os.rmdir(name, dir_fd=top)


def _move(name: str, out_of: int, into: int) -> None:
    to = secrets.token_hex(16)
    try:
        os.rename(name, to, src_dir_fd=out_of, dst_dir_fd=into)
    except PermissionError:  # a folder without permissions, and we are not root
        os.chmod(name, 0o700, dir_fd=out_of)
        os.rename(name, to, src_dir_fd=out_of, dst_dir_fd=into)
