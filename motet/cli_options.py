"""Arguments and options that several commands share."""

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
