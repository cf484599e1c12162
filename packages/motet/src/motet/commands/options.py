"""Arguments and options that several commands share, and those of evaluate and of the servers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from motet.commands.shell_completion import complete_config, complete_run, complete_target
from motet.errors import ConfigError

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


# ---- evaluate


class Players(StrEnum):
    """Which team plays in an evaluation."""

    own = "own"
    reference = "reference"


TeamOption = Annotated[
    Players,
    typer.Option(
        help="own: the team of the run or config. reference: the solutions of the environment."
    ),
]
Greedy = Annotated[
    bool,
    typer.Option("--greedy", help="Take the most likely token at each step instead of sampling."),
]
Samples = Annotated[
    int | None,
    typer.Option(help="Games per task, instead of evaluation.samples.", show_default=False),
]
PassAt = Annotated[
    str | None,
    typer.Option(
        help="Values of k for pass@k, such as 1,5,10. Default: 1 and the powers of two.",
        show_default=False,
    ),
]
ShuffleTurn = Annotated[
    int | None,
    typer.Option(
        help="After this turn, agents get the replies of another task. This measures whether "
        "messages matter.",
        show_default=False,
    ),
]
BlankTurn = Annotated[
    int | None,
    typer.Option(
        help="After this turn, agents get empty messages of the others: another control.",
        show_default=False,
    ),
]
Chooser = Annotated[
    str | None,
    typer.Option(
        help="A verifier that chooses among the answers of several games: the address of its "
        "server, or its folder.",
        show_default=False,
    ),
]
BestOf = Annotated[
    str | None,
    typer.Option(
        help="With --verifier: the numbers of games it chooses from, such as 1,2,4,8. The largest "
        "number is played.",
        show_default=False,
    ),
]
Curves = Annotated[
    Path | None,
    typer.Option(
        help="With --verifier: also plot accuracy against tokens to this PNG file.",
        show_default=False,
    ),
]
BaselinesOption = Annotated[
    bool,
    typer.Option(
        "--baselines",
        help="Compare with the untrained team, a single agent, untrained communication, and "
        "best-of-n sampling.",
    ),
]
Single = Annotated[
    str | None,
    typer.Option(
        help="With --baselines: the agent whose policy plays alone. Default: the last agent.",
        show_default=False,
    ),
]
Against = Annotated[
    list[Path] | None,
    typer.Option(
        help="With --baselines: another run on the same tasks. Can be repeated.",
        show_default=False,
    ),
]


def check_picture(path: Path | None) -> None:
    """Check the path of a plot before the work, which may take hours. Raises: ConfigError."""
    if path is not None and (path.suffix != ".png" or not path.parent.is_dir()):
        raise ConfigError(
            f"--plot is {path}; expected a file that ends in .png, in an existing folder"
        )


def check_config(target: Path, overrides: list[str] | None) -> None:
    """Refuse a wrong config before the imports of torch and transformers, which take seconds."""
    from motet.config.load import load_target

    load_target(target, overrides or [])


def numbers(option: str, text: str) -> list[int]:
    """Read the value of an option that takes numbers. Raises: ConfigError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len({*map(int, parts)}) < len(parts):
        raise ConfigError(
            f"{option} is {text!r}; expected different whole numbers separated by commas, such as "
            "0,1,2"
        )
    return [int(part) for part in parts]


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
