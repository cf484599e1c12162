"""What debates share: votes, and whether a verifier that scores answers is needed."""

from collections import Counter
from collections.abc import Iterable, Mapping

from motet.clients.reward_server import AnswerVerifier
from motet.errors import ConfigError


def check_verifier(
    said: str, verifier: AnswerVerifier | Mapping[str, AnswerVerifier] | None, *, asks: bool
) -> None:
    """Raises: ConfigError if `asks` is true and there is no verifier, or if it is false and there
    is one."""
    if asks and verifier is None:
        raise ConfigError(
            f"{said}, but the config has no verifier: add verifier.folder=FOLDER, or "
            "verifier.base_url=http://localhost:8000 of one that `motet verifier serve` serves"
        )
    if verifier is not None and not asks:
        raise ConfigError(
            f"{said}, so the verifier is never used: set one of them to verifier, or set "
            "verifier: null"
        )


def majority(given: Iterable[str | None]) -> str | None:
    """Return the most common answer; None if there is no answer or a tie for the first place."""
    votes = Counter(answer for answer in given if answer is not None).most_common(2)
    if not votes or (len(votes) == 2 and votes[0][1] == votes[1][1]):
        return None
    return votes[0][0]
