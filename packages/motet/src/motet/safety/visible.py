"""Safe output of external text on a terminal: control characters are escaped, and markup is not
interpreted."""

import unicodedata
from collections.abc import Iterable
from typing import Any

from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text


def visible(text: str) -> str:
    """Escape all control and format characters except newlines and tabs, as in `\\x1b[2J`."""
    return text if text.isprintable() else "".join(map(_shown, text))


def on_one_line(text: str) -> str:
    """Escape newlines and tabs as well, so that a name or key cannot start a new line."""
    return text if text.isprintable() else visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape").decode()


def styled(word: str, style: str, rest: str) -> Text:
    """Return a Text with `word` in the given style and `rest` unstyled."""
    return Text.assemble((visible(word), style), visible(rest))


class Console(RichConsole):
    """A rich Console that prints all text literally and escapes control characters.

    Markup such as `[bold]` and `:skull:` is not interpreted. Use rich's Text for styles.
    """

    def __init__(self, *, stderr: bool = False, **how: Any) -> None:
        super().__init__(
            stderr=stderr,
            **{"soft_wrap": False, **how, "markup": False, "emoji": False, "highlight": False},
        )

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(
            visible(text), **{**how, "markup": False, "emoji": False, "highlight": False}
        )

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for part in super().render(renderable, options):
            yield part if part.control else Segment(visible(part.text), part.style)
