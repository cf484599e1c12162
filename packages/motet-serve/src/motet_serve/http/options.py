"""The options of the commands that start a server."""

from typing import Annotated

import typer

HostOption = Annotated[
    str, typer.Option(help="The address to listen on. 0.0.0.0: all addresses of this machine.")
]
PortOption = Annotated[
    int,
    typer.Option(
        min=0, max=65535, help="The port to listen on. 0: any free port, which is printed."
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
