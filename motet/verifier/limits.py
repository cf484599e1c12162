"""What scoring may take: the defaults of a server and of scores within a process, each once. No torch here."""

from dataclasses import dataclass, fields
from math import inf

from motet.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Raises ConfigError where one of them is not above 0, or has no end."""

    token_budget: int = 16384
    """Tokens of a batch, padding included: rows times the longest. A longer row goes alone."""
    max_queue: int = 4096
    """Answers that may be open at a time, over all requests; one request always finds room in an empty queue."""
    max_body_mb: float = 8.0
    """Size of one request, in MiB."""
    max_held_mb: float = 64.0
    """Size of all requests that are open, in MiB; one request alone always finds room."""
    request_seconds: float = 300.0
    """Time one request has, from its first byte to its scores."""
    max_connections: int = 800
    """Connections at a time; fewer where the process may open fewer files."""
    max_connections_per_address: int = 400
    """Connections at a time of one IPv4 address, or of one IPv6 network of 64 bits."""
    client_seconds: float = 30.0
    """Time a client has to begin a request, to send its head, to send its body, and to take its
    answer."""
    grace_seconds: float = 30.0
    """Time that open requests have after the signal to end."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 < value < inf:
                raise ConfigError(f"{one.name} is {value}; expected a number above 0, and an end of it")

    @property
    def max_body_bytes(self) -> int:
        return int(self.max_body_mb * 2**20)

    @property
    def max_held_bytes(self) -> int:
        return int(self.max_held_mb * 2**20)
