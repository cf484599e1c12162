"""A system call filter: a program may compute, allocate, sleep, and write to open descriptors.

Every other system call fails with "not permitted". No allowed call opens, links, deletes or
inspects a file, makes a socket, process or thread, or sends a signal.

A second, longer table is for programs with a scratch folder. Its calls take paths; Landlock or a
root folder of its own restricts *which* paths. So the table has no call that changes something and
that Landlock does not check:

- Links, devices and truncate by name are absent.
- With Landlock alone, chmod and utime do nothing and report success.
- Of fcntl, it allows copies of descriptors and locks. F_SETOWN with F_SETSIG would make a pipe send
  signals.
- Files can be mapped only in a file system of the program's own. On the machine's disk, a mapping
  would keep a file that has neither name nor descriptor any more, and nobody could count it.

The filter is written as raw BPF, so no package is needed. Source: seccomp(2), landlock(7), the
kernel's syscall tables.
"""

import ctypes
import platform
import struct
from collections.abc import Iterable
from typing import Literal, get_args

from codejudge.libc import LIBC

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOWED = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12,
        "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24,
        "mremap": 25, "madvise": 28, "nanosleep": 35, "getpid": 39, "exit": 60,
        "gettimeofday": 96, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202,
        "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
        "clock_nanosleep": 230, "exit_group": 231, "getrandom": 318,
    },
    "aarch64": {
        "read": 63, "write": 64, "close": 57, "mmap": 222, "mprotect": 226, "munmap": 215,
        "brk": 214, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139,
        "sched_yield": 124, "mremap": 216, "madvise": 233, "nanosleep": 101, "getpid": 172,
        "exit": 93, "gettimeofday": 169, "sigaltstack": 132, "gettid": 178, "futex": 98,
        "restart_syscall": 128, "clock_gettime": 113, "clock_getres": 114,
        "clock_nanosleep": 115, "exit_group": 94, "getrandom": 278,
    },
}  # fmt: skip
_FILES = {
    "x86_64": {
        "openat": 257, "stat": 4, "fstat": 5, "lstat": 6, "newfstatat": 262, "statx": 332,
        "access": 21, "faccessat": 269, "faccessat2": 439, "lseek": 8, "pread64": 17,
        "pwrite64": 18, "readv": 19, "writev": 20, "flock": 73, "fsync": 74, "fdatasync": 75,
        "ftruncate": 77, "getdents64": 217, "getcwd": 79, "chdir": 80, "rename": 82,
        "renameat": 264, "mkdir": 83, "mkdirat": 258, "rmdir": 84, "unlink": 87, "unlinkat": 263,
        "umask": 95, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
    },
    "aarch64": {
        "openat": 56, "fstat": 80, "newfstatat": 79, "statx": 291, "faccessat": 48,
        "faccessat2": 439, "lseek": 62, "pread64": 67, "pwrite64": 68, "readv": 65, "writev": 66,
        "flock": 32, "fsync": 82, "fdatasync": 83, "ftruncate": 46, "getdents64": 61,
        "getcwd": 17, "chdir": 49, "renameat": 38, "mkdirat": 34, "unlinkat": 35, "umask": 166,
        "getuid": 174, "getgid": 176, "geteuid": 175, "getegid": 177,
    },
}  # fmt: skip
"""Additional calls for programs with a scratch folder. Landlock does not check stat, access and
chdir, which change nothing.
"""
_MARKING = {
    "x86_64": {
        "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452, "utime": 132,
        "utimes": 235, "futimesat": 261, "utimensat": 280,
    },
    "aarch64": {"fchmod": 52, "fchmodat": 53, "fchmodat2": 452, "utimensat": 88},
}  # fmt: skip
"""Calls that Landlock does not check. If the folder is not the root, they do nothing and report
success, because functions that copy files call them.
"""
_UNSUPPORTED = {
    "x86_64": {"listxattr": 194, "llistxattr": 195, "flistxattr": 196},
    "aarch64": {"listxattr": 11, "llistxattr": 12, "flistxattr": 13},
}
"""Calls that fail as on a file system without extended attributes. Functions that copy files accept
that error.
"""
_COMMANDS = {
    "fcntl": {
        "F_DUPFD": 0, "F_GETFD": 1, "F_SETFD": 2, "F_GETFL": 3,
        "F_GETLK": 5, "F_SETLK": 6, "F_SETLKW": 7,
        "F_OFD_GETLK": 36, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38, "F_DUPFD_CLOEXEC": 1030,
    },
    "ioctl": {"FIONCLEX": 0x5450, "FIOCLEX": 0x5451},
}  # fmt: skip
"""Allowed values of the second argument of these calls."""
_BY_COMMAND = {"x86_64": {"fcntl": 72, "ioctl": 16}, "aarch64": {"fcntl": 25, "ioctl": 29}}
_MAP_ANONYMOUS = 0x20
"""A flag in the fourth argument of mmap: no file is mapped."""

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_IF_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NOT_PERMITTED, _NOT_SUPPORTED = _ERROR | 1, _ERROR | 95
_NUMBER, _ARCH, _SECOND_ARGUMENT, _FOURTH_ARGUMENT = 0, 4, 24, 40
"""Offsets in struct seccomp_data. For an argument, the offset of its low half."""
_X32 = 0x40000000
"""x86_64 has a second table of calls from this number on."""
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38


Reach = Literal["nothing", "a folder", "its root", "its file system"]
"""What a program may do with files.

- "nothing": no file access.
- "a folder": anything inside one folder.
- "its root": the same, and the folder is the root of the program.
- "its file system": the same, and the folder is a file system that counts its files.
"""


def instructions(machine: str, reach: Reach) -> bytes:
    """Return the BPF program for `platform.machine()`.

    Raises KeyError for a machine without a table here.
    """

    def op(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, operand)

    def answers(numbers: Iterable[int], verdict: int) -> list[bytes]:
        return [
            part
            for number in numbers
            for part in (op(_JUMP_EQUAL, number, 0, 1), op(_RETURN, verdict))
        ]

    program = [
        op(_LOAD, _ARCH),
        op(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        op(_RETURN, _KILL),
        op(_LOAD, _NUMBER),
    ]
    program += [op(_JUMP_AT_LEAST, _X32, 0, 1), op(_RETURN, _KILL)]
    if reach in ("a folder", "its root"):
        program += [op(_JUMP_EQUAL, _ALLOWED[machine]["mmap"], 0, 4), op(_LOAD, _FOURTH_ARGUMENT)]
        program += [
            op(_JUMP_IF_SET, _MAP_ANONYMOUS, 0, 1),
            op(_RETURN, _ALLOW),
            op(_RETURN, _NOT_PERMITTED),
        ]
    program += answers(_ALLOWED[machine].values(), _ALLOW)
    if reach != "nothing":
        program += answers(_FILES[machine].values(), _ALLOW)
        program += answers(_MARKING[machine].values(), _ERROR if reach == "a folder" else _ALLOW)
        program += answers(_UNSUPPORTED[machine].values(), _NOT_SUPPORTED)
        for name, number in _BY_COMMAND[machine].items():
            commands = [*answers(_COMMANDS[name].values(), _ALLOW), op(_RETURN, _NOT_PERMITTED)]
            program += [
                op(_JUMP_EQUAL, number, 0, 1 + len(commands)),
                op(_LOAD, _SECOND_ARGUMENT),
                *commands,
            ]
    program += [op(_RETURN, _NOT_PERMITTED)]
    return b"".join(program)


class _Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def _program(reach: Reach) -> _Program | None:
    machine = platform.machine()
    if machine not in _ALLOWED:
        return None
    code = instructions(machine, reach)
    return _Program(len(code) // 8, code)


_PROGRAMS = {reach: _program(reach) for reach in get_args(Reach)}
"""Built before the server forks, for all its children. None if this machine has no table."""


def lock(reach: Reach = "nothing") -> None:
    """Install the filter in this process. It cannot be removed.

    Raises OSError if the kernel does not support it or the machine has no table.
    """
    program = _PROGRAMS[reach]
    if program is None:
        raise OSError(f"seccomp: got machine {platform.machine()}, expected x86_64 or aarch64")
    LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp rejected the filter")
