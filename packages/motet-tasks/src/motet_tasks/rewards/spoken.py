"""Separate the reply of a reasoning model from its thoughts."""


def spoken(text: str) -> str:
    """Return the reply after the thoughts; an empty string if the thoughts never end.

    The prompt may contain the opening tag. Then the text has only the closing tag.
    """
    thought, closed, rest = text.partition("</think>")
    if thought.lstrip("\ufeff \t\r\n").startswith("<think>"):
        return rest
    return rest if closed and "<think>" not in thought else text
