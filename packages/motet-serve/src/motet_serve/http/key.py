"""The key of a server: when one is needed, and the check of each request."""

import hmac
import os
from collections.abc import Callable
from typing import Annotated, Any

from motet.clients.http_client import is_loopback
from motet.errors import ConfigError
from motet_serve.http.refusals import Refusal


def check_key(host: str, key: str | None, without_key: bool) -> None:
    """Raises: ConfigError if a header cannot hold the key, or other machines need none."""
    if key is not None and (not key or not key.isascii() or not key.isprintable() or " " in key):
        raise ConfigError(
            "the key is empty or has characters that an HTTP header cannot hold; expected ASCII "
            "letters, digits and punctuation"
        )
    if key is None and not without_key and not is_loopback(f"http://{in_url(host)}"):
        raise ConfigError(
            f"host {host!r} can be reached from other machines, but there is no key: set "
            "--key-variable to the environment variable that holds one, or pass --without-key to "
            "allow requests without a key"
        )


def key_in(variable: str) -> str:
    """Return the key in an environment variable. Raises: ConfigError if it is not set."""
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(
            f"--key-variable names {variable}, which is not set: set it to the server's key"
        )
    return key


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
