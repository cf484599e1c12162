"""A Landlock domain without a single rule: no file, no TCP port, and from ABI 6 on no signal or abstract socket beyond it.

It says again, by other code of the kernel, what the system call filter says. Source: landlock(7).
"""

import ctypes
import os
import struct

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
_VERSION = 1
_PR_SET_NO_NEW_PRIVS = 38


def attributes(abi: int) -> bytes:
    """struct landlock_ruleset_attr with everything that this ABI can forbid: files, TCP, scopes."""
    file_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    words = [(1 << file_rights) - 1]
    words += [0b11] if abi >= 4 else []
    words += [0b11] if abi >= 6 else []
    return struct.pack(f"{len(words)}Q", *words)


def lock() -> None:
    """Puts this process into the empty domain, for good. OSError where the kernel has no Landlock."""
    libc = ctypes.CDLL(None, use_errno=True)
    abi = libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if abi < 1:
        raise OSError(ctypes.get_errno(), "the kernel has no Landlock")
    rules = attributes(abi)
    ruleset = libc.syscall(_CREATE_RULESET, rules, len(rules), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused the rule set")
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.syscall(_RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "Landlock refused the domain")
    os.close(ruleset)
