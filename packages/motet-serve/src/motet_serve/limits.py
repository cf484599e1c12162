"""Limits of the chat server. This module imports nothing heavy."""

from dataclasses import dataclass

from motet_serve.http.limits import ServingLimits


@dataclass(frozen=True, kw_only=True)
class ChatLimits(ServingLimits):
    """Limits of the chat server.

    Raises: ConfigError if a limit is not above 0, or is infinite.
    """

    max_batch: int = 64
    """Requests to models that one batch joins: one for each agent of an open answer."""
    max_queue: int = 512
    """Maximum number of open answers. A request that asks for more than are free is refused."""
