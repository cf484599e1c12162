"""Folders to start from: a config, a game, a reward and tests that work at once.

The files lie beside this module, each with the ending .txt: those in `shared` belong to every kind,
and each kind has a folder of its own. `{{name}}` in them stands for the name of the new folder.
"""

import re
from pathlib import Path
from typing import Literal, get_args

from motet.errors import ConfigError, shortened

StarterKind = Literal["game", "dialogue", "rows"]
"""game: a class with prompts and a step. dialogue: one function that asks the agents. rows: a game
on rows of a file."""
KINDS: tuple[StarterKind, ...] = get_args(StarterKind)
_HOME = Path(__file__).parent
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,59}")


def starter_files(kind: StarterKind, name: str) -> dict[str, str]:
    """Return file name -> text of everything that a new folder of this kind holds."""
    return {
        path.name.removesuffix(".txt"): path.read_text(encoding="utf-8").replace("{{name}}", name)
        for folder in ("shared", kind)
        for path in sorted((_HOME / folder).glob("*.txt"))
    }


def start_folder(name: str, kind: StarterKind = "game", within: Path = Path()) -> list[Path]:
    """Write a new folder `name` and return its files.

    Raises: ConfigError for a name that is no plain name, or a folder that exists.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"got the name {shortened(name)!r}; expected a letter, then letters, digits, _ and -, "
            "at most 60 in all, such as my_team: it names the folder and its runs"
        )
    folder = within / name
    if folder.exists() or folder.is_symlink():
        raise ConfigError(
            f"{folder} exists; expected a new folder, because nothing is overwritten: choose "
            "another name, or remove it first"
        )
    folder.mkdir()
    written = []
    for file, text in starter_files(kind, name).items():
        path = folder / file
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
