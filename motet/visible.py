"""Text that somebody else wrote, on a person's terminal: every character is one that can be seen, and none is an instruction."""

import unicodedata
from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text


def visible(text: str) -> str:
    """With every control and format character but line ends and tabs written out, as in `\\x1b[2J`: none reaches the terminal."""
    return text if text.isprintable() else "".join(map(_shown, text))


def on_one_line(text: str) -> str:
    """The same with line ends and tabs written out too: a name or a key cannot begin a line of its own."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode()


def styled(word: str, style: str, rest: str) -> Text:
    """`word` in this style, and `rest` plain."""
    return Text.assemble((visible(word), style), visible(rest))


class Console(RichConsole):
    """Prints every text as it is, and `visible`: `[bold]` and `:skull:` in it are letters. rich's Text says what is styled."""

    def __init__(self, *, stderr: bool = False, **how: Any) -> None:
        super().__init__(
            stderr=stderr, **{"soft_wrap": False, **how, "markup": False, "emoji": False, "highlight": False}
        )

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **{**how, "markup": False, "emoji": False, "highlight": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for part in super().render(renderable, options):
            yield part if part.control else Segment(visible(part.text), part.style)
