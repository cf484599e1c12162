"""A world with nothing in it: own processes, no network, no shared memory, and an empty read-only root for the programs.

The server enters it once. It keeps seeing the host's files, because it must import modules; each child goes on to `EMPTY_ROOT`.
Source: unshare(2), user_namespaces(7).
"""

import ctypes
import os

from motet.sandbox.libc import LIBC

EMPTY_ROOT = "/proc"
"""Where the empty file system lies: every Linux has the folder, and what it showed is covered."""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_WORLD = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_BARREN = 1 | 2 | 4 | 8  # MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
_PR_SET_DUMPABLE = 4


def enter() -> None:
    """Leaves the host's namespaces. The next fork is process 1 of the new world; OSError where the kernel refuses.

    Real root needs no user namespace and is better without: its children can then become a user who owns nothing.
    """
    user, group = os.getuid(), os.getgid()
    if user != 0 or LIBC.unshare(_WORLD):
        LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)  # a process that once was root may not write its own maps otherwise
        if LIBC.unshare(_WORLD | _NEWUSER):
            raise OSError(ctypes.get_errno(), "the kernel refuses user namespaces")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, text.encode())
            os.close(descriptor)
    for source, target, kind, flags in (
        (None, b"/", None, _PRIVATE),
        (b"none", EMPTY_ROOT.encode(), b"tmpfs", _BARREN),
    ):
        if LIBC.mount(source, target, kind, flags, None):
            raise OSError(ctypes.get_errno(), f"the kernel refuses to mount {target.decode()}")


def become_first() -> None:
    """Returns in process 1 of the new world; the process that called waits outside and ends with it."""
    first = os.fork()
    if first != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
