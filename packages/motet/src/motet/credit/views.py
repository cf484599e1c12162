"""What a critic reads: an agent's own observation or the joint one. What a reward model reads."""

from collections.abc import Mapping

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


def joint_action(round_: Round, picks: Mapping[str, int]) -> Prompt:
    """Return the prompts and completions of a joint action, each after its agent's name.

    It is what a reward model reads (comlrl 1.4.3, MARLHFTrainer, with other words). The result is a
    chat if any of the prompts is a chat, else a string.

    Args:
        picks: acting agent -> index of its completion in this joint action.
    """
    said = {agent: round_.samples[agent][picks[agent]].text for agent in round_.prompts}
    if all(isinstance(round_.prompts[agent], str) for agent in said):
        return "\n".join(f"{agent}: {round_.prompts[agent]}{said[agent]}" for agent in said)
    texts = [
        f"{agent} was asked:\n{_plain(round_.prompts[agent])}\n\n{agent} answered:\n{said[agent]}"
        for agent in said
    ]
    chat: Chat = (Message("user", "\n\n".join(texts)),)
    return chat


def _plain(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message.role}] {message.shown}" for message in prompt)
