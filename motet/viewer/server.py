"""Serve the viewer on this machine until a signal ends it."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from motet.errors import ConfigError
from motet.http_client import is_loopback
from motet.viewer.app import create_viewer
from motet.viewer.pages import Pages

REFRESH_SECONDS = 1.5
"""How often the files of the runs are looked at."""


def serve_viewer(
    pages: Pages,
    version: str,
    *,
    host: str,
    port: int,
    say: Callable[[str], None],
    ready: Callable[[str], None],
    progress: Callable[[str, int, int], None],
) -> None:
    """Serve until SIGTERM or SIGINT. `ready` gets the address when the server accepts connections.

    The runs are indexed in a thread of its own, so pages open meanwhile. Port 0 selects any free
    port. Raises: ConfigError.
    """
    try:
        import fastapi  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ConfigError(
            f'motet view needs {error.name}, which is not installed: pip install "motet[serve]". '
            "motet view --export FOLDER works without it"
        ) from error

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """End at SIGTERM and SIGINT, without raising them again afterwards."""
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {
                one: signal.signal(one, self.handle_exit) for one in (signal.SIGTERM, signal.SIGINT)
            }
            try:
                yield
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)

    local = is_loopback(f"http://{_in_url(host)}")
    over = threading.Event()
    with _bound_socket(host, port) as listener:
        listener.listen(128)
        config = uvicorn.Config(
            create_viewer(pages, version, everywhere=not local),
            ws="none",
            loop="asyncio",
            http="h11",
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_config=None,
            timeout_graceful_shutdown=3,
        )
        if not local:
            say(
                f"everybody who can reach {host} can read the texts of these runs: there is no "
                "password"
            )
        ready(f"http://{_in_url(host)}:{listener.getsockname()[1]}")
        watcher = threading.Thread(
            target=_watch, args=(pages, progress, over), name="viewer", daemon=True
        )
        watcher.start()
        try:
            Server(config).run(sockets=[listener])
        finally:
            over.set()


def _watch(pages: Pages, progress: Callable[[str, int, int], None], over: threading.Event) -> None:
    while not over.is_set():
        pages.update(progress)
        over.wait(REFRESH_SECONDS)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that is bound. Raises: ConfigError."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except OSError as error:
        raise ConfigError(f"host {host!r} is not a valid address: {error.strerror}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port, or "
            "--port 0 for any free one"
        ) from error
    return listener
