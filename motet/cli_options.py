"""Arguments and options that several commands share, and those of `motet verifier serve`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Target = Annotated[
    Path,
    typer.Argument(
        help="A run folder, or a config file for the team it starts with.", show_default=False
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(help="Overrides: key.key=value, the value as in YAML.", show_default=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]

# ----------------------------------------------------------------------------------- verifier serve


class ReadsChoice(StrEnum):
    """How the score of a completion is computed from the verifier's values."""

    end = "end"
    mean = "mean"
    lowest = "lowest"


HostOption = Annotated[
    str, typer.Option(help="The address to listen at; 0.0.0.0 is every one of this machine's.")
]
PortOption = Annotated[
    int, typer.Option(min=0, max=65535, help="0 is any free one; it is printed.")
]
DeviceOption = Annotated[
    str, typer.Option(help="auto (cuda, else mps, else cpu), cpu, cuda, cuda:1, ...")
]
ReadsOption = Annotated[
    ReadsChoice,
    typer.Option(
        help="What is the score: the value at the end, or of those after each line the mean or "
        "the lowest."
    ),
]
KeyVariable = Annotated[
    str | None,
    typer.Option(
        help="The environment variable that holds the key: requests then need Authorization: "
        "Bearer KEY.",
        show_default=False,
    ),
]
WithoutKey = Annotated[
    bool,
    typer.Option("--without-key", help="Listen where others reach it, and let in all of them."),
]
TokenBudgetOption = Annotated[
    int,
    typer.Option(
        min=1, help="Tokens of a batch, padding included. More is faster, and takes more memory."
    ),
]
MaxQueue = Annotated[
    int,
    typer.Option(
        min=1, help="Answers that may be open at a time; beyond, requests get status 429."
    ),
]
MaxBodyMb = Annotated[
    float, typer.Option(help="Size of one request, in MiB; beyond, it gets status 413.")
]
MaxHeldMb = Annotated[
    float, typer.Option(help="Size of all open requests, in MiB; beyond, requests get status 429.")
]
RequestSeconds = Annotated[
    float, typer.Option(help="Time one request has; beyond, it gets status 503.")
]
MaxConnections = Annotated[
    int,
    typer.Option(
        min=1,
        help="Connections at a time; beyond, a new one takes the place of one that waits for "
        "its client.",
    ),
]
MaxPerAddress = Annotated[
    int,
    typer.Option(
        min=1,
        help="The same of one client's address. Behind a proxy all clients have the proxy's "
        "address.",
    ),
]
ClientSeconds = Annotated[
    float,
    typer.Option(
        help="Time a client has to begin a request, for its head, for its body, and to take "
        "its answer."
    ),
]
GraceSeconds = Annotated[
    float, typer.Option(help="Time that open requests have after Ctrl-C or SIGTERM.")
]
