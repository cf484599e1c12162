"""Limits of a server. This module imports nothing heavy."""

from dataclasses import dataclass, fields
from math import inf

from motet.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServingLimits:
    """Limits of every server: sizes, times and connections.

    Raises: ConfigError if a limit is not above 0, or is infinite.
    """

    max_body_mb: float = 8.0
    """Maximum size of one request, in MiB."""
    max_held_mb: float = 64.0
    """Maximum size of all open requests together, in MiB. A single request is always accepted if no
    other request is open.
    """
    request_seconds: float = 300.0
    """Maximum time of one request in seconds, from its first byte to its answer."""
    max_connections: int = 800
    """Maximum number of connections at a time; fewer if the process may open fewer files."""
    client_seconds: float = 30.0
    """Seconds that a client has to begin a request, to send its head, to send its body, and to read
    its response.
    """
    grace_seconds: float = 30.0
    """Seconds that open requests have after a termination signal."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 < value < inf:
                raise ConfigError(f"{one.name} is {value}; expected a finite number above 0")

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 2**20)

    @property
    def max_held_bytes(self) -> int:
        return int(self.max_held_mb * 2**20)
