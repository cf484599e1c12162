"""A private folder for one request: writable, limited in size, and removed afterwards.

With namespaces, the folder is a small file system of its own, and it is the root of the programs.

With Landlock alone, the folder is a fresh folder on the machine's disk. Such a folder has no size
limit. So a watchdog process (`_watch`) measures it a hundred times per second and kills the
programs that exceed the limit. The watchdog also removes the folder if the server dies. It can
measure files with a name only, but a file without a name still occupies the disk while it is open
or mapped. So half of the space is reserved for such files, and seccomp.py bounds them: few
descriptors, small files, and no mapping of a file.

Below Landlock nothing would keep a program inside its folder, so there is no folder.
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

from codejudge import namespaces, temporary
from codejudge.libc import LIBC

MOST_BYTES = 16 << 20
MOST_ENTRIES = 1024
"""Maximum number of files and folders together."""
MOST_FILE_BYTES, MOST_OPEN_FILES = 8 << 20, 32
"""Limits if the folder is a file system of its own, which counts every file, with or without a
name.
"""
WATCHED_FILE_BYTES, WATCHED_OPEN_FILES = 512 << 10, 16
_WATCHED_BYTES = MOST_BYTES - WATCHED_FILE_BYTES * WATCHED_OPEN_FILES
"""The limit that the watchdog applies. Together with files without a name, a folder then holds at
most `MOST_BYTES`.
"""
_NOBODY = 65534
_GLANCE_SECONDS = 0.01
_MOST_LOOKS = 20
"""How often one measurement may be interrupted by folders that are renamed in the meantime."""
_BLOCK = 4096
_LOOK = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_NOATIME", 0)
"""Does not change a folder's last access time, which would tell a program what was already
measured.
"""
_SIMPLE = 2 | 4 | 8  # MS_NOSUID | MS_NODEV | MS_NOEXEC
_MNT_DETACH = 2


@dataclass(frozen=True)
class Place:
    """Where a request's scratch folder is, as the server sees it."""

    path: str
    group: int | None
    """The process group that the programs join, so that they can be killed together. None if the
    file system limits its own size.
    """

    def enter(self, layers: Collection[str]) -> str:
        """Enter the folder and return its path in this process.

        Makes the folder the root of this process if that is possible; its path is then "/". From
        now on no import reads a file: a program could put a file in the place of a library module,
        and its judge would load it.
        """
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not PathFinder]
        if self.group is not None:
            os.setpgid(0, self.group)
        try:
            os.chroot(self.path)
        except PermissionError:
            if "namespaces" in layers:
                raise
            return self.path  # the server is not root: Landlock alone confines the program
        return "/"

    @property
    def most_files(self) -> tuple[int, int]:
        """Maximum bytes per file, and maximum open files per process."""
        return (
            (MOST_FILE_BYTES, MOST_OPEN_FILES)
            if self.group is None
            else (WATCHED_FILE_BYTES, WATCHED_OPEN_FILES)
        )


def possible(layers: Collection[str]) -> bool:
    """Test whether these layers can keep a program inside a folder."""
    return "seccomp" in layers and ("landlock" in layers or "namespaces" in layers)


@contextlib.contextmanager
def folder(layers: Collection[str]) -> Iterator[Place]:
    """Yield a fresh folder. Its programs must have ended by the end of the block.

    Raises PermissionError if the layers cannot keep a program inside a folder.
    """
    if not possible(layers):
        raise PermissionError(
            f"scratch folder: got the layers {', '.join(layers)}; expected seccomp with Landlock "
            "or namespaces"
        )
    with _mounted() if "namespaces" in layers else _watched() as place:
        yield place


# ------------------------------------------------------------------------------------ in namespaces


@contextlib.contextmanager
def _mounted() -> Iterator[Place]:
    """Mount a file system over the empty root.

    Nobody else is in the mount namespace of this server, so the folder may be writable for
    everybody.
    """
    target, options = (
        namespaces.EMPTY_ROOT.encode(),
        f"size={MOST_BYTES},nr_inodes={MOST_ENTRIES},mode=0777",
    )
    if LIBC.mount(b"none", target, b"tmpfs", _SIMPLE, options.encode()):
        raise OSError(ctypes.get_errno(), "the kernel does not allow mounting a scratch folder")
    try:
        yield Place(namespaces.EMPTY_ROOT, None)
    finally:
        if LIBC.umount2(target, _MNT_DETACH):
            raise OSError(
                ctypes.get_errno(), "the kernel does not allow unmounting a scratch folder"
            )


# ------------------------------------------------------------------------------ with Landlock alone


@contextlib.contextmanager
def _watched() -> Iterator[Place]:
    """Yield a folder inside a folder of the server.

    The outer folder is where the server later takes apart what a program left.
    """
    top, lock = temporary.make("codejudge-scratch-")
    tempfile.tempdir = None  # programs must look up their own default, not reuse the server's
    path = top / "scratch"
    path.mkdir(0o700)
    if os.geteuid() == 0:
        top.chmod(0o711)
        # If user 65534 does not exist, the programs run as root without its capabilities.
        with contextlib.suppress(OSError):
            os.chown(path, _NOBODY, _NOBODY)
    server = os.getpid()
    watcher = os.fork()
    if watcher == 0:
        try:
            # Close the server's descriptors, which must close when the server ends, but the lock.
            os.closerange(0, lock)
            os.closerange(lock + 1, 1 << 16)
            os.setpgid(0, 0)
            _watch(path, server)
            temporary.remove(top)
        finally:
            os._exit(0)
    try:
        # Both processes set the group: it must exist before programs join it.
        os.setpgid(watcher, watcher)
        yield Place(str(path), watcher)
    finally:
        temporary.remove(top)
        os.close(lock)
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)


def _watch(path: Path, server: int) -> None:
    """Measure the folder until the server is gone. The programs end when the server does."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seen = _Folders(path)
    while os.getppid() == server:
        if seen.full():
            os.killpg(0, signal.SIGKILL)
        time.sleep(_GLANCE_SECONDS)


class _Folders:
    """A folder and its subfolders, each kept open since it was first seen.

    So a folder is still measured after a program renames it.
    """

    def __init__(self, top: Path) -> None:
        self._open = {top.stat().st_ino: os.open(top, _LOOK)}

    def full(self) -> bool:
        """Test whether there is too much content, or content that cannot be measured.

        That is a folder without read permission, or one that is renamed before every attempt.
        """
        for _ in range(_MOST_LOOKS):
            try:
                return self._look()
            except FileNotFoundError:  # a new folder was renamed or removed after listing it
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
            size += _rounded(about.st_size)  # a folder with many long names is large itself
            for entry in os.scandir(folder):
                entries += 1
                if entry.is_dir(follow_symlinks=False):
                    if entry.inode() not in self._open:
                        self._open[entry.inode()] = os.open(entry.name, _LOOK, dir_fd=folder)
                        waiting.append((entry.inode(), self._open[entry.inode()]))
                else:
                    with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                        size += _rounded(entry.stat(follow_symlinks=False).st_size)
                if size > _WATCHED_BYTES or entries > MOST_ENTRIES:
                    return True
        return False


def _rounded(size: int) -> int:
    """Return the disk space of a file of this size."""
    return -(-size // _BLOCK) * _BLOCK
