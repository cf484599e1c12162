"""What is put in front of an environment's prompt before a policy reads it."""

from motet.core import Message, Prompt


def with_system(prompt: Prompt, system: str) -> Prompt:
    """`prompt` led by an agent's system text, which is unchanged where that is empty.

    A system message the environment wrote follows in the same message: chat templates know only one, and only in front.
    """
    if not system:
        return prompt
    if isinstance(prompt, str):
        return f"{system}\n\n{prompt}"
    if prompt and prompt[0].role == "system":
        return (Message("system", f"{system}\n\n{prompt[0].content}"), *prompt[1:])
    return (Message("system", system), *prompt)
