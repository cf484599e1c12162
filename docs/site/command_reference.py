"""The reference of all commands, from the help of the typer app."""

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from motet.commands.main import whole_app


def commands() -> list[tuple[str, Any]]:
    """Return every command as (its words, its typer command), such as `motet verifier train`."""
    return list(_commands("motet", typer.main.get_command(whole_app())))


def _commands(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, one in sorted(inner.items()):
        if not one.hidden:
            yield from _commands(f"{words} {name}", one)


def command_reference() -> str:
    """Return what each command takes, as Markdown."""
    return "\n\n".join(_entry(words, command) for words, command in commands())


def _entry(words: str, command: Any) -> str:
    context = typer.Context(command, info_name=words)
    pieces = [piece.replace("{", "").replace("}", "") for piece in _usage(command, context)]
    parts = [f"## {words}", _with_example(inspect.cleandoc(command.help or ""))]
    parts.append(f"```text\n{' '.join([words, *pieces])}\n```")
    for kind in ("argument", "option"):
        mine = [one for one in command.params if one.param_type_name == kind]
        records = [record for one in mine if (record := one.get_help_record(context))]
        if records:
            parts.append(_table(kind, records))
    return "\n\n".join(parts)


def _usage(command: Any, context: Any) -> list[str]:
    """Return the words of a call, the arguments first and in capitals."""
    options, *arguments = command.collect_usage_pieces(context)
    return [*map(str.upper, arguments), options]


def _with_example(about: str) -> str:
    """Return a help text whose examples are blocks of code."""
    lines = [
        f"\n    {line.removeprefix('Example: ')}\n" if line.startswith("Example: ") else line
        for line in about.splitlines()
    ]
    return "\n".join(lines).strip("\n")


def _table(kind: str, records: list[tuple[str, str]]) -> str:
    lines = [f"| {kind} | meaning |", "|---|---|"]
    for name, text in records:
        shown = name.upper() if kind == "argument" else name
        word = shown.partition(" <")[0] if kind == "argument" else shown
        lines.append(f"| `{_cell(word)}` | {_cell(text)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
