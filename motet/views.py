"""What a critic reads of a Round: an agent's own observation, or everyone's side by side."""

from motet.core import Chat, Message, Prompt, Round


def own_observation(round_: Round, agent: str) -> Prompt:
    """What the agent itself was asked (IPPO, arXiv 2011.09533: the critic knows what the actor knows)."""
    return round_.prompts[agent]


def joint_observation(round_: Round) -> Prompt:
    """What all who act now were asked, each under its name (MAPPO, arXiv 2103.01955). One chat where any of them is a chat."""
    texts = [f"{agent}: {_plain(prompt)}" for agent, prompt in round_.prompts.items()]
    if all(isinstance(prompt, str) for prompt in round_.prompts.values()):
        return "\n".join(texts)
    chat: Chat = (Message("user", "\n\n".join(texts)),)
    return chat


def _plain(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"[{message.role}] {message.content}" for message in prompt)
