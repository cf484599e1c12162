"""`Sandbox`: a few warm servers, a thread to wait for each, and a memory of what was already run."""

import asyncio
import os
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from hashlib import blake2b
from types import TracebackType
from typing import Generic, Self, TypeVar

from motet.errors import ConfigError, SandboxFault
from motet.sandbox import report, verdict
from motet.sandbox.report import Call, Level, Limits, Report
from motet.sandbox.suite import Suite, Verdict
from motet.sandbox.worker import Worker

_GRACE_SECONDS = 30.0
"""How much longer than the wall limit a server may be silent before it counts as dead; a child's setup has 15 of them."""
_CACHE_BYTES = 64 << 20
_ENTRY_BYTES = 200
_Result = TypeVar("_Result")
_Known = TypeVar("_Known")


class Sandbox:
    """Runs untrusted programs, `workers` at a time. Works from any thread and any event loop.

    `minimum` is the protection to insist on: ConfigError where this machine reaches less. So making a Sandbox starts one server
    (about 0.1 s); the others start when they are needed. `maximum` leaves layers away, to test the ones below. `user` is a number
    that the servers become where the host is root; programs of a root host run as nobody in any case. `packages` are what
    programs may import besides the standard library; ConfigError where one of them cannot be.

    What a program did is a Report. SandboxFault means that the sandbox itself failed twice, and says nothing about the program.
    """

    def __init__(
        self,
        workers: int | None = None,
        minimum: Level = Level.SECCOMP,
        limits: Limits | None = None,
        *,
        maximum: Level = Level.NAMESPACES,
        user: int | None = None,
        packages: Sequence[str] = (),
    ) -> None:
        self.packages = tuple(packages)
        """What programs may import besides the standard library."""
        count = _cores() if workers is None else workers
        if count < 1:
            raise ConfigError(f"sandbox workers: got {count}, expected at least 1")
        self._limits = Limits() if limits is None else limits
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="sandbox")
        self._servers = _Servers(maximum, user, self.packages)
        self._reports: _Cache[bytes] = _Cache(_CACHE_BYTES)
        self._verdicts: _Cache[Verdict] = _Cache(_CACHE_BYTES)
        self._end = weakref.finalize(self, _end, self._threads, self._servers)  # also when the host ends
        self.level = self._threads.submit(self._servers.probe).result()
        """The protection in force."""
        if self.level < minimum:
            self.close()
            raise ConfigError(
                f"sandbox level: got {self.level.name} on this machine, expected at least {minimum.name}. Run on Linux "
                f"(x86_64 or aarch64) where the container allows seccomp, Landlock and user namespaces, "
                f"or accept less protection: minimum {self.level.name}"
            )

    async def run(self, sources: Sequence[str], calls: Sequence[Call], limits: Limits | None = None) -> Report:
        """Runs `sources` one after the other in one module, then the calls in order, all in one process that is thrown away.

        `limits` stand in for the Sandbox's own. A request seen before is answered from memory, if its report was deterministic.
        ValueError for arguments that are not plain values.
        """
        return await asyncio.wrap_future(self._submit(sources, calls, limits))

    def run_sync(self, sources: Sequence[str], calls: Sequence[Call], limits: Limits | None = None) -> Report:
        """`run`, for callers without an event loop."""
        return self._submit(sources, calls, limits).result()

    async def judge(self, sources: Sequence[str], suite: Suite, limits: Limits | None = None) -> Verdict:
        """Runs a suite's chosen tests on the program that `sources` are, one after the other in one module.

        `limits` are for the program's process and as much again for its judge's. A test that exceeds them costs itself: the rest
        is run again, set-up and all, in fresh processes with fresh limits, up to three times. So a verdict may take four times
        `wall_seconds`. One that time or memory decided is not remembered.

        ValueError for a suite without such tests, ConfigError for one with `files` where `check_folders` refuses them.
        """
        return await asyncio.wrap_future(self._submit_suite(sources, suite, limits))

    def judge_sync(self, sources: Sequence[str], suite: Suite, limits: Limits | None = None) -> Verdict:
        """`judge`, for callers without an event loop."""
        return self._submit_suite(sources, suite, limits).result()

    def check_folders(self) -> None:
        """ConfigError where no suite with `files` can be judged: below LANDLOCK nothing would keep a program in its folder."""
        if self.level < Level.LANDLOCK:
            raise ConfigError(
                f"sandbox level: got {self.level.name}, expected at least {Level.LANDLOCK.name} for tests that work with files. "
                f"Run on Linux 5.13 or newer where the container allows Landlock, or leave those tests out"
            )

    def close(self) -> None:
        """Ends the servers. Programs that still run end as SandboxFaults."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _submit(self, sources: Sequence[str], calls: Sequence[Call], limits: Limits | None) -> Future[Report]:
        request = report.write(sources, calls, limits or self._limits)
        return self._threads.submit(self._run, request, len(calls), limits or self._limits)

    def _run(self, request: bytes, calls: int, limits: Limits) -> Report:
        key = blake2b(request, digest_size=32).digest()
        known = self._reports.get(key)
        if known is not None:
            return replace(report.read(known, calls, limits), seconds=0.0)
        reply, result = self._ask(request, limits, lambda reply: (reply, report.read(reply, calls, limits)))
        if result.deterministic:
            self._reports.put(key, reply, len(reply))
        return result

    def _submit_suite(self, sources: Sequence[str], suite: Suite, limits: Limits | None) -> Future[Verdict]:
        if suite.files:
            self.check_folders()
        limits = limits or self._limits
        request = verdict.write(sources, suite, limits)
        return self._threads.submit(self._judge, tuple(sources), suite, limits, request)

    def _judge(self, sources: Sequence[str], suite: Suite, limits: Limits, request: bytes) -> Verdict:
        key = blake2b(request + repr(suite.chosen).encode(), digest_size=32).digest()  # a test is named by its number
        known = self._verdicts.get(key)
        if known is not None:
            return replace(known, seconds=0.0)

        def attempt(part: Suite) -> verdict.Attempt:
            asked = request if part is suite else verdict.write(sources, part, limits)
            return self._ask(asked, limits, lambda reply: verdict.read(reply, part, limits))

        result = verdict.judge(suite, attempt)
        if result.deterministic:
            self._verdicts.put(key, result, sum(len(case.message) + 300 for case in result.cases))
        return result

    def _ask(self, request: bytes, limits: Limits, read: Callable[[bytes], _Result]) -> _Result:
        """What a server's reply means to `read`. SandboxFault where a fresh server fails too."""
        seconds = limits.wall_seconds + _GRACE_SECONDS
        try:
            return read(self._servers.ask(request, seconds))
        except SandboxFault:  # once more on a fresh server: the cause may have been the machine's moment
            return read(self._servers.ask(request, seconds, fresh=True))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _end(threads: ThreadPoolExecutor, servers: "_Servers") -> None:
    servers.close()
    threads.shutdown(cancel_futures=True)


class _Servers:
    """Idle and busy servers. There are never more than threads that ask, because each asks one."""

    def __init__(self, maximum: Level, user: int | None, packages: tuple[str, ...]) -> None:
        self._maximum, self._user, self._packages = maximum, user, packages
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._level = Level.LIMITS
        self._closed = False

    def probe(self) -> Level:
        """Starts a first server and says what protection it reached; later ones must reach it too."""
        server = self._take(fresh=True)
        self._level = server.level
        self._give(server)
        return server.level

    def ask(self, request: bytes, seconds: float, fresh: bool = False) -> bytes:
        """One server's reply. SandboxFault where it dies, stays silent, or cannot be started; it is gone then."""
        server = self._take(fresh)
        try:
            reply = server.ask(request, seconds)
        except SandboxFault:
            with self._lock:
                self._busy.discard(server)
            server.kill()
            raise
        self._give(server)
        return reply

    def close(self) -> None:
        with self._lock:
            self._closed = True
            servers = [*self._idle, *self._busy]
            self._idle, self._busy = [], set()
        for server in servers:
            server.kill()

    def _take(self, fresh: bool) -> Worker:
        with self._lock:
            server = self._idle.pop() if self._idle else None
            if server is not None and not fresh:
                self._busy.add(server)
                return server
        if server is not None:
            server.kill()
        server = self._started()
        with self._lock:
            if not self._closed and server.level >= self._level:
                self._busy.add(server)
                return server
        server.kill()
        if server.level < self._level:
            raise SandboxFault(
                f"a new sandbox server reached {server.level.name}, expected {self._level.name} like the first"
            )
        raise SandboxFault("the sandbox is closed")

    def _started(self) -> Worker:
        """A new server; where it dies while it starts, another one. SandboxFault where that does too."""
        try:
            return Worker(self._maximum, self._user, self._packages)
        except SandboxFault:
            return Worker(self._maximum, self._user, self._packages)

    def _give(self, server: Worker) -> None:
        with self._lock:
            if server in self._busy:  # else it was closed meanwhile
                self._busy.discard(server)
                self._idle.append(server)


class _Cache(Generic[_Known]):
    """What is known by request; beyond `capacity` bytes the least recently used go. Reports lie here raw: none share a value."""

    def __init__(self, capacity: int) -> None:
        self._left = capacity
        self._lock = threading.Lock()
        self._known: OrderedDict[bytes, tuple[_Known, int]] = OrderedDict()

    def get(self, key: bytes) -> _Known | None:
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            return self._known[key][0]

    def put(self, key: bytes, value: _Known, size: int) -> None:
        with self._lock:
            if key in self._known:
                return
            weight = size + _ENTRY_BYTES
            self._known[key] = value, weight
            self._left -= weight
            while self._left < 0:
                self._left += self._known.popitem(last=False)[1][1]
