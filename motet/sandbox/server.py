"""The warm fork server: a small Python that has the usual modules loaded, and forks one locked child per program.

It is started without site packages and with an empty environment, and knows nothing of Motet but this folder. It relays what
children write without reading it. Descriptor 0 is its socket to the host; where that closes, the child and the server end.
"""

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection

from motet.sandbox import child, landlock, namespaces, protocol, seccomp

_WARM = (
    "_strptime", "abc", "array", "bisect", "calendar", "cmath", "collections.abc", "contextlib", "copy", "dataclasses",
    "datetime", "decimal", "enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "linecache", "math",
    "numbers", "operator", "random", "re", "statistics", "string", "struct", "textwrap", "time", "types", "typing",
    "unicodedata", "encodings.ascii", "encodings.base64_codec", "encodings.cp1252", "encodings.hex_codec", "encodings.idna",
    "encodings.latin_1", "encodings.punycode", "encodings.raw_unicode_escape", "encodings.rot_13",
    "encodings.unicode_escape", "encodings.utf_16", "encodings.utf_32", "encodings.utf_8_sig",
)  # fmt: skip
"""What most programs import, and what the library would import too late. The rest is loaded per program, if its text names it."""
_SETUP_SECONDS = 15.0
"""How long a child may take to import and to close its doors."""
_SLACK = 1 << 16
"""Bytes a child may write beyond its limit: the errors it reports in place of values."""


def main(wanted: str, user: str) -> None:
    """Serves until the host hangs up. `wanted`: layers to put on, with commas; `user`: a number to give root up for, or ""."""
    channel = socket.socket(fileno=0)
    sys.argv = [""]
    os.environ.clear()
    for name in _WARM:
        importlib.import_module(name)
    if user:
        child.become(int(user))
    layers = [layer for layer in wanted.split(",") if layer and works(_LOCKS[layer])]
    if "namespaces" in layers:
        namespaces.enter()
        child.die_with_parent()
        namespaces.become_first()
    child.die_with_parent()
    gc.collect()
    gc.freeze()  # a child that collects garbage need not copy the server's pages
    with contextlib.suppress(EOFError, ConnectionError):
        protocol.send(channel, ",".join(layers).encode())
        while True:
            protocol.send(channel, outcome(channel, protocol.receive(channel), layers))


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


def outcome(channel: socket.socket, request: bytes, layers: Collection[str]) -> bytes:
    """Runs one program in a child and returns the reply: how the child ended, and what it wrote."""
    wall_seconds, _, _, output_bytes = protocol.REQUEST.unpack_from(request)
    started = time.monotonic()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            child.run(request, layers, writer)
        finally:
            os._exit(0)  # nothing of the program may come back into the server's loop
    os.close(writer)
    try:
        written, late = _read(reader, channel, wall_seconds, output_bytes + _SLACK)
    finally:
        os.close(reader)
        os.kill(pid, signal.SIGKILL)  # it may have closed its pipe and gone on
        _, status, usage = os.wait4(pid, 0)
    much = len(written) > output_bytes + _SLACK
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return protocol.REPLY.pack(late, much, status, cpu_seconds, time.monotonic() - started) + written


def _read(reader: int, channel: socket.socket, wall_seconds: float, limit: int) -> tuple[bytes, bool]:
    """All that the child writes, and whether time was up first. A little more than `limit` is enough to know.

    The program's time begins with the child's first line, so a busy machine takes nothing of it for our own doings.
    """
    written = bytearray()
    deadline = time.monotonic() + _SETUP_SECONDS
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    poll.register(channel, select.POLLIN)
    while len(written) <= limit:
        left = deadline - time.monotonic()
        ready = dict(poll.poll(left * 1000)) if left > 0 else {}
        if channel.fileno() in ready:
            raise EOFError("the host hung up")  # it never speaks before it was answered
        if not ready:
            return bytes(written), True
        part = os.read(reader, 1 << 16)
        if not part:
            break
        if not written:
            deadline = time.monotonic() + wall_seconds
        written += part
    return bytes(written), False
