"""The host's end of one fork server."""

import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from codejudge import protocol
from codejudge.errors import SandboxError, SandboxFault
from codejudge.report import Level

_BOOT = """
import os, sys, types
os.register_at_fork = lambda **hooks: None
sys.modules["codejudge"] = types.ModuleType("codejudge")
sys.modules["codejudge"].__path__ = [sys.argv[1]]
from codejudge import server
server.main(*sys.argv[2:])
"""
"""Replaces this package by an empty one, so that the server loads the files of this folder one by
one. It also disables the library's hooks after a fork (seeding generators,
handling threads). They are useless here and would cost a child a third of its time.
"""
_FLAGS = ("-P", "-s", "-S", "-W", "ignore", "-X", "utf8")
"""Together with the environment below, these flags equal -I -S, except for the variable that makes
the order of sets repeatable.
"""
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_START_SECONDS = 60.0


class Worker:
    """One server process. It starts when this object is created.

    It belongs to the thread that created it: Linux kills the process when that thread ends.

    Raises SandboxError if one of `packages` cannot be imported.
    """

    def __init__(self, maximum: Level, user: int | None, packages: Sequence[str]) -> None:
        wanted = ",".join(level.name.lower() for level in Level if Level.LIMITS < level <= maximum)
        allowed = json.dumps(
            [packages, [str(Path(folder).absolute()) for folder in sys.path] if packages else []]
        )
        arguments = [
            _BOOT,
            str(Path(__file__).parent),
            wanted,
            "" if user is None else str(user),
            allowed,
        ]
        self._channel, theirs = socket.socketpair()
        with theirs:
            # A new session, so that Ctrl-C in the host's terminal reaches the host only.
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, *_FLAGS, "-c", *arguments],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        try:
            layers, _, problem = self._receive(_START_SECONDS).decode().partition("\n")
            if problem:
                raise SandboxError(_why_not(packages, problem))
            self.level = _highest(layers.split(","))
        except (SandboxError, SandboxFault):
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: bytes, seconds: float) -> bytes:
        """Return the server's reply. Raises SandboxFault if it is gone or needs more than
        `seconds`.
        """
        try:
            self._channel.settimeout(seconds)
            self._channel.sendall(request)
        except OSError as error:
            raise SandboxFault(
                f"a request could not be sent to a sandbox server: {error}"
            ) from error
        return self._receive(seconds)

    def kill(self) -> None:
        """Kill the server, and with it its children.

        Safe to call twice, and while another thread waits in `ask`.
        """
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
            raise SandboxFault(
                f"a sandbox server did not answer: {type(error).__name__}: {error}"
            ) from error


def _why_not(packages: Sequence[str], problem: str) -> str:
    absent = re.match(r"ModuleNotFoundError: No module named '([\w.]+)'", problem)
    if absent is None:
        return (
            f"sandbox packages: got {', '.join(packages)}; importing them fails: {problem}. "
            "Repair the installation, or remove the package"
        )
    missing = absent[1]
    if missing.partition(".")[0] not in {name.partition(".")[0] for name in packages}:
        return (
            f"sandbox packages: got {', '.join(packages)}, expected {missing} too, because one of "
            "them imports it. Add it"
        )
    install = _INSTALLED_AS.get(missing, missing.partition(".")[0])
    return (
        f"sandbox packages: got {missing}, which is not installed. Run pip install {install}, or "
        "remove it from the list"
    )


_INSTALLED_AS = {
    "PIL": "pillow", "bs4": "beautifulsoup4", "cv2": "opencv-python", "docx": "python-docx",
    "sklearn": "scikit-learn", "yaml": "PyYAML",
}  # fmt: skip
"""Packages whose distribution has another name."""


def _highest(layers: Iterable[str]) -> Level:
    """Return the highest level without a missing layer below it.

    A layer above a missing one is installed but does not count.
    """
    reached = Level.LIMITS
    for level in Level:
        if level == reached + 1 and level.name.lower() in layers:
            reached = level
    return reached
