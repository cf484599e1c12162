"""The key of a server: when one is needed, and the check of each request."""

import hmac
import os
from collections.abc import Callable
from typing import Annotated, Any

from motet.clients.http_client import is_loopback
from motet.errors import ConfigError
from motet_serve.http.refusals import Refusal
from motet_serve.http.settings import ServerSettings


def key_of(settings: ServerSettings) -> str | None:
    """Return the key that requests must send, if any.

    Raises: ConfigError if it is not set, if a header cannot hold it, or if other machines need
    none.
    """
    if settings.key_variable is not None:
        key = os.environ.get(settings.key_variable, "").strip()
        if not key:
            raise ConfigError(
                f"--key-variable names {settings.key_variable}, which is not set: set it to the "
                "server's key"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise ConfigError(
                "the key has characters that an HTTP header cannot hold; expected ASCII letters, "
                "digits and punctuation"
            )
        return key
    if not settings.without_key and not is_loopback(f"http://{in_url(settings.host)}"):
        raise ConfigError(
            f"host {settings.host!r} can be reached from other machines, but there is no key: set "
            "--key-variable to the environment variable that holds one, or pass --without-key to "
            "allow requests without a key"
        )
    return None


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def lock(key: str) -> Callable[..., Any]:
    """Return a FastAPI dependency that accepts requests with the right key.

    The comparison takes the same time however many characters of a key are right.
    """
    from fastapi import Security
    from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

    async def let_in(
        given: Annotated[
            HTTPAuthorizationCredentials | None, Security(HTTPBearer(auto_error=False))
        ],
    ) -> None:
        if given is None or not hmac.compare_digest(given.credentials.encode(), key.encode()):
            what = "the request has no key" if given is None else "the key is wrong"
            expected = "expected the header Authorization: Bearer KEY"
            raise Refusal(401, "key", f"{what}; {expected}", {"WWW-Authenticate": "Bearer"})

    return let_in


def only_as_localhost() -> Callable[..., Any]:
    """Return a FastAPI dependency that accepts requests to this machine by its own name.

    A page of another site can give its name the address of this machine (DNS rebinding). A browser
    then sends its requests here, with that name as Host, and lets the page read the answers.
    """
    from fastapi import Request

    async def let_in(request: Request) -> None:
        host = request.headers.get("host", "")
        if host and not is_loopback(f"http://{host}"):
            raise Refusal(
                403,
                "host",
                f"without a key this server answers only as localhost, got Host: {host}; expected "
                "127.0.0.1 or localhost in the address, or a server with --key-variable or "
                "--without-key",
            )

    return let_in
