"""`motet keys`: what a key of a config takes, its default, and what it means."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from motet.commands.console import out
from motet.errors import ConfigError

if TYPE_CHECKING:
    from motet.config.keys import ConfigKey, Section

MOST = 60
"""More keys than this are listed without their meaning."""


def keys(
    words: Annotated[
        list[str] | None,
        typer.Argument(help="A key, or parts of its name.", show_default=False),
    ] = None,
) -> None:
    """Explain the keys of a config. Without words: the sections that there are.

    Example: motet keys rollout.samples
    """
    from motet.config.keys import options_of_environments, sections
    from motet.user_code.plugins import nearest

    known = [*sections(), *options_of_environments()]
    if not words:
        for section in known:
            if section.path.count(".") == 0:
                _print_section(section)
        out.print("\nmotet keys NAME explains the keys of a section, or a key.")
        return
    rows = [(section, row) for section in known for row in section.rows]

    found = [one for one in rows if all(word.lower() in _path(*one).lower() for word in words)]
    exact = [one for one in found if _path(*one) == words[0]] if len(words) == 1 else []
    inside = [one for one in found if _path(*one).startswith(f"{words[0]}.")] if exact else []
    chosen = [*exact, *inside] or found
    if not chosen:
        last = words[-1].rpartition(".")[2]
        raise ConfigError(
            f"no key has {' and '.join(map(repr, words))} in its name"
            f"{nearest(last, {row.key for _, row in rows})}; motet keys lists the sections"
        )
    for section, row in chosen:
        kind = f" ({section.kind})" if section.kind else ""
        facts = f"  {row.takes}; default {row.default}".replace("`", "")
        out.print(Text.assemble((_path(section, row), "bold"), kind, (facts, "dim")))
        if row.meaning and len(chosen) <= MOST:
            out.print(Padding(Text(row.meaning), (0, 0, 0, 4)))
    if len(chosen) > MOST:
        out.print(f"\n{len(chosen)} keys: add a word to read what they mean")


def _path(section: "Section", row: "ConfigKey") -> str:
    return f"{section.path}.{row.key}".lstrip(".")


def _print_section(section: "Section") -> None:
    first = section.about.partition(". ")[0].partition("\n")[0].rstrip(".")
    name = section.path or "the config itself"
    out.print(Text.assemble((name, "bold"), f" ({section.kind})" if section.kind else ""))
    out.print(Padding(Text(first), (0, 0, 0, 4)))
