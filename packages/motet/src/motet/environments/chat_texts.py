"""What environments say to a person: the texts of several agents as one."""

from collections.abc import Mapping, Sequence


def one_or_each(texts: Mapping[str, str], agents: Sequence[str]) -> str:
    """Return the text that all agents agree on, or each agent's text after its name."""
    said = {agent: texts[agent].strip() for agent in agents if agent in texts}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "\n\n".join(f"{agent}: {text}" for agent, text in said.items())
