"""Text that somebody else wrote, on a person's terminal."""

import unicodedata


def visible(text: str) -> str:
    """With every control and format character but line ends and tabs written out, as in `\\x1b[2J`: none reaches the terminal."""
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode()
