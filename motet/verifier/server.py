"""Serve a verifier over HTTP until a signal ends the process."""

import math
import socket
from collections.abc import Callable
from pathlib import Path

from motet.errors import ConfigError
from motet.http_client import is_loopback
from motet.models.model_config import shortened_context
from motet.verifier.app import create_app
from motet.verifier.folder import Reads
from motet.verifier.limits import ScoringLimits
from motet.verifier.log import bounded_log
from motet.verifier.model import Verifier

BACKLOG = 2048
"""Number of connections that the system queues until they are accepted."""


def serve(
    folder: str | Path,
    version: str,
    *,
    host: str,
    port: int,
    device: str,
    reads: Reads,
    key: str | None,
    without_key: bool,
    limits: ScoringLimits,
    say: Callable[[str], None],
) -> None:
    """Serve until SIGTERM or SIGINT. Call it in the main thread, or in a `motet.blocking` function.

    After the signal it accepts no more connections and answers the requests that have arrived
    completely. It gives up those not answered within `limits.grace_seconds`, and returns. A second
    signal ends the process.

    `say` gets a message if the model's context was shortened. It gets the address as soon as the
    server accepts connections. Port 0 selects any free port. `without_key` accepts requests from
    everyone who can reach the address. Raises: ConfigError before anything is loaded.
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn
    except ImportError as error:
        raise ConfigError(
            f'a server needs {error.name}, which is not installed: pip install "motet[serve]"'
        ) from error

    _check_key(host, key, without_key)
    from motet.verifier.http_server import HttpServer

    with _bound(host, port) as listener, bounded_log():
        verifier = Verifier.load(folder, device=device, reads=reads)
        if (line := shortened_context(verifier.base or folder)) is not None:
            say(line)
        app = create_app(verifier, Path(folder).resolve().name, version, key=key, limits=limits)
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
        server = HttpServer(config, limits)
        with server.ended_by_signals():
            listener.listen(BACKLOG)
            where = f"http://{_in_url(host)}:{listener.getsockname()[1]}"
            say(f"{folder} is served at {where} ({verifier.critic.backbone.device})")
            server.run(sockets=[listener])


def _check_key(host: str, key: str | None, without_key: bool) -> None:
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        raise ConfigError(
            "the key is empty or has characters that an HTTP header cannot hold; expected ASCII "
            "letters, digits and punctuation"
        )
    if key is None and not without_key and not is_loopback(f"http://{_in_url(host)}"):
        raise ConfigError(
            f"host {host!r} can be reached from other machines, but there is no key: set "
            "--key-variable to the environment variable that holds one, or pass --without-key to "
            "allow requests without a key"
        )


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


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
