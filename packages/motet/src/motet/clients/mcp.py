"""Servers of the Model Context Protocol, whose tools agents may call.

Each server has a process between it and the run (mcp_bridge.py), so that nothing that it sends can
stop or fill the run. Its tools are called from any event loop.
"""

import asyncio
import atexit
import ipaddress
import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from motet.core.tools import Tool, wrong_tool
from motet.errors import ConfigError, shortened
from motet.user_code.tool_runs import ToolError

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
_MOST_LINE = 16 << 20
"""Bytes of one line of the bridge, which itself sends less."""
_START_SECONDS = 30.0
"""What the bridge itself may take to start, beside the server."""
_CLOSING_SECONDS = 10.0
CommandOrAddress = str | tuple[str, ...]
"""The words of a command, or an address."""


@dataclass(frozen=True)
class McpTool:
    """One tool of a server. Its name is written so that every chat template can show it."""

    client: "McpClient"
    given: str
    """Its name at the server."""
    description: str
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        return re.sub(r"[^a-zA-Z0-9_-]", "_", self.given)[:64]

    async def __call__(self, **arguments: Any) -> str:
        """Raises: ToolError if the server says so, or has ended."""
        return await self.client.call(self.given, arguments)


class McpClient:
    """The connection to one server. It may be called from several threads and event loops."""

    def __init__(
        self,
        server: CommandOrAddress,
        where: str,
        environment: Sequence[str] = (),
        start_seconds: float = 30.0,
        call_seconds: float = 30.0,
        key: str | None = None,
    ) -> None:
        """Start the server, or connect to it, and read which tools it has.

        Args:
            where: the key of a config, for errors.
            environment: names of environment variables that a command gets.
            key: the bearer token that an address gets.

        Raises: ConfigError in one line.
        """
        self._where, self._server, self._seconds = where, server, call_seconds
        self._lock, self._number = threading.Lock(), 0
        self._waiting: dict[int, Future[tuple[str, bool]]] = {}
        self._ended = ""
        if find_spec("mcp") is None:
            raise ConfigError(
                f"{where} names a server of tools, which needs the package mcp: pip install "
                '"motet[mcp]"'
            )
        absent = [name for name in environment if name not in os.environ]
        if absent:
            raise ConfigError(
                f"{where}.environment names {absent[0]}, which is not set: set it, or drop it"
            )
        self._process = self._started()
        atexit.register(self.close)
        self._send(
            {
                "server": self._words(),
                "environment": {name: os.environ[name] for name in environment},
                "key": key,
                "seconds": start_seconds,
            }
        )
        said = self._first(start_seconds + _START_SECONDS)
        if "tools" not in said:
            self.close()
            raise ConfigError(
                f"{where}: the server {self.shown} does not start: "
                f"{shortened(str(said.get('error')), 600)}; expected a server of the Model Context "
                "Protocol"
            )
        self._tools = [
            McpTool(self, str(one["name"]), str(one["description"]), one["parameters"])
            for one in said["tools"]
        ]
        threading.Thread(target=self._read, name="motet: mcp", daemon=True).start()

    @property
    def shown(self) -> str:
        """The server as people know it."""
        return self._server if isinstance(self._server, str) else " ".join(self._server)

    def tools(self, only: Sequence[str], where: str) -> list[Tool]:
        """Return its tools, or those of the names in `only`.

        Raises: ConfigError if it has none of a name, or lists what is no tool.
        """
        known = [one.given for one in self._tools]
        for name in only:
            if name not in known:
                raise ConfigError(
                    f"{where}.only names {name!r}, but the server {self.shown} has the tools "
                    f"{shortened(', '.join(known))}: use those"
                )
        chosen = [one for one in self._tools if not only or one.given in only]
        if not chosen:
            raise ConfigError(f"{where}: the server {self.shown} has no tools; expected some")
        for one in chosen:
            wrong = wrong_tool(one)
            if wrong:
                raise ConfigError(
                    f"{where}: the server {self.shown} lists the tool {one.given!r} with {wrong}: "
                    "leave it out with `only`"
                )
        return list(chosen)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the text of a result. Raises: ToolError."""
        answer: Future[tuple[str, bool]] = Future()
        with self._lock:
            if self._ended:
                raise ToolError(self._ended)
            self._number += 1
            number = self._number
            self._waiting[number] = answer
        try:
            self._send(
                {
                    "id": number,
                    "name": name,
                    "arguments": dict(arguments),
                    "seconds": self._seconds,
                }
            )
            text, failed = await asyncio.wrap_future(answer)
        except OSError as error:
            raise ToolError(self._ended or "the server has ended") from error
        finally:
            self._waiting.pop(number, None)
        if failed:
            raise ToolError(text)
        return text

    def close(self) -> None:
        """End the server. It gets some seconds, and is killed then."""
        atexit.unregister(self.close)
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        try:
            self._process.wait(_CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    # ------------------------------------------------------------------------------ the bridge

    def _started(self) -> "subprocess.Popen[bytes]":
        place = Path(__file__).with_name("mcp_bridge.py")
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-P", str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the run, which ends it
            env=kept | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def _words(self) -> str | list[str]:
        if isinstance(self._server, str):
            return self._server
        first, *others = self._server
        return [sys.executable if first == "python" else first, *others]

    def _send(self, said: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        line = json.dumps(said).encode() + b"\n"
        with self._lock:
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _first(self, seconds: float) -> Mapping[str, Any]:
        """Return the first line of the bridge, or what went wrong."""
        assert self._process.stdout is not None
        until, line = time.monotonic() + seconds, bytearray()
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                self._process.kill()
                return {"error": f"it was not ready after {seconds:g} s"}
            part = os.read(self._process.stdout.fileno(), 1 << 20)
            if not part or len(line) > _MOST_LINE:
                return {"error": "it ended, or sent more than fits into memory"}
            line += part
        found = json.loads(line)
        return found if isinstance(found, dict) else {}

    def _read(self) -> None:
        """Hand out answers until the bridge ends."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(_MOST_LINE):
            try:
                said = json.loads(line)
            except ValueError:
                break
            answer = self._waiting.get(said["id"])
            if answer is not None and not answer.done():
                with suppress(Exception):  # it was cancelled meanwhile
                    answer.set_result((str(said["text"]), bool(said["failed"])))
        with self._lock:
            self._ended = f"the server {shortened(self.shown)} has ended"
            left = list(self._waiting.values())
        for answer in left:
            with suppress(Exception):
                answer.set_result((self._ended, True))


def outside(server: CommandOrAddress) -> list[str]:
    """Return what there is to say about a server on another machine; nothing about others."""
    if not isinstance(server, str):
        return []
    host = urlsplit(server).hostname or ""
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if near:
        return []
    return [
        f"the tools of {server} are on another machine: it reads the arguments of calls, and its "
        "texts go into prompts"
    ]
