"""A verifier that scores answers without a gold answer."""

from collections.abc import Sequence
from typing import Protocol

from motet.core import Chat
from motet.errors import ConfigError


class AnswerVerifier(Protocol):
    """Estimates how likely answers are right."""

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """Return a score in [0, 1] for each chat of a question and an answer.

        Raises: RewardFault if there is no score.
        """
        ...


def check_verifier(said: str, verifier: AnswerVerifier | None, *, asks: bool) -> None:
    """Raises: ConfigError if `asks` is true and there is no verifier, or if it is false and there
    is one."""
    if asks and verifier is None:
        raise ConfigError(
            f"{said}, but the config has no verifier: add a section\nverifier: {{base_url: "
            "http://localhost:8000}"
        )
    if verifier is not None and not asks:
        raise ConfigError(
            f"{said}, so the verifier is never used: set one of them to verifier, or set "
            "verifier: null"
        )
