"""The reference of all config keys, as a page."""

from motet.config.keys import ConfigKey, options_of_environments, sections


def table(rows: tuple[ConfigKey, ...]) -> str:
    """Return rows as a table of Markdown."""
    lines = ["| key | takes | default | meaning |", "|---|---|---|---|"]
    for row in rows:
        cells = (f"`{row.key}`", row.takes, row.default, row.meaning)
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines)


def config_reference() -> str:
    """Return the sections of all keys, as Markdown."""
    parts = [
        f"## {section.title}\n\n{section.about}\n\n{table(section.rows)}"
        for section in [*sections(), *options_of_environments()]
    ]
    return "\n\n".join(parts)
