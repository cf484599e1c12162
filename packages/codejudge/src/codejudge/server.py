"""The warm fork server: a small Python that keeps the usual modules loaded.

It forks one locked child per program. In test mode it forks one for the candidate and one for its
judge.

It starts without site packages and with an empty environment, and imports only this folder and the
standard library. It never holds the text of a program or test, because later children would inherit
it: a child reads it from the channel itself. The server relays what children write through a memory
mapping that it unmaps before the next fork. Descriptor 0 is its socket to the host. If the host
closes the socket, the children and the server end.
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

from codejudge import (
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
from codejudge.candidate_client import CandidateClient

_WARM = (
    "_strptime", "abc", "array", "bisect", "calendar", "cmath", "collections.abc", "contextlib",
    "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "hashlib",
    "heapq", "io", "itertools", "json", "linecache", "math", "numbers", "operator", "random", "re",
    "statistics", "string", "struct", "textwrap", "time", "types", "typing", "unittest._log",
    "unicodedata", "encodings.ascii", "encodings.base64_codec", "encodings.cp1252",
    "encodings.cp437", "encodings.hex_codec", "encodings.idna", "encodings.latin_1",
    "encodings.punycode", "encodings.raw_unicode_escape", "encodings.rot_13",
    "encodings.unicode_escape", "encodings.utf_16", "encodings.utf_32", "encodings.utf_8_sig",
)  # fmt: skip
"""Modules that most programs import, and modules that the library would import too late. Other
modules are loaded per program, if its text names them.
"""
_SETUP_SECONDS = 15.0
"""Maximum time for a child to import modules and to install its locks."""
_GLANCE_SECONDS = 0.01
_SLACK = 1 << 16
"""Bytes that a child may write beyond its limit, for the errors it reports in place of values."""


def main(wanted: str, user: str, allowed: str) -> None:
    """Serve requests until the host closes the channel.

    `wanted`: layers to install, separated by commas. `user`: the user id to switch to from root, or
    "". `allowed`: packages to load and the folders to find them in, as JSON.

    The first message to the host names the installed layers, or says on a second line why this
    server cannot serve.
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
    except Exception as error:  # noqa: BLE001 - report to the host whatever an import raises
        cause = error.__cause__ or error
        return protocol.send(channel, f"\n{type(cause).__name__}: {cause}".encode(errors="replace"))
    if user:
        child.become(int(user))
    temporary.sweep("codejudge-")
    tempfile.tempdir = None  # programs must look up their own default
    # Opened now, because the namespaces will hide it.
    proc = os.open("/proc", os.O_RDONLY) if sys.platform == "linux" else None
    layers = [layer for layer in wanted.split(",") if layer and works(_LOCKS[layer])]
    if "namespaces" in layers:
        namespaces.enter()
        child.die_with_parent()
        namespaces.become_first()
    child.die_with_parent()
    client = trial.rehearse()
    random.seed(0)  # the same numbers for every program
    gc.collect()
    gc.freeze()  # garbage collection in a child then does not write to the server's pages
    if proc is not None:
        with contextlib.suppress(OSError):
            spare_faults(proc, layers, client)
        os.close(proc)
    with contextlib.suppress(EOFError, ConnectionError):
        protocol.send(channel, ",".join(layers).encode())
        while True:
            head = protocol.Request(
                *protocol.REQUEST.unpack(protocol.exactly(channel, protocol.REQUEST.size))
            )
            with scratch.folder(layers) if head.files else contextlib.nullcontext() as place:
                healthy = outcome(channel, head, layers, place, client)
            if not healthy:
                # A child may have left part of its frames in the channel. The host starts a fresh
                # server.
                return None


_LOCKS: dict[str, Callable[[], None]] = {
    "seccomp": seccomp.lock,
    "landlock": landlock.lock,
    "namespaces": namespaces.enter,
}


def works(lock: Callable[[], None]) -> bool:
    """Test whether this machine supports the lock.

    The test runs in a child process, because a lock cannot be removed.
    """
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
    client: CandidateClient,
) -> bool:
    """Run one program and send the reply: how its processes ended, and what was written.

    Returns False if the program did not start.
    """
    started = time.monotonic()
    theirs: list[int] = []
    """The candidate's process, if a different process writes the results."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    if head.mode == protocol.APART:
        (asked, asks), (answer, answers) = os.pipe(), os.pipe()
        theirs = [
            _forked(lambda: trial.run_candidate(head, channel, layers, asked, answers, place))
        ]
        os.close(asked)
        os.close(answers)
        pid = _forked(
            lambda: trial.run_judge(head, channel, layers, writer, answer, asks, place, client)
        )
        os.close(asks)
        os.close(answer)
    elif head.mode == protocol.TOGETHER:
        pid = _forked(lambda: trial.run_together(head, channel, layers, writer, place))
    else:
        pid = _forked(lambda: child.run(head, channel, layers, writer))
    os.close(writer)
    # A mapping of its own, not Python's heap: it is unmapped before the next fork, so that no
    # program finds the test results of another one.
    with mmap.mmap(-1, head.output_bytes + _SLACK) as written:
        try:
            size, late = _read(reader, channel, head.wall_seconds, written)
        finally:
            os.close(reader)
            ends = [_ended(process) for process in (pid, *theirs)]
        if (
            "seccomp" in layers
            and place is None
            and any(end.by_others(head.cpu_seconds) for end in ends)
        ):
            # This says nothing about its program. The host retries on a fresh server.
            raise EOFError("a sandbox process was killed from outside")
        statuses = [(end.status, end.cpu_seconds) for end in ends]
        much = size == len(written)
        (status, cpu_seconds), (their_status, their_cpu_seconds) = (*statuses, (0, 0.0))[:2]
        seconds = time.monotonic() - started
        reply = protocol.REPLY.pack(
            late, much, status, cpu_seconds, their_status, their_cpu_seconds, seconds
        )
        channel.sendall(protocol.LENGTH.pack(len(reply) + size) + reply)
        with memoryview(written)[:size] as content:
            channel.sendall(content)
        return protocol.READY_LINE.match(written) is not None


def _forked(run: Callable[[], None]) -> int:
    """Fork a child that calls `run` and ends. Returns its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            run()
        finally:
            os._exit(0)  # the child must never return into the server's loop
    return pid


class _End(NamedTuple):
    """How a child ended.

    `stopped` is True if it had closed its pipe and was still running, so this server killed it.
    """

    status: int
    cpu_seconds: float
    stopped: bool

    def by_others(self, most_cpu_seconds: float) -> bool:
        """Test whether the machine killed it, for example because memory was short.

        Under the filter no program can send a signal.
        """
        killed = os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL
        return killed and not self.stopped and self.cpu_seconds <= most_cpu_seconds


def _ended(pid: int) -> _End:
    """Kill a child if it is still running, and return how it ended."""
    # A process that is already exiting ignores the signal; any other one stops.
    os.kill(pid, signal.SIGSTOP)
    state = (
        os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
        if sys.platform == "linux"
        else None
    )
    os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    stopped = state is None or state.si_code == os.CLD_STOPPED
    return _End(status, usage.ru_utime + usage.ru_stime, stopped)


def _read(
    reader: int, channel: socket.socket, wall_seconds: float, written: mmap.mmap
) -> tuple[int, bool]:
    """Read what the child writes, up to the size of `written`.

    Returns the number of bytes, and whether the time limit came first. The program's time starts at
    the child's first line, so setup on a busy machine does not count. After that line, the server
    checks the pipe at intervals only: waking up for every line costs more time than it is worth.
    """
    size = 0
    deadline = time.monotonic() + _SETUP_SECONDS
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(channel, 0)  # hang-ups only: the child reads what the host has sent
    with memoryview(written) as room:
        while size < len(room):
            left = deadline - time.monotonic()
            ready = (
                dict(poll.poll(min(left, _GLANCE_SECONDS if size else left) * 1000))
                if left > 0
                else {}
            )
            if channel.fileno() in ready:
                raise EOFError("the host closed the connection")
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
    """Read the bytes that are available now.

    Returns their number, 0 at the end of the stream, or None if there are none yet.
    """
    try:
        return os.readv(reader, [room])
    except BlockingIOError:
        return None


# -------------------------------------------------------------------------- what every child writes

_USUAL = "def main(xs):\n    return sum(x * 2 for x in xs if x > 2)\n"


def spare_faults(proc: int, layers: Collection[str], client: CandidateClient) -> None:
    """Find the pages that a request writes in a child or in the server, for copying at later forks.

    One child runs a program and stays alive while the server serves another one. Any page that
    these three processes then do not share was written by one of them. If the fork can copy these
    pages, they are registered for that.

    Raises OSError if the kernel does not say which pages those are.
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
            outcome(theirs, head, layers, None, client)
            addresses = pages.unshared(proc)
        finally:
            status = _ended(pid).status
    # If the child had ended earlier, every page would have counted as not shared.
    if status == signal.SIGKILL and works(lambda: pages.copy_at_fork(addresses)):
        pages.copy_at_fork(addresses)
