"""A verifier in place of gold answers."""

from collections.abc import Sequence
from typing import Protocol

from motet.core import Chat
from motet.errors import ConfigError


class Verifier(Protocol):
    """Says how likely answers are right."""

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """A score in [0, 1] for each chat: a question as it was asked, and an answer. Raises: RewardFault."""
        ...


def check_verifier(said: str, verifier: Verifier | None, *, asks: bool) -> None:
    """Raises: ConfigError for scores of a verifier that is not there, and for one that is there and not asked."""
    if asks and verifier is None:
        raise ConfigError(
            f"{said}, and there is no verifier: add a section with\nverifier: {{base_url: http://localhost:8000}}"
        )
    if verifier is not None and not asks:
        raise ConfigError(f"{said}, so the verifier is never asked: set one of them to verifier, or verifier: null")
