"""Run a web application until a signal ends the process."""

import math
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from motet.errors import ConfigError
from motet_serve.http.key import check_key, in_url
from motet_serve.http.limits import ServingLimits
from motet_serve.http.log import bounded_log
from motet_serve.http.refusals import ErrorBody, plain_error

if TYPE_CHECKING:
    from fastapi import FastAPI

BACKLOG = 2048
"""Number of connections that the system queues until they are accepted."""


@contextmanager
def reserved(
    host: str, port: int, *, key: str | None, without_key: bool
) -> Iterator[socket.socket]:
    """Check all that can be checked before a model is loaded, and reserve the address.

    Yields a bound socket that does not listen yet. Port 0 selects any free port. `without_key`
    accepts requests from everyone who can reach the address. While the context is open, the log is
    bounded. Raises: ConfigError.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f'a server needs {error.name}, which is not installed: pip install "motet[serve]"'
        ) from error
    check_key(host, key, without_key)
    with _bound(host, port) as listener, bounded_log():
        yield listener


def run_app(
    app: "FastAPI",
    listener: socket.socket,
    host: str,
    limits: ServingLimits,
    listening: Callable[[str], None],
    error_body: ErrorBody = plain_error,
) -> None:
    """Serve until SIGTERM or SIGINT. Call it in the main thread, or in a function of
    `motet.user_code.blocking`.

    After the signal it accepts no more connections and answers the requests that have arrived
    completely. It gives up those not answered within `limits.grace_seconds`, and returns. A second
    signal ends the process.

    `listening` gets the URL as soon as connections are accepted.
    """
    import uvicorn

    from motet_serve.http.http_server import HttpServer

    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        loop="asyncio",
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=math.ceil(limits.client_seconds),
    )
    server = HttpServer(config, limits, error_body)
    with server.ended_by_signals():
        listener.listen(BACKLOG)
        listening(f"http://{in_url(host)}:{listener.getsockname()[1]}")
        server.run(sockets=[listener])


def _bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound but does not listen yet.

    A port that is taken is thus reported before the model is loaded. Raises: ConfigError.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
    except OSError as error:
        raise ConfigError(f"host {host!r} is not a valid address: {error.strerror}") from error
    # Pass the protocol explicitly: only then does asyncio turn off Nagle's algorithm, which would
    # add 40 ms to every response.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port"
        ) from error
    return listener
