"""`Sandbox`: a few warm server processes, one thread per server, and a cache of results."""

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

from codejudge import report, verdict
from codejudge.errors import SandboxError, SandboxFault
from codejudge.report import Call, Level, Limits, Report
from codejudge.suite import Suite, Verdict
from codejudge.worker import Worker

_GRACE_SECONDS = 30.0
"""A server that is silent this much longer than the wall limit counts as dead. The setup of a child
may take 15 of these seconds.
"""
_CACHE_BYTES = 64 << 20
_ENTRY_BYTES = 200
_Result = TypeVar("_Result")
_Known = TypeVar("_Known")


class Sandbox:
    """Run untrusted programs, `workers` at a time. Safe to use from any thread and event loop.

    Creating a Sandbox starts one server (about 0.1 s); the others start on demand.

    - `minimum`: the required level of protection.
    - `maximum`: leaves out the layers above it, to test the ones below.
    - `user`: the user id that the servers switch to if the host is root. Programs of a root host
      run as nobody in any case.
    - `packages`: what programs may import besides the standard library.

    A Report says what a program did. SandboxFault means that the sandbox itself failed twice, and
    says nothing about the program.

    Raises SandboxError if this machine reaches less than `minimum`, or if a package cannot be
    imported.
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
        if isinstance(packages, str):
            raise SandboxError(
                f"packages: got the string {packages!r}, expected a list such as [{packages!r}]"
            )
        self.packages = tuple(packages)
        """What programs may import besides the standard library."""
        count = _cores() if workers is None else workers
        if count < 1:
            raise SandboxError(f"sandbox workers: got {count}, expected at least 1")
        self._limits = Limits() if limits is None else limits
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="sandbox")
        self._servers = _Servers(maximum, user, self.packages)
        self._reports: _Cache[bytes] = _Cache(_CACHE_BYTES)
        self._verdicts: _Cache[Verdict] = _Cache(_CACHE_BYTES)
        # Also runs when the host process exits.
        self._end = weakref.finalize(self, _end, self._threads, self._servers)
        self.level = self._threads.submit(self._servers.probe).result()
        """The level of protection in force."""
        if self.level < minimum:
            self.close()
            raise SandboxError(
                f"sandbox level: got {self.level.name} on this machine, expected at least "
                f"{minimum.name}. Run on Linux (x86_64 or aarch64) where the container allows "
                "seccomp, Landlock and user namespaces, or accept less protection: minimum "
                f"{self.level.name}"
            )

    async def run(
        self, sources: Sequence[str], calls: Sequence[Call], limits: Limits | None = None
    ) -> Report:
        """Run `sources` in order in one module, then the calls in order, all in one fresh process.

        `limits` replace the Sandbox's own. If the same request was run before and its report was
        deterministic, the cached report is returned.

        Raises ValueError for arguments that are not plain values.
        """
        return await asyncio.wrap_future(self._submit(sources, calls, limits))

    def run_sync(
        self, sources: Sequence[str], calls: Sequence[Call], limits: Limits | None = None
    ) -> Report:
        """Like `run`, for callers without an event loop."""
        return self._submit(sources, calls, limits).result()

    async def judge(
        self, sources: Sequence[str], suite: Suite, limits: Limits | None = None
    ) -> Verdict:
        """Run the chosen tests of a suite on a program; its `sources` run in order in one module.

        `limits` apply to the program's process, and again to its judge's. A test that exceeds them
        fails alone: the remaining tests run again, with their set-up, in fresh processes with fresh
        limits, up to three times. So a verdict may take four times `wall_seconds`. A verdict that
        depends on time or memory is not cached.

        Raises ValueError for a suite without such tests, and SandboxError for a suite with `files`
        if `check_folders` raises it.
        """
        return await asyncio.wrap_future(self._submit_suite(sources, suite, limits))

    def judge_sync(
        self, sources: Sequence[str], suite: Suite, limits: Limits | None = None
    ) -> Verdict:
        """Like `judge`, for callers without an event loop."""
        return self._submit_suite(sources, suite, limits).result()

    def check_folders(self) -> None:
        """Raise SandboxError if suites with `files` cannot be judged on this machine.

        Below LANDLOCK, nothing would keep a program inside its folder.
        """
        if self.level < Level.LANDLOCK:
            raise SandboxError(
                f"sandbox level: got {self.level.name}, expected at least {Level.LANDLOCK.name} "
                "for tests that work with files. Run on Linux 5.13 or newer where the container "
                "allows Landlock, or leave those tests out"
            )

    def close(self) -> None:
        """End the servers. Programs that still run end with SandboxFault."""
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _submit(
        self, sources: Sequence[str], calls: Sequence[Call], limits: Limits | None
    ) -> Future[Report]:
        request = report.write(sources, calls, limits or self._limits)
        return self._threads.submit(self._run, request, len(calls), limits or self._limits)

    def _run(self, request: bytes, calls: int, limits: Limits) -> Report:
        key = blake2b(request, digest_size=32).digest()
        known = self._reports.get(key)
        if known is not None:
            return replace(report.read(known, calls, limits), seconds=0.0)
        reply, result = self._ask(
            request, limits, lambda reply: (reply, report.read(reply, calls, limits))
        )
        if result.deterministic:
            self._reports.put(key, reply, len(reply))
        return result

    def _submit_suite(
        self, sources: Sequence[str], suite: Suite, limits: Limits | None
    ) -> Future[Verdict]:
        if suite.files:
            self.check_folders()
        limits = limits or self._limits
        request = verdict.write(sources, suite, limits)
        return self._threads.submit(self._judge, tuple(sources), suite, limits, request)

    def _judge(
        self, sources: Sequence[str], suite: Suite, limits: Limits, request: bytes
    ) -> Verdict:
        # A result names its test by number, so the chosen numbers are part of the key.
        key = blake2b(request + repr(suite.chosen).encode(), digest_size=32).digest()
        known = self._verdicts.get(key)
        if known is not None:
            return replace(known, seconds=0.0)

        def attempt(part: Suite) -> verdict.JudgeRun:
            asked = request if part is suite else verdict.write(sources, part, limits)
            return self._ask(asked, limits, lambda reply: verdict.read(reply, part, limits))

        result = verdict.judge(suite, attempt)
        if result.deterministic:
            self._verdicts.put(key, result, sum(len(case.message) + 300 for case in result.cases))
        return result

    def _ask(self, request: bytes, limits: Limits, read: Callable[[bytes], _Result]) -> _Result:
        """Send a request to a server and return `read(reply)`. Retry once on a fresh server.

        Raises SandboxFault if the fresh server fails too.
        """
        seconds = limits.wall_seconds + _GRACE_SECONDS
        try:
            return read(self._servers.ask(request, seconds))
        except SandboxFault:  # retry on a fresh server: the cause may have been temporary
            return read(self._servers.ask(request, seconds, fresh=True))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _end(threads: ThreadPoolExecutor, servers: "_Servers") -> None:
    servers.close()
    threads.shutdown(cancel_futures=True)


class _Servers:
    """Idle and busy servers. Each thread uses one server, so there are never more than threads."""

    def __init__(self, maximum: Level, user: int | None, packages: tuple[str, ...]) -> None:
        self._maximum, self._user, self._packages = maximum, user, packages
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._level = Level.LIMITS
        self._closed = False

    def probe(self) -> Level:
        """Start the first server and return its level. Later servers must reach that level too."""
        server = self._take(fresh=True)
        self._level = server.level
        self._give(server)
        return server.level

    def ask(self, request: bytes, seconds: float, fresh: bool = False) -> bytes:
        """Return one server's reply.

        Raises SandboxFault if the server dies, does not answer in time, or cannot be started. A
        server that failed is killed.
        """
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
                f"a new sandbox server: got level {server.level.name}, expected "
                f"{self._level.name} like the first server"
            )
        raise SandboxFault("the sandbox is closed")

    def _started(self) -> Worker:
        """Return a new server, with one retry if it dies at start.

        Raises SandboxFault if the second one dies too.
        """
        try:
            return Worker(self._maximum, self._user, self._packages)
        except SandboxFault:
            return Worker(self._maximum, self._user, self._packages)

    def _give(self, server: Worker) -> None:
        with self._lock:
            if server in self._busy:  # otherwise the pool was closed in the meantime
                self._busy.discard(server)
                self._idle.append(server)


class _Cache(Generic[_Known]):
    """LRU cache of results by request, limited to `capacity` bytes.

    Reports are stored as bytes, so that two reports never share a mutable value.
    """

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
