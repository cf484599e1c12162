"""A system call filter: a program may compute, allocate, sleep, and write to what is already open. All else is "not permitted".

There is no call left that opens, links, deletes or looks at a file, makes a socket, a process or a thread, or signals anybody.
fcntl is absent on purpose: F_SETOWN with F_SETSIG makes a pipe send signals. Written as raw BPF, so nothing need be installed.
Source: seccomp(2), and the kernel's syscall tables.
"""

import ctypes
import platform
import struct

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_ALLOWED = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
        "rt_sigprocmask": 14, "rt_sigreturn": 15, "sched_yield": 24, "mremap": 25, "madvise": 28, "nanosleep": 35,
        "getpid": 39, "exit": 60, "gettimeofday": 96, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202,
        "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231,
        "getrandom": 318,
    },
    "aarch64": {
        "read": 63, "write": 64, "close": 57, "mmap": 222, "mprotect": 226, "munmap": 215, "brk": 214, "rt_sigaction": 134,
        "rt_sigprocmask": 135, "rt_sigreturn": 139, "sched_yield": 124, "mremap": 216, "madvise": 233, "nanosleep": 101,
        "getpid": 172, "exit": 93, "gettimeofday": 169, "sigaltstack": 132, "gettid": 178, "futex": 98,
        "restart_syscall": 128, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "exit_group": 94,
        "getrandom": 278,
    },
}  # fmt: skip

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _NOT_PERMITTED, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_NUMBER, _ARCH = 0, 4
"""Offsets in struct seccomp_data."""
_X32 = 0x40000000
"""x86_64 has a second table of calls from this number on."""
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def instructions(machine: str) -> bytes:
    """The BPF program for `platform.machine()`; KeyError on a machine without a table here."""

    def op(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("HBBI", code, if_true, if_false, operand)

    program = [op(_LOAD, _ARCH), op(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0), op(_RETURN, _KILL), op(_LOAD, _NUMBER)]
    program += [op(_JUMP_AT_LEAST, _X32, 0, 1), op(_RETURN, _KILL)]
    for number in _ALLOWED[machine].values():
        program += [op(_JUMP_EQUAL, number, 0, 1), op(_RETURN, _ALLOW)]
    program += [op(_RETURN, _NOT_PERMITTED)]
    return b"".join(program)


def lock() -> None:
    """Puts the filter on this process, for good. OSError where the kernel or the machine has none."""
    try:
        code = instructions(platform.machine())
    except KeyError as error:
        raise OSError(f"no system call table for machine {error}") from error
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp refused")
