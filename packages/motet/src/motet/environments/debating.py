"""What debates share: votes, and verifiers that score answers without a gold answer."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from motet.core import Chat
from motet.errors import ConfigError
from motet.user_code.plugins import nearest


class AnswerVerifier(Protocol):
    """Estimates how likely answers are right."""

    async def score(self, chats: Sequence[Chat]) -> list[float]:
        """Return a score in [0, 1] for each chat of a question and an answer.

        Raises: RewardFault if there is no score.
        """
        ...


def one_each(
    verifier: AnswerVerifier | Mapping[str, AnswerVerifier], agents: Sequence[str]
) -> Mapping[str, AnswerVerifier]:
    """Return the verifier of each agent. Raises: ConfigError if they are other agents."""
    if not isinstance(verifier, Mapping):
        return dict.fromkeys(agents, verifier)
    missing = [agent for agent in agents if agent not in verifier]
    if missing:
        raise ConfigError(f"verifier.agents has no verifier for {missing[0]}: add one")
    strangers = [agent for agent in verifier if agent not in agents]
    if strangers:
        raise ConfigError(
            f"verifier.agents names {strangers[0]!r}{nearest(strangers[0], agents)}; the agents "
            f"are {', '.join(agents)}"
        )
    return verifier


async def scores_of(
    chats: Mapping[str, Chat], verifiers: Mapping[str, AnswerVerifier]
) -> dict[str, float]:
    """Return the score of each agent's chat. A verifier of several agents is asked once.

    Raises: RewardFault if there is no score.
    """
    shared: dict[int, list[str]] = {}
    for agent in chats:
        shared.setdefault(id(verifiers[agent]), []).append(agent)
    said = await asyncio.gather(
        *(verifiers[agents[0]].score([chats[a] for a in agents]) for agents in shared.values())
    )
    scores = {
        agent: score
        for agents, row in zip(shared.values(), said, strict=True)
        for agent, score in zip(agents, row, strict=True)
    }
    return {agent: scores[agent] for agent in chats}


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
