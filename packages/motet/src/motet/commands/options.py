"""Arguments and options that several commands share."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from motet.commands.shell_completion import complete_config, complete_run, complete_target
from motet.errors import ConfigError

Listed = TypeVar("Listed")

Target = Annotated[
    Path,
    typer.Argument(
        help="A run folder, a checkpoint or an exported folder (its trained team), or a config "
        "file (its untrained team).",
        show_default=False,
        autocompletion=complete_target,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Overrides: key.key=value, with a YAML value.", show_default=False),
]
Traceback = Annotated[
    bool,
    typer.Option(
        "--traceback", help="Show the whole traceback of an error in your own code, not one line."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

ConfigArgument = Annotated[
    Path,
    typer.Argument(
        help="A config file (YAML).", show_default=False, autocompletion=complete_config
    ),
]
RunArgument = Annotated[
    Path, typer.Argument(help="A run folder.", show_default=False, autocompletion=complete_run)
]
Runs = Annotated[
    list[Path],
    typer.Argument(
        help="Two or more run folders or checkpoints.",
        show_default=False,
        autocompletion=complete_run,
    ),
]


ARGUMENTS = {
    "config": ConfigArgument,
    "target": Target,
    "overrides": Overrides,
    "run": RunArgument,
    "runs": Runs,
}
"""Parameter of the API -> the argument that gives it."""


def check_picture(path: Path | None) -> None:
    """Check the path of a plot before the work, which may take hours. Raises: ConfigError."""
    if path is not None and (path.suffix != ".png" or not path.parent.is_dir()):
        raise ConfigError(
            f"--plot is {path}; expected a file that ends in .png, in an existing folder"
        )


def check_config(target: Path, overrides: Sequence[str] | None) -> None:
    """Refuse a wrong config before the imports of torch and transformers, which take seconds."""
    from motet.config.load import load_target

    load_target(target, overrides or [])


_LISTS: dict[Any, tuple[str, str]] = {
    int: ("whole numbers", "0,1,2"),
    float: ("numbers", "0.7,1.0,1.3"),
    str: ("names", "alice,bob"),
}
"""Type of the parts of a list -> what they are called, and an example."""


def parts_of(flag: str, text: str, kind: Callable[[str], Listed]) -> tuple[Listed, ...]:
    """Read the value of an option that takes a list with commas. Raises: ConfigError."""
    words = [word.strip() for word in text.split(",")]
    with suppress(ValueError):
        found = tuple(kind(word) for word in words)
        if len(set(found)) == len(found) and all(words):
            return found
    named, example = _LISTS[kind]
    raise ConfigError(
        f"{flag} is {text!r}; expected different {named} separated by commas, such as {example}"
    )
