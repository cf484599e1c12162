"""Folders to start from: a config, a game, a reward and tests that work at once; and the examples.

The files lie beside this module, each with the ending .txt: those in `shared` belong to every kind,
and each kind has a folder of its own. `{{name}}` in them stands for the name of the new folder. A
wheel holds the examples of the repository too.
"""

import re
import shutil
from pathlib import Path
from typing import Literal, get_args

from motet.errors import ConfigError, shortened

StarterKind = Literal["game", "dialogue", "rows"]
"""game: a class with prompts and a step. dialogue: one function that asks the agents. rows: a game
on rows of a file."""
KINDS: tuple[StarterKind, ...] = get_args(StarterKind)
_HOME = Path(__file__).parent
_EXAMPLES = (_HOME.parent / "examples", _HOME.parents[4] / "examples")
"""In a wheel, and in a clone of the repository."""
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
    _refuse_existing(folder)
    folder.mkdir()
    written = []
    for file, text in starter_files(kind, name).items():
        path = folder / file
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def copy_examples(folder: Path = Path("examples")) -> list[Path]:
    """Copy the examples of the documentation to a new folder and return what lies in it.

    Raises: ConfigError for a folder that exists, or if this installation has no examples.
    """
    _refuse_existing(folder)
    found = next((place for place in _EXAMPLES if (place / "notes" / "team.py").is_file()), None)
    if found is None:
        raise ConfigError(
            f"this installation has no examples in {_EXAMPLES[0]}; expected those of the wheel: "
            "install motet again"
        )
    shutil.copytree(found, folder, ignore=shutil.ignore_patterns("__pycache__", "runs"))
    return sorted(folder.iterdir())


def _refuse_existing(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise ConfigError(
            f"{folder} exists; expected a new folder, because nothing is overwritten: choose "
            "another name, or remove it first"
        )
