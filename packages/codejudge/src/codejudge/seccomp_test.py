import re
import struct
from pathlib import Path
from typing import get_args

import pytest

from codejudge import seccomp

ALLOWED, NOT_PERMITTED, NOT_SUPPORTED, PRETENDED, KILLED = (
    0x7FFF0000,
    0x00050001,
    0x0005005F,
    0x00050000,
    0x80000000,
)
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
HEADERS = {
    "x86_64": ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"),
    "aarch64": ("/usr/include/asm-generic/unistd.h",),
}
"""aarch64 uses the kernel's generic table."""


TABLES = (
    seccomp._ALLOWED,
    seccomp._FILES,
    seccomp._MARKING,
    seccomp._UNSUPPORTED,
    seccomp._BY_COMMAND,
)


def verdict(program: bytes, arch: int, number: int, second: int = 0, fourth: int = 0) -> int:
    """Interpret the BPF program: return its answer to system call `number` with these arguments."""
    data = struct.pack("IIQQQQQ", number, arch, 0, 0, second, 0, fourth)
    code = list(struct.iter_unpack("HBBI", program))
    value = at = 0
    while True:
        operation, if_true, if_false, operand = code[at]
        at += 1
        if operation == 0x20:
            (value,) = struct.unpack_from("I", data, operand)
        elif operation == 0x06:
            return operand
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand != 0}[
                operation
            ]
            at += if_true if holds else if_false


def asked(
    machine: str, name: str, second: int = 0, reach: seccomp.Reach = "a folder", fourth: int = 0x22
) -> int:
    number = next(table[machine][name] for table in TABLES if name in table[machine])
    return verdict(seccomp.instructions(machine, reach), MACHINES[machine], number, second, fourth)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_numbers_are_those_of_the_kernels_header(machine: str) -> None:
    header = next((Path(path) for path in HEADERS[machine] if Path(path).is_file()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    known = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    ours: dict[str, int] = {}
    for table in TABLES:
        ours |= table[machine]
    newer = {"fchmodat2", "faccessat2", "statx"} - known.keys()
    generic = {"fstatat": "newfstatat"}
    known |= {generic[name]: known[name] for name in generic if name in known}
    assert {name: str(number) for name, number in ours.items() if name not in newer} == {
        name: known[name] for name in ours if name not in newer
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_files_are_allowed_only_where_there_is_a_folder(machine: str) -> None:
    for name in seccomp._ALLOWED[machine]:
        assert asked(machine, name, reach="nothing") == asked(machine, name) == ALLOWED
    for name in (
        *seccomp._FILES[machine],
        *seccomp._MARKING[machine],
        *seccomp._UNSUPPORTED[machine],
        "fcntl",
    ):
        assert asked(machine, name, reach="nothing") == NOT_PERMITTED
    assert asked(machine, "openat") == ALLOWED
    assert asked(machine, "fchmodat") == PRETENDED
    assert asked(machine, "fchmodat", reach="its root") == ALLOWED
    assert asked(machine, "listxattr") == NOT_SUPPORTED


@pytest.mark.parametrize("machine", MACHINES)
def test_files_are_mapped_only_in_a_file_system_that_counts_them(machine: str) -> None:
    private, shared, anonymous = 0x02, 0x01, 0x20
    for reach in get_args(seccomp.Reach):
        assert asked(machine, "mmap", reach=reach, fourth=private | anonymous) == ALLOWED
        for flags in (private, shared, 0x03, private | 1 << 32 | anonymous << 32):
            files = NOT_PERMITTED if reach in ("a folder", "its root") else ALLOWED
            assert asked(machine, "mmap", reach=reach, fourth=flags) == files


@pytest.mark.parametrize("machine", MACHINES)
def test_fcntl_locks_and_copies_but_sends_no_signals(machine: str) -> None:
    for command in (0, 6, 38, 1030):
        assert asked(machine, "fcntl", command) == ALLOWED
        assert asked(machine, "fcntl", command | 1 << 32) == ALLOWED, (
            "the kernel reads the low half only, and so do we"
        )
    # Flags, F_SETOWN, F_SETSIG, F_SETOWN_EX, leases.
    for command in (4, 8, 10, 15, 1024, 8 | 1 << 32):
        assert asked(machine, "fcntl", command) == NOT_PERMITTED
    assert asked(machine, "ioctl", 0x5451) == ALLOWED
    assert asked(machine, "ioctl", 0x5412) == NOT_PERMITTED, "TIOCSTI types into a terminal"


@pytest.mark.parametrize("machine", MACHINES)
def test_no_call_is_left_that_reaches_out(machine: str) -> None:
    program = seccomp.instructions(machine, "its file system")
    out = {
        "x86_64": {"sendfile": 40, "socket": 41, "clone": 56, "fork": 57, "execve": 59, "kill": 62,
                   "truncate": 76, "link": 86, "symlink": 88, "readlink": 89, "ptrace": 101,
                   "setpgid": 109, "mknod": 133, "chroot": 161, "mount": 165, "setxattr": 188,
                   "fsetxattr": 190, "linkat": 265, "symlinkat": 266, "unshare": 272,
                   "splice": 275, "fallocate": 285, "prlimit64": 302, "memfd_create": 319,
                   "copy_file_range": 326, "io_uring_setup": 425, "pidfd_open": 434,
                   "clone3": 435, "openat2": 437},
        "aarch64": {"setxattr": 5, "fsetxattr": 7, "mknodat": 33, "symlinkat": 36, "linkat": 37,
                    "mount": 40, "truncate": 45, "fallocate": 47, "chroot": 51, "sendfile": 71,
                    "splice": 76, "readlinkat": 78, "unshare": 97, "ptrace": 117, "kill": 129,
                    "setpgid": 154, "socket": 198, "clone": 220, "execve": 221, "prlimit64": 261,
                    "memfd_create": 279, "copy_file_range": 285, "io_uring_setup": 425,
                    "pidfd_open": 434, "clone3": 435, "openat2": 437},
    }[machine]  # fmt: skip
    assert {verdict(program, MACHINES[machine], number) for number in out.values()} == {
        NOT_PERMITTED
    }
    assert verdict(program, 0x40000003, 0) == KILLED, "a 32-bit program"
    assert verdict(program, MACHINES[machine], 0x40000001) == KILLED, "the x32 table"
