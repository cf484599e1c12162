"""The verifiers that score the answers of a debate: one of all agents, or one of each."""

import asyncio
from collections.abc import Mapping, Sequence

from motet.clients.reward_server import AnswerVerifier
from motet.core import Chat
from motet.errors import ConfigError
from motet.user_code.plugins import nearest


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
