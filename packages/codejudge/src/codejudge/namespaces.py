"""Linux namespaces for the server and its children.

They see only their own processes, no network and no shared memory. The server enters the
namespaces once. It still sees the host's files, because it must import modules. Each child changes
its root to `EMPTY_ROOT`, which is empty and read-only. Source: unshare(2), user_namespaces(7).
"""

import ctypes
import os

from codejudge.libc import LIBC

EMPTY_ROOT = "/proc"
"""Mount point of the empty file system.

Every Linux has this folder, and the mount hides its content.
"""

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_WORLD = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
_BARREN = 1 | 2 | 4 | 8  # MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
_PR_SET_DUMPABLE = 4


def enter() -> None:
    """Leave the host's namespaces. The next forked process is process 1 of the new ones.

    Real root needs no user namespace. It is better without one, because its children can then
    become a user who owns nothing. Raises: OSError if the kernel refuses.
    """
    user, group = os.getuid(), os.getgid()
    if user != 0 or LIBC.unshare(_WORLD):
        # Without this, a process that once was root cannot write its own id maps.
        LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        if LIBC.unshare(_WORLD | _NEWUSER):
            raise OSError(ctypes.get_errno(), "the kernel does not allow user namespaces")
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
            os.write(descriptor, text.encode())
            os.close(descriptor)
    for source, target, kind, flags in (
        (None, b"/", None, _PRIVATE),
        (b"none", EMPTY_ROOT.encode(), b"tmpfs", _BARREN),
    ):
        if LIBC.mount(source, target, kind, flags, None):
            raise OSError(
                ctypes.get_errno(), f"the kernel does not allow mounting {target.decode()}"
            )


def become_first() -> None:
    """Fork, and return in process 1 of the new namespaces.

    The calling process waits outside and exits with the same status.
    """
    first = os.fork()
    if first != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
