"""The host's end of one fork server."""

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from motet.errors import SandboxFault
from motet.sandbox import protocol
from motet.sandbox.report import Level

_BOOT = """
import sys, types
for name, path in (("motet", []), ("motet.sandbox", [sys.argv[1]])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from motet.sandbox import server
server.main(*sys.argv[2:])
"""
"""Stands empty packages where ours are, so that the server loads this folder's files and nothing else of Motet."""
_FLAGS = ("-P", "-s", "-S", "-W", "ignore", "-X", "utf8")
"""Together with the environment below this is -I -S, but for the one variable that makes the order of sets repeatable."""
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_START_SECONDS = 60.0


class Worker:
    """One server process, started when made. It belongs to the thread that made it: Linux ends it with that thread."""

    def __init__(self, maximum: Level, user: int | None) -> None:
        wanted = ",".join(level.name.lower() for level in Level if Level.LIMITS < level <= maximum)
        arguments = [_BOOT, str(Path(__file__).parent), wanted, "" if user is None else str(user)]
        self._channel, theirs = socket.socketpair()
        with theirs:
            # A session of its own: Ctrl-C in the host's terminal is the host's to handle.
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, *_FLAGS, "-c", *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        try:
            self.level = _highest(self._receive(_START_SECONDS).decode().split(","))
        except SandboxFault:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: bytes, seconds: float) -> bytes:
        """The server's reply. SandboxFault where it is gone or needs over `seconds`."""
        try:
            self._channel.settimeout(seconds)
            protocol.send(self._channel, request)
        except OSError as error:
            raise SandboxFault(f"a sandbox server could not be asked: {error}") from error
        return self._receive(seconds)

    def kill(self) -> None:
        """Ends the server and, by their ties to it, its children. Safe to call twice, and while another thread waits in `ask`."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):  # the other side may be gone already
            self._channel.shutdown(socket.SHUT_RDWR)
        self._channel.close()

    def _receive(self, seconds: float) -> bytes:
        try:
            self._channel.settimeout(seconds)
            return protocol.receive(self._channel)
        except (EOFError, OSError) as error:
            raise SandboxFault(f"a sandbox server did not answer: {type(error).__name__}: {error}") from error


def _highest(layers: Iterable[str]) -> Level:
    """The rung reached without a gap: a layer above a missing one is on, and not counted."""
    reached = Level.LIMITS
    for level in Level:
        if level == reached + 1 and level.name.lower() in layers:
            reached = level
    return reached
