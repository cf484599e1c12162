"""Arguments and options that several commands share, and those of the servers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import StrEnum
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
        help="Two or more run folders.", show_default=False, autocompletion=complete_run
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


# ----------------------------------------------------------------------------------- verifier serve


class ReadsChoice(StrEnum):
    """How the score of a completion is computed from the verifier's values."""

    end = "end"
    mean = "mean"
    lowest = "lowest"


HostOption = Annotated[
    str, typer.Option(help="The address to listen on. 0.0.0.0: all addresses of this machine.")
]
PortOption = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="The port to listen on. 0: any free port, which is printed."
    ),
]
DeviceOption = Annotated[
    str, typer.Option(help="auto (cuda, else mps, else cpu), cpu, cuda, cuda:1, ...")
]
ReadsOption = Annotated[
    ReadsChoice,
    typer.Option(
        help=(
            "How the score is computed: the value at the end, or the mean or lowest value after "
            "each line."
        )
    ),
]
KeyVariable = Annotated[
    str | None,
    typer.Option(
        help="The environment variable with the key. Requests then need Authorization: Bearer KEY.",
        show_default=False,
    ),
]
WithoutKey = Annotated[
    bool,
    typer.Option("--without-key", help="Accept requests from other machines without a key."),
]
TokenBudgetOption = Annotated[
    int,
    typer.Option(
        min=1,
        help="Maximum tokens per batch, including padding. More is faster but needs more memory.",
    ),
]
MaxQueue = Annotated[
    int,
    typer.Option(
        min=1, help="Maximum number of waiting answers. Above it, requests get status 429."
    ),
]
MaxBodyMb = Annotated[
    float, typer.Option(help="Maximum size of a request in MiB. Above it, requests get status 413.")
]
MaxHeldMb = Annotated[
    float,
    typer.Option(
        help="Maximum size of all open requests in MiB. Above it, requests get status 429."
    ),
]
RequestSeconds = Annotated[
    float, typer.Option(help="Maximum seconds per request. Above it, requests get status 503.")
]
MaxConnections = Annotated[
    int,
    typer.Option(
        min=1,
        help=(
            "Maximum number of connections. Above it, a new one replaces one that waits for its "
            "client."
        ),
    ),
]
MaxPerAddress = Annotated[
    int,
    typer.Option(
        min=1,
        help=(
            "Maximum number of connections per client address. Behind a proxy, all clients have "
            "one address."
        ),
    ),
]
ClientSeconds = Annotated[
    float,
    typer.Option(
        help=(
            "Maximum seconds for a client to begin a request, send its head, send its body, and "
            "read its answer."
        )
    ),
]
GraceSeconds = Annotated[
    float, typer.Option(help="Seconds that open requests have after Ctrl-C or SIGTERM.")
]
