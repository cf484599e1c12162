"""uvicorn's server, with limits on its connections and on the time it takes to shut down."""

import asyncio
import logging
import resource
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from motet.errors import ConfigError
from motet.user_code.blocking import on_interrupt
from motet_serve.http.connections import Connection, Connections, accept, sweep
from motet_serve.http.limits import ServingLimits
from motet_serve.http.refusals import ErrorBody, plain_error

SPARE_FILES = 32
"""Number of files that the process may open besides connections."""
log = logging.getLogger(__name__)


class HttpServer(uvicorn.Server):
    """A server that accepts connections itself, on one listener.

    It ends within `limits.grace_seconds` of a signal.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        limits: ServingLimits,
        error_body: ErrorBody = plain_error,
    ) -> None:
        """Raises: ConfigError if the process may not open files for connections."""
        super().__init__(config)
        self._grace = limits.grace_seconds
        self._connections = Connections(limits, _files(), error_body)
        self._tasks: list[asyncio.Task[None]] = []
        if self._connections.most < limits.max_connections:
            log.warning(
                (
                    "the server accepts at most %d connections at a time, because of the limit on "
                    "open files (ulimit -n)"
                ),
                self._connections.most,
            )

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """While the context is open, the first SIGTERM or SIGINT shuts the server down.

        A second one ends the process. In another thread than the main one, the first interrupt of
        the caller that waits shuts the server down.
        """
        if threading.current_thread() is not threading.main_thread():

            def exit_() -> None:
                self.should_exit = True

            with on_interrupt(exit_):
                yield
            return

        def end(number: int, frame: FrameType | None) -> None:
            self.should_exit = True
            for one in before:
                signal.signal(one, signal.SIG_DFL)

        before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
        for one in before:
            signal.signal(one, end)
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    # ---------------------------------------------------------------------------- called by uvicorn

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the signals are caught before the server runs."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # given a socket, uvicorn would accept as many connections as come at once
        await super().startup(sockets=[])
        (listener,) = sockets or []
        listener.setblocking(False)
        for work in (
            accept(listener, self._connections, self._connection),
            sweep(self._connections),
        ):
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        giving_up = asyncio.get_running_loop().call_later(self._grace, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    # ------------------------------------------------------------------------------------ internals

    def _connection(self, address: str) -> Connection:
        return Connection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            connections=self._connections,
            address=address,
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.error("the server has an internal error and stops", exc_info=task.exception())
            self.should_exit = True

    def _give_up(self) -> None:
        log.warning(
            "%d requests were not answered within %g s and are dropped",
            len(self._connections),
            self._grace,
        )
        self._connections.drop_all()


def _files() -> int:
    """Return the number of connections that the process may open.

    Raises: ConfigError if there is none.
    """
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return sys.maxsize
    open_ = sum(1 for _ in Path("/dev/fd").iterdir())
    free = most - open_ - SPARE_FILES
    if free < 1:
        raise ConfigError(
            f"the process may open {most} files, and {open_} are open; expected room for "
            f"{SPARE_FILES} more and one per connection: raise ulimit -n"
        )
    return free
