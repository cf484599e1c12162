"""Pages that every child writes: a fork copies them at once, and no child stops to have them copied one by one.

A child shares the server's pages until one of the two writes to one; that interrupts the writer, and costs several times the
copying. Pages that a device may be writing to cannot be shared like that: a fork copies them. So those that a child is known to
write are registered with an io_uring, which is never asked to do anything and which children close with all else. Where the
kernel refuses, forks are slower and nothing else changes.

Source: proc_pid_pagemap(5), io_uring_register(2), `copy_present_page` in the kernel's mm/memory.c.
"""

import ctypes
import os
import re
import struct
from collections.abc import Sequence

from motet.sandbox.libc import LIBC

_IO_URING_SETUP, _IO_URING_REGISTER, _BUFFERS = 425, 427, 0
_PARAMETERS_BYTES = 120
"""Of struct io_uring_params."""
_PRESENT, _OF_A_FILE, _OURS_ALONE = 1 << 63, 1 << 61, 1 << 56
_WRITABLE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw.p")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def unshared(proc: int) -> list[int]:
    """The addresses of what this process has written and shares with no other. `proc` is the open folder /proc."""
    with open("self/maps", opener=lambda path, flags: os.open(path, flags, dir_fd=proc)) as maps:
        areas = [(int(area[1], 16), int(area[2], 16)) for area in map(_WRITABLE.match, maps) if area]
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
    """Has the coming forks of this process copy these pages at once. OSError where the kernel does not do it."""
    ring = LIBC.syscall(
        _IO_URING_SETUP, 1, ctypes.create_string_buffer(_PARAMETERS_BYTES)
    )  # open as long as this process
    if ring < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses an io_uring")
    buffers = b"".join(struct.pack("PN", address, _PAGE) for address in addresses)
    if LIBC.syscall(_IO_URING_REGISTER, ring, _BUFFERS, buffers, len(addresses)):
        error = ctypes.get_errno()
        os.close(ring)
        raise OSError(error, "the kernel refuses to hold the pages")
