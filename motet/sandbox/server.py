"""The warm fork server: a small Python that has the usual modules loaded, and forks one locked child per program.

It is started without site packages and with an empty environment, and knows nothing of Motet but this folder. Texts of programs
and of tests are never in its memory, where later children would inherit them: a child takes them off the channel itself, and what
children write is relayed through a page that is gone before the next fork. Descriptor 0 is its socket to the host; where that
closes, the children and the server end.
"""

import contextlib
import gc
import importlib
import marshal
import mmap
import os
import random
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from motet.sandbox import (
    arrays,
    child,
    landlock,
    namespaces,
    packages,
    pages,
    protocol,
    scratch,
    seccomp,
    temporary,
    trial,
)
from motet.sandbox.world import World

_WARM = (
    "_strptime", "abc", "array", "bisect", "calendar", "cmath", "collections.abc", "contextlib", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "linecache", "math",
    "numbers", "operator", "random", "re", "statistics", "string", "struct", "textwrap", "time", "types", "typing",
    "unittest._log",
    "unicodedata", "encodings.ascii", "encodings.base64_codec", "encodings.cp1252", "encodings.cp437", "encodings.hex_codec",
    "encodings.idna", "encodings.latin_1", "encodings.punycode", "encodings.raw_unicode_escape", "encodings.rot_13",
    "encodings.unicode_escape", "encodings.utf_16", "encodings.utf_32", "encodings.utf_8_sig",
)  # fmt: skip
"""What most programs import, and what the library would import too late. The rest is loaded per program, if its text names it."""
_SETUP_SECONDS = 15.0
"""How long a child may take to import and to close its doors."""
_GLANCE_SECONDS = 0.01
_SLACK = 1 << 16
"""Bytes a child may write beyond its limit: the errors it reports in place of values."""


def main(wanted: str, user: str, allowed: str) -> None:
    """Serves until the host hangs up. `wanted`: layers to put on, with commas; `user`: a number to give root up for, or "".

    `allowed`: packages to load and the folders to find them in, as JSON. Greets with the layers, and a line why it cannot serve.
    """
    channel = socket.socket(fileno=0)
    sys.argv = [""]
    os.environ.clear()
    for name in _WARM:
        importlib.import_module(name)
    try:
        packages.load(*protocol.loads(allowed.encode()))
        if "numpy" in sys.modules:
            arrays.learn(sys.modules["numpy"])
    except Exception as error:  # noqa: BLE001 - whatever a package raises when it is imported, the host has to hear
        cause = error.__cause__ or error
        return protocol.send(channel, f"\n{type(cause).__name__}: {cause}".encode(errors="replace"))
    if user:
        child.become(int(user))
    temporary.sweep()
    tempfile.tempdir = None  # a program that asks for the usual place must find its own
    proc = os.open("/proc", os.O_RDONLY) if sys.platform == "linux" else None  # the namespaces cover it
    layers = [layer for layer in wanted.split(",") if layer and works(_LOCKS[layer])]
    if "namespaces" in layers:
        namespaces.enter()
        child.die_with_parent()
        namespaces.become_first()
    child.die_with_parent()
    world = trial.rehearse()
    random.seed(0)  # the same numbers for every program
    gc.collect()
    gc.freeze()  # a child that collects garbage need not copy the server's pages
    if proc is not None:
        with contextlib.suppress(OSError):
            spare_faults(proc, layers, world)
        os.close(proc)
    with contextlib.suppress(EOFError, ConnectionError):
        protocol.send(channel, ",".join(layers).encode())
        while True:
            head = protocol.Request(*protocol.REQUEST.unpack(protocol.exactly(channel, protocol.REQUEST.size)))
            with scratch.folder(layers) if head.files else contextlib.nullcontext() as place:
                healthy = outcome(channel, head, layers, place, world)
            if not healthy:
                return None  # a child may have left part of its frames in the channel: the host takes a fresh server


_LOCKS: dict[str, Callable[[], None]] = {
    "seccomp": seccomp.lock,
    "landlock": landlock.lock,
    "namespaces": namespaces.enter,
}


def works(lock: Callable[[], None]) -> bool:
    """Whether this machine has the lock: tried in a process of its own, because locks do not come off."""
    if sys.platform != "linux":
        return False
    pid = os.fork()
    if pid == 0:
        code = 1
        with contextlib.suppress(OSError):
            lock()
            code = 0
        os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def outcome(
    channel: socket.socket,
    head: protocol.Request,
    layers: Collection[str],
    place: scratch.Place | None,
    world: World,
) -> bool:
    """Runs one program and replies: how its processes ended, and what was written. False where they did not begin."""
    started = time.monotonic()
    theirs: list[int] = []
    """The candidate's process, where another one than that which writes."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    if head.mode == protocol.APART:
        (asked, asks), (answer, answers) = os.pipe(), os.pipe()
        theirs = [_forked(lambda: trial.run_candidate(head, channel, layers, asked, answers, place))]
        os.close(asked)
        os.close(answers)
        pid = _forked(lambda: trial.run_judge(head, channel, layers, writer, answer, asks, place, world))
        os.close(asks)
        os.close(answer)
    elif head.mode == protocol.TOGETHER:
        pid = _forked(lambda: trial.run_together(head, channel, layers, writer, place))
    else:
        pid = _forked(lambda: child.run(head, channel, layers, writer))
    os.close(writer)
    # Not memory of Python: it is given back before the next fork, so that no program finds what another one's tests said.
    with mmap.mmap(-1, head.output_bytes + _SLACK) as written:
        try:
            size, late = _read(reader, channel, head.wall_seconds, written)
        finally:
            os.close(reader)
            ends = [_ended(process) for process in (pid, *theirs)]
        if "seccomp" in layers and place is None and any(end.by_others(head.cpu_seconds) for end in ends):
            raise EOFError(
                "a child was killed from outside"
            )  # nothing is known of its program: the host asks a fresh server
        statuses = [(end.status, end.cpu_seconds) for end in ends]
        much = size == len(written)
        (status, cpu_seconds), (their_status, their_cpu_seconds) = (*statuses, (0, 0.0))[:2]
        seconds = time.monotonic() - started
        reply = protocol.REPLY.pack(late, much, status, cpu_seconds, their_status, their_cpu_seconds, seconds)
        channel.sendall(protocol.LENGTH.pack(len(reply) + size) + reply)
        with memoryview(written)[:size] as content:
            channel.sendall(content)
        return protocol.READY_LINE.match(written) is not None


def _forked(run: Callable[[], None]) -> int:
    """A child that runs something and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)  # nothing of the program may come back into the server's loop
    return pid


class _End(NamedTuple):
    """How a child ended. `stopped`: it had closed its pipe and gone on, so it was us who killed it."""

    status: int
    cpu_seconds: float
    stopped: bool

    def by_others(self, most_cpu_seconds: float) -> bool:
        """Whether the machine killed it, as one that is short of memory does: under the filter no program can signal anybody."""
        killed = os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL
        return killed and not self.stopped and self.cpu_seconds <= most_cpu_seconds


def _ended(pid: int) -> _End:
    """Makes sure that a child has ended."""
    os.kill(pid, signal.SIGSTOP)  # who is about to end does not hear it; who lives on cannot but
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT) if sys.platform == "linux" else None
    os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    stopped = state is None or state.si_code == os.CLD_STOPPED
    return _End(status, usage.ru_utime + usage.ru_stime, stopped)


def _read(reader: int, channel: socket.socket, wall_seconds: float, written: mmap.mmap) -> tuple[int, bool]:
    """Reads all that the child writes, as far as there is room: how much, and whether time was up first.

    The program's time begins with the child's first line, so a busy machine takes nothing of it for our own doings. From then on
    lines are left in the pipe until the child has ended, but for a look now and then: waking up for each costs more than it says.
    """
    size = 0
    deadline = time.monotonic() + _SETUP_SECONDS
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(channel, 0)  # hang-ups only: what the host has said is the child's to read
    with memoryview(written) as room:
        while size < len(room):
            left = deadline - time.monotonic()
            ready = dict(poll.poll(min(left, _GLANCE_SECONDS if size else left) * 1000)) if left > 0 else {}
            if channel.fileno() in ready:
                raise EOFError("the host hung up")
            if left <= 0:
                return size, True
            with room[size:] as rest:
                count = _available(reader, rest)
            if count == 0:
                break
            if count is not None and not size:
                deadline = time.monotonic() + wall_seconds
                poll.modify(reader, 0)
            size += count or 0
    return size, False


def _available(reader: int, room: memoryview) -> int | None:
    """Reads what is there now: how much, 0 at the end, or None."""
    try:
        return os.readv(reader, [room])
    except BlockingIOError:
        return None


# ---------------------------------------------------------------------------------------------------- what every child writes

_USUAL = "def main(xs):\n    return sum(x * 2 for x in xs if x > 2)\n"


def spare_faults(proc: int, layers: Collection[str], world: World) -> None:
    """Finds the pages that a child writes, or the server beside it, and has all later forks copy them at once.

    One child runs a program and stays, the server serves another: what the three then do not share, one of them wrote. OSError
    where the kernel does not say which pages those are.
    """
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    head = protocol.Request(_SETUP_SECONDS, 3, 512, 1 << 16, protocol.CALLS, False)
    request = marshal.dumps({"sources": [_USUAL], "modules": [], "calls": [["main", [[1, 2, 3]]]]})

    def stay() -> None:
        child.run(head, theirs, layers, writer)
        os.close(child.RESULTS)
        time.sleep(_SETUP_SECONDS)

    with ours, theirs:
        protocol.send(ours, request)
        pid = _forked(stay)
        os.close(writer)
        try:
            with os.fdopen(reader, "rb") as results:
                results.read()
            protocol.send(ours, request)
            outcome(theirs, head, layers, None, world)
            addresses = pages.unshared(proc)
        finally:
            status = _ended(pid).status
    # Had the child ended before we did it, all would have been unshared.
    if status == signal.SIGKILL and works(lambda: pages.copy_at_fork(addresses)):
        pages.copy_at_fork(addresses)
