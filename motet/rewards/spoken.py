"""What a reasoning model says, less what it thought first."""


def spoken(text: str) -> str:
    """The reply behind its thoughts; nothing where it never came to speak. It is the prompt, too, that may have opened them."""
    thought, closed, rest = text.partition("</think>")
    if thought.lstrip("\ufeff \t\r\n").startswith("<think>"):
        return rest
    return rest if closed and "<think>" not in thought else text
