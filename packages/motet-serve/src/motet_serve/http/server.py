"""Run a web application until a signal ends the process."""

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from motet.errors import ConfigError
from motet.user_code.blocking import on_interrupt
from motet_serve.http.key import in_url
from motet_serve.http.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI


def reserve(settings: ServerSettings) -> socket.socket:
    """Return a socket that is bound to the address, but does not listen yet.

    A port that is taken is thus reported before a model is loaded. Raises: ConfigError.
    """
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        # Pass the protocol explicitly: only then does asyncio turn off Nagle's algorithm, which
        # would add 40 ms to every response.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:  # a host may be no name at all
        raise ConfigError(
            f"cannot listen at {host!r}, port {port}: {error}; choose another --host or --port"
        ) from error
    return listener


def run_app(
    app: "FastAPI",
    listener: socket.socket,
    settings: ServerSettings,
    listening: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT. Call it in the main thread, or in a function of
    `motet.user_code.blocking`.

    After the signal it accepts no more connections and answers the requests that have arrived
    completely. It gives up those not answered within `settings.grace_seconds`, and returns. A
    second signal ends the process.

    `listening` gets the URL as soon as connections are accepted.
    """
    import uvicorn

    from motet_serve.http.http_server import ACCEPTED_AT_ONCE, Connection, Server, allow_files

    allow_files(settings.max_connections)
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        loop="asyncio",
        backlog=ACCEPTED_AT_ONCE,
        limit_concurrency=settings.max_connections + 1,
        timeout_keep_alive=settings.client_seconds,
        timeout_graceful_shutdown=settings.grace_seconds + 1,
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=None,
        log_level="error",
    )
    url = f"http://{in_url(settings.host)}:{listener.getsockname()[1]}"
    server = Server(config, settings.grace_seconds, lambda: listening(url))
    with on_interrupt(server.stop):
        server.run(sockets=[listener])
