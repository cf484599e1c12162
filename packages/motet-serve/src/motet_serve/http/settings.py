"""The settings of a server. Its command has an option for each. This module imports nothing heavy.

docs/verifier.md and docs/serving.md explain them.
"""

from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from motet.errors import ConfigError


def setting(default: Any, meaning: str) -> Any:
    """Return a field of settings. Its option has `meaning` as help."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Where a server listens, who may ask it, and its limits.

    Raises: ConfigError if the port is none, or another number is not finite and above 0.
    """

    host: str = setting("127.0.0.1", "The address to listen on. 0.0.0.0: all of this machine.")
    port: int = setting(8000, "The port to listen on. 0: any free port, which is printed.")
    key_variable: str | None = setting(
        None, "The environment variable with the key. Requests then need the header "
        "Authorization: Bearer KEY.",
    )  # fmt: skip
    without_key: bool = setting(False, "Accept requests from other machines without a key.")
    max_body_mb: float = setting(8.0, "MiB of one request. Above it, it gets status 413.")
    request_seconds: float = setting(300.0, "Seconds of one request. Above it, it gets status 503.")
    max_connections: int = setting(
        800, "Number of connections. Above it, a new one replaces one that waits for its client."
    )
    client_seconds: int = setting(
        30, "Seconds that a client has to send a head, to send a body, and to go on reading."
    )
    grace_seconds: int = setting(30, "Seconds that open requests have after Ctrl-C or SIGTERM.")

    def __post_init__(self) -> None:
        if not 0 <= self.port < 2**16:
            raise ConfigError(f"port is {self.port}; expected a number from 0 to 65535")
        for one in fields(self):
            value = getattr(self, one.name)
            if one.type in (int, float) and one.name != "port" and not 0 < value < inf:
                raise ConfigError(f"{one.name} is {value}; expected a finite number above 0")
