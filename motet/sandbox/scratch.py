"""A private folder for one request: writable, limited in size, and gone afterwards.

In namespaces it is a small file system of its own, which the programs have as their root. Where only Landlock confines them it is
a fresh folder on the machine's disk. That has no size limit, so a watchman looks at it a hundred times a second and kills the
programs that overfill it; he also clears up where the server dies. He sees names only. A file without a name lives on while it is
open or mapped, so there half of the room is for such files: few descriptors, small files, and no mapping of a file (seccomp.py).
Below Landlock nothing would keep a program in its folder, and it gets none.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from motet.sandbox import namespaces, temporary
from motet.sandbox.libc import LIBC

MOST_BYTES = 16 << 20
MOST_ENTRIES = 1024
"""Files and folders together."""
MOST_FILE_BYTES, MOST_OPEN_FILES = 8 << 20, 32
"""Where the folder is a file system of its own, which counts every file, with a name or without."""
WATCHED_FILE_BYTES, WATCHED_OPEN_FILES = 512 << 10, 16
_WATCHED_BYTES = MOST_BYTES - WATCHED_FILE_BYTES * WATCHED_OPEN_FILES
"""Where a watchman counts: what he may find, so that with files that have no name there is `MOST_BYTES` at most."""
_NOBODY = 65534
_GLANCE_SECONDS = 0.01
_MOST_LOOKS = 20
"""How often a look may be disturbed by folders that are renamed meanwhile, one after the other."""
_BLOCK = 4096
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_NOATIME", 0)
"""Leaves no trace in the time of a folder's last access: a program could hide where somebody has looked already."""
_SIMPLE = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_MNT_DETACH = 2


@dataclass(frozen=True)
class Place:
    """Where a request's scratch folder is, as the server sees it."""

    path: str
    group: int | None
    """The process group that its programs join, to be killed together; None where the file system has a limit of its own."""

    def enter(self, layers: Collection[str]) -> str:
        """Makes the folder this process's root where that is possible; returns its path from now on, "/" as the root.

        From now on no import reads a file: a program could put its own where the library's stood, and its judge would load it.
        """
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PathFinder]
        if self.group is not None:
            os.setpgid(0, self.group)
        try:
            os.chroot(self.path)
        except PermissionError:
            if "namespaces" in layers:
                raise
            return self.path  # an ordinary user's server: Landlock confines the program alone
        return "/"

    @property
    def most_files(self) -> tuple[int, int]:
        """Bytes of a file, and open files of a process."""
        return (MOST_FILE_BYTES, MOST_OPEN_FILES) if self.group is None else (WATCHED_FILE_BYTES, WATCHED_OPEN_FILES)


def possible(layers: Collection[str]) -> bool:
    """Whether a program under these layers can be kept in a folder."""
    return "seccomp" in layers and ("landlock" in layers or "namespaces" in layers)


@contextlib.contextmanager
def folder(layers: Collection[str]) -> Iterator[Place]:
    """A fresh folder until the end of the block, by when its programs must have ended. PermissionError where none is possible."""
    if not possible(layers):
        raise PermissionError(f"a scratch folder needs seccomp with Landlock or namespaces, got {', '.join(layers)}")
    with _mounted() if "namespaces" in layers else _watched() as place:
        yield place


# ---------------------------------------------------------------------------------------------------- in namespaces


@contextlib.contextmanager
def _mounted() -> Iterator[Place]:
    """Lies over the empty root for a while. The world of this server has nobody else in it, so everybody may write."""
    target, options = namespaces.EMPTY_ROOT.encode(), f"size={MOST_BYTES},nr_inodes={MOST_ENTRIES},mode=0777"
    if LIBC.mount(b"none", target, b"tmpfs", _SIMPLE, options.encode()):
        raise OSError(ctypes.get_errno(), "the kernel refuses to mount a scratch folder")
    try:
        yield Place(namespaces.EMPTY_ROOT, None)
    finally:
        if LIBC.umount2(target, _MNT_DETACH):
            raise OSError(ctypes.get_errno(), "the kernel refuses to unmount a scratch folder")


# ---------------------------------------------------------------------------------------------------- with Landlock alone


@contextlib.contextmanager
def _watched() -> Iterator[Place]:
    """A folder within one that is the server's, so that what a program left can be taken apart beside it."""
    top, lock = temporary.make("motet-scratch-")
    tempfile.tempdir = None  # a program that asks for the usual place must find its own, not remember ours
    path = top / "scratch"
    path.mkdir(0o700)
    if os.geteuid() == 0:
        top.chmod(0o711)
        with contextlib.suppress(OSError):  # where there is nobody to become, the programs are root without its rights
            os.chown(path, _NOBODY, _NOBODY)
    server = os.getpid()
    watchman = os.fork()
    if watchman == 0:
        try:
            os.closerange(0, lock)  # what the server has open must close where the server ends; he holds the lock on
            os.closerange(lock + 1, 1 << 16)
            os.setpgid(0, 0)
            _watch(path, server)
            temporary.remove(top)
        finally:
            os._exit(0)
    try:
        os.setpgid(watchman, watchman)  # whoever comes first: programs must not join a group before it exists
        yield Place(str(path), watchman)
    finally:
        temporary.remove(top)
        os.close(lock)
        os.kill(watchman, signal.SIGKILL)
        os.waitpid(watchman, 0)


def _watch(path: Path, server: int) -> None:
    """Returns once the server is gone. The programs die with it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seen = _Folders(path)
    while os.getppid() == server:
        if seen.full():
            os.killpg(0, signal.SIGKILL)
        time.sleep(_GLANCE_SECONDS)


class _Folders:
    """A folder and those below it, each kept open from when it was first seen: whatever a program calls it since, it is found."""

    def __init__(self, top: Path) -> None:
        self._open = {top.stat().st_ino: os.open(top, _LOOK)}

    def full(self) -> bool:
        """Whether there is too much, or what cannot be looked at: a locked folder, or one that is never where it was."""
        for _ in range(_MOST_LOOKS):
            try:
                return self._look()
            except FileNotFoundError:  # a new folder was renamed or removed since it was listed
                continue
            except OSError:
                return True
        return True

    def _look(self) -> bool:
        size, entries = 0, 0
        waiting = list(self._open.items())
        while waiting:
            number, folder = waiting.pop()
            about = os.fstat(folder)
            if not about.st_nlink:  # removed
                os.close(self._open.pop(number))
                continue
            size += _rounded(about.st_size)  # a folder of many long names is large itself
            for entry in os.scandir(folder):
                entries += 1
                if entry.is_dir(follow_symlinks=False):
                    if entry.inode() not in self._open:
                        self._open[entry.inode()] = os.open(entry.name, _LOOK, dir_fd=folder)
                        waiting.append((entry.inode(), self._open[entry.inode()]))
                else:
                    with contextlib.suppress(FileNotFoundError):  # removed since
                        size += _rounded(entry.stat(follow_symlinks=False).st_size)
                if size > _WATCHED_BYTES or entries > MOST_ENTRIES:
                    return True
        return False


def _rounded(size: int) -> int:
    """What a file takes of the disk."""
    return -(-size // _BLOCK) * _BLOCK
