"""Copy, at the fork, the memory pages that every child writes.

A child shares the server's pages copy-on-write: the first write to a shared page causes a page
fault, which costs several times the copying. The kernel cannot share pages that a device may be
writing to, so it copies those at the fork. We use this: we register the pages that a child is known
to write with an io_uring. The ring never receives an operation, and children close it with their
other descriptors. If the kernel refuses, forks are slower and nothing else changes.

Source: proc_pid_pagemap(5), io_uring_register(2), `copy_present_page` in the kernel's mm/memory.c.
"""

import ctypes
import os
import re
import struct
from collections.abc import Sequence

from codejudge.libc import LIBC

_IO_URING_SETUP, _IO_URING_REGISTER, _BUFFERS = 425, 427, 0
_PARAMETERS_BYTES = 120
"""Size of struct io_uring_params."""
_PRESENT, _OF_A_FILE, _OURS_ALONE = 1 << 63, 1 << 61, 1 << 56
_WRITABLE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw.p")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def unshared(proc: int) -> list[int]:
    """Return the addresses of the pages that this process has written and shares with no other.

    `proc` is an open descriptor of the folder /proc.
    """
    with open("self/maps", opener=lambda path, flags: os.open(path, flags, dir_fd=proc)) as maps:
        areas = [
            (int(area[1], 16), int(area[2], 16)) for area in map(_WRITABLE.match, maps) if area
        ]
    table = os.open("self/pagemap", os.O_RDONLY, dir_fd=proc)
    found = []
    for begin, end in areas:
        entries = os.pread(table, (end - begin) // _PAGE * 8, begin // _PAGE * 8)
        for index, (entry,) in enumerate(struct.iter_unpack("Q", entries)):
            if entry & (_PRESENT | _OF_A_FILE | _OURS_ALONE) == _PRESENT | _OURS_ALONE:
                found.append(begin + index * _PAGE)
    os.close(table)
    return found


def copy_at_fork(addresses: Sequence[int]) -> None:
    """Make later forks of this process copy these pages immediately.

    Raises OSError if the kernel does not support it.
    """
    # The ring stays open until this process ends.
    ring = LIBC.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(_PARAMETERS_BYTES))
    if ring < 0:
        raise OSError(ctypes.get_errno(), "the kernel does not allow io_uring")
    buffers = b"".join(struct.pack("PN", address, _PAGE) for address in addresses)
    if LIBC.syscall(_IO_URING_REGISTER, ring, _BUFFERS, buffers, len(addresses)):
        error = ctypes.get_errno()
        os.close(ring)
        raise OSError(error, "the kernel does not allow keeping the pages in memory")
