"""Put the process into a Landlock domain without any rule.

The domain forbids all files and TCP ports. From ABI 6 on it also forbids signals to processes
outside the domain and abstract sockets outside it. The system call filter (seccomp.py) already
forbids all that; Landlock repeats it with other code of the kernel.

With a scratch folder the domain has one rule: programs may create, read, write, rename and remove
plain files and folders below it. Source: landlock(7).
"""

import ctypes
import os
import struct

from codejudge.libc import LIBC

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_IN_A_FOLDER = sum(
    1 << right
    for right in (
        1, 2, 3,  # write and read files, list folders
        4, 5, 7, 8,  # remove folders and files, make them
        13, 14,  # rename from one folder to another, truncate
    )
)  # fmt: skip
"""All rights except executing files and making devices, sockets, pipes and symbolic links."""
_PR_SET_NO_NEW_PRIVS = 38


def attributes(abi: int) -> bytes:
    """Pack struct landlock_ruleset_attr with all that this ABI can forbid: files, TCP, scopes."""
    file_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)
    words = [(1 << file_rights) - 1]
    words += [0b11] if abi >= 4 else []
    words += [0b11] if abi >= 6 else []
    return struct.pack(f"{len(words)}Q", *words)


def lock(folder: str | None = None) -> None:
    """Put this process into the domain permanently. Only `folder` stays accessible, if given.

    Raises: OSError if the kernel has no Landlock or refuses.
    """
    abi = LIBC.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if abi < 1:
        raise OSError(ctypes.get_errno(), "the kernel has no Landlock")
    rules = attributes(abi)
    ruleset = LIBC.syscall(_CREATE_RULESET, rules, len(rules), 0)
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "Landlock rejected the rule set")
    if folder is not None:
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        (handled,) = struct.unpack_from("Q", rules)
        rule = struct.pack("=Qi", handled & _IN_A_FOLDER, handle)
        if LIBC.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), "Landlock rejected the rule for the scratch folder")
        os.close(handle)
    LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if LIBC.syscall(_RESTRICT_SELF, ruleset, 0):
        raise OSError(ctypes.get_errno(), "Landlock rejected the domain")
    os.close(ruleset)
