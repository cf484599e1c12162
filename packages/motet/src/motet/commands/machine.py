"""The command `motet doctor`: what this machine has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from motet.commands.console import out, print_json
from motet.commands.options import AsJson

if TYPE_CHECKING:
    from motet.doctor import Finding


def doctor(
    ask_hub: Annotated[
        bool, typer.Option("--hub/--no-hub", help="Whether to send a request to the hub.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Show what this machine has, what each missing thing costs, and the commands that mend it.

    The exit code is 1 if something that Motet needs is broken.
    """
    from motet import api

    found = api.doctor(ask_hub=ask_hub)
    if as_json:
        print_json(found)
    else:
        _print_findings(found)
    if any(finding.status == "broken" for finding in found):
        raise typer.Exit(1)


STATUS = {"ok": ("ok", "green"), "costs": ("-", "yellow"), "broken": ("broken", "red")}


def _print_findings(found: Sequence["Finding"]) -> None:
    """Print each finding on a line, with its cost below, and then what mends them."""
    width = max(len(one.part) for one in found)
    for one in found:
        word, colour = STATUS[one.status]
        line = f" {one.part.ljust(width)}  {one.found}"
        out.print(Text.assemble((f"{word:>6}", colour), line), soft_wrap=True)
        if one.costs:
            out.print(f"{'':{width + 9}}{one.costs}", style="dim", soft_wrap=True)
    order = sorted(found, key=lambda one: one.status != "broken")
    mends = list(dict.fromkeys(one.mend for one in order if one.mend))
    if mends:
        out.print("to have it, where you need it", style="bold")
        for mend in mends:
            out.print(f"  {mend}", soft_wrap=True)
