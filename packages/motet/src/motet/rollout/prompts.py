"""Add an agent's system message to a prompt of the environment."""

from motet.core import Message, Prompt


def with_system(prompt: Prompt, system: str) -> Prompt:
    """Return `prompt` with the system message `system` in front, or unchanged if `system` is empty.

    A system message of the environment is appended to the same message, because chat templates
    accept only one, at the start.
    """
    if not system:
        return prompt
    if isinstance(prompt, str):
        return f"{system}\n\n{prompt}"
    if prompt and prompt[0].role == "system":
        return (Message("system", f"{system}\n\n{prompt[0].content}"), *prompt[1:])
    return (Message("system", system), *prompt)
