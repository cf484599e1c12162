"""Run a web application until a signal ends the process."""

import math
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from motet.errors import ConfigError
from motet.user_code.blocking import on_interrupt
from motet_serve.http.key import check_key, in_url
from motet_serve.http.limits import ServingLimits

if TYPE_CHECKING:
    from fastapi import FastAPI


@contextmanager
def reserved(
    host: str, port: int, *, key: str | None, without_key: bool
) -> Iterator[socket.socket]:
    """Check all that can be checked before a model is loaded, and reserve the address.

    Yields a bound socket that does not listen yet. Port 0 selects any free port. `without_key`
    accepts requests from everyone who can reach the address. Raises: ConfigError.
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
    with _bound(host, port) as listener:
        yield listener


def run_app(
    app: "FastAPI",
    listener: socket.socket,
    host: str,
    limits: ServingLimits,
    listening: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT. Call it in the main thread, or in a function of
    `motet.user_code.blocking`.

    After the signal it accepts no more connections and answers the requests that have arrived
    completely. It gives up those not answered within `limits.grace_seconds`, and returns. A second
    signal ends the process.

    `listening` gets the URL as soon as connections are accepted.
    """
    import uvicorn

    from motet_serve.http.http_server import (
        ACCEPTED_AT_ONCE,
        Connection,
        Server,
        most_connections,
    )

    limited = partial(
        Connection,
        most=most_connections(limits.max_connections),
        seconds=limits.client_seconds,
    )
    config = uvicorn.Config(
        app,
        http=limited,  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=math.ceil(limits.client_seconds),
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="error",
    )
    url = f"http://{in_url(host)}:{listener.getsockname()[1]}"
    server = Server(config, limits.grace_seconds, lambda: listening(url))
    with on_interrupt(server.stop):
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
