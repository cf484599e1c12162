"""The input of a critic: an agent's own observation, or the joint observation."""

from motet.core import Chat, Message, Prompt, Round


def own_observation(round_: Round, agent: str) -> Prompt:
    """Return the agent's own prompt (IPPO, arXiv 2011.09533: the critic sees what the
    actor sees)."""
    return round_.prompts[agent]


def joint_observation(round_: Round) -> Prompt:
    """Return the prompts of all acting agents, each after its agent's name (MAPPO, arXiv
    2103.01955).

    The result is a chat if any of the prompts is a chat, else a string.
    """
    texts = [f"{agent}: {_plain(prompt)}" for agent, prompt in round_.prompts.items()]
    if all(isinstance(prompt, str) for prompt in round_.prompts.values()):
        return "\n".join(texts)
    chat: Chat = (Message("user", "\n\n".join(texts)),)
    return chat


def _plain(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message.role}] {message.content}" for message in prompt)
