"""The commands `motet plan` and `motet doctor`: what a run needs, and what this machine has."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from motet.commands.console import out, print_json, titled
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson

if TYPE_CHECKING:
    from motet.api.planning import Planned
    from motet.doctor import Finding

GIB = 2**30


@of_api("motet.api.planning:plan", loads=False)
def plan(call: ApiCall, as_json: AsJson = False) -> None:
    """Compute on paper which GPUs a run needs. Nothing is loaded.

    Example: motet plan relay --gpu h100-80
    """
    planned = call()
    if as_json:
        print_json(planned)
    else:
        _print_plan(planned)


def _print_plan(planned: "Planned") -> None:
    """Print what each process needs of its GPUs, and which GPUs hold everything."""
    least = {name: "-" if gpus is None else str(gpus) for name, gpus in planned.least_gpus.items()}
    table = titled(
        f"memory on {planned.gpu}, {planned.gpu_memory / GIB:.1f} GiB each",
        ["process", "GPUs", *(["least GPUs"] if least else []), "policies and critics", "GiB", ""],
    )
    for one in planned.processes:
        table.add_row(
            one.name,
            str(one.gpus),
            *([least[one.name]] if least else []),
            ", ".join(one.residents),
            f"{one.memory / GIB:.3f}",
            Text("fits", "green") if one.fits(planned.gpu_memory) else Text("too big", "red"),
        )
    out.print(table)
    if planned.advice:
        out.print(f"  {planned.advice}", style="red", soft_wrap=True)
    kinds = ", ".join(planned.fits_on) or "none of the GPUs that Motet knows"
    out.print(f"  everything fits on {kinds}", soft_wrap=True)
    out.print(f"  {planned.assumes}", soft_wrap=True)


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
        out.print("to mend", style="bold")
        for mend in mends:
            out.print(f"  {mend}", soft_wrap=True)
