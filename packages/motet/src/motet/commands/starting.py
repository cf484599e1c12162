"""What a person meets first: `motet` alone, `motet init` and `motet examples`."""

from pathlib import Path
from typing import Annotated

import typer

from motet import __version__
from motet.commands.console import out
from motet.starters import StarterKind, copy_examples, start_folder

FIRST = {
    "motet train quickstart": "two agents learn to write one program, in about two minutes",
    "motet init my_team": "a folder with a game, a reward and a config of your own, to change",
    "motet doctor": "what this machine has, and what it lacks",
}
"""The commands that people need first, and what each of them is for."""


def print_first() -> None:
    """Say what to type first."""
    out.print(f"Motet {__version__} trains several language models to collaborate.\n")
    width = max(map(len, FIRST))
    for command, purpose in FIRST.items():
        out.print(f"  {command:{width}}  {purpose}", soft_wrap=True)
    out.print("\nmotet --help lists all commands.")


def init(
    name: Annotated[
        str, typer.Argument(help="The new folder, and the name of its runs.", show_default=False)
    ],
    kind: Annotated[
        StarterKind,
        typer.Option(
            help="game: a class with prompts and a step. dialogue: one function that asks the "
            "agents. rows: a game on rows of a file."
        ),
    ] = "game",
) -> None:
    """Write a folder to start from: a config, a game, a reward and tests, which work at once.

    Example: motet init my_team
    """
    written = start_folder(name, kind)
    out.print(f"{name}: {', '.join(path.name for path in written)}", soft_wrap=True)
    out.print(
        f"  cd {name}\n"
        "  motet check config.yaml   two steps with tiny models, after each change\n"
        "  motet train config.yaml   about half a minute\n"
        "  pytest                    the rules of the game, and the rewards",
        soft_wrap=True,
    )


def examples(
    folder: Annotated[Path, typer.Argument(help="The new folder.", show_default=True)] = Path(
        "examples"
    ),
) -> None:
    """Write the examples of the documentation: scripts, games, and a team that labels notes.

    Example: motet examples
    """
    written = copy_examples(folder)
    out.print(f"{folder}: {', '.join(path.name for path in written)}", soft_wrap=True)
    out.print(f"  python {folder}/own_environment.py   trains a game of its own in half a minute")
