import ctypes
import mmap
import os
import resource
import sys
from collections.abc import Callable

import pytest

from codejudge import pages

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc and io_uring are Linux")
PAGE, PAGES = os.sysconf("SC_PAGE_SIZE"), 64


@pytest.fixture
def memory() -> mmap.mmap:
    """Some written pages of this process."""
    memory = mmap.mmap(-1, PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = b"a" * len(memory)
    return memory


def address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def said_by_a_child(say: Callable[[], int]) -> int:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, str(say()).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    said = int(os.read(reader, 100))
    os.close(reader)
    os.close(writer)
    return said


@linux
def test_pages_that_a_living_child_wrote_are_shared_no_more(memory: mmap.mmap) -> None:
    (go, written), (ended, end) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        memory[3 * PAGE] = memory[5 * PAGE] = 98
        os.write(written, b".")
        os.read(ended, 1)
        os._exit(0)
    os.read(go, 1)
    proc = os.open("/proc", os.O_RDONLY)
    alone = pages.unshared(proc)
    os.write(end, b".")
    os.waitpid(pid, 0)
    for descriptor in (go, written, ended, end, proc):
        os.close(descriptor)
    assert [
        (each - address(memory)) // PAGE
        for each in alone
        if 0 <= each - address(memory) < len(memory)
    ] == [
        3,
        5,
    ]


@linux
def test_a_fork_copies_registered_pages_and_writing_them_interrupts_nobody(
    memory: mmap.mmap,
) -> None:
    def interruptions() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for page in range(PAGES):
            memory[page * PAGE] = 98
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    def with_registered_pages() -> int:
        try:
            pages.copy_at_fork([address(memory) + page * PAGE for page in range(PAGES)])
        except OSError:
            return -1
        return said_by_a_child(interruptions)

    assert said_by_a_child(interruptions) >= PAGES
    registered = said_by_a_child(with_registered_pages)
    if registered == -1:
        pytest.skip("this kernel refuses an io_uring")
    assert registered < PAGES // 2
    assert memory[0] == 97, "what a child writes stays its own"
