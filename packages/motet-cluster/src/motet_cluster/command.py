"""The command `motet plan`, which `motet_cluster` adds: which GPUs a run needs."""

from typing import TYPE_CHECKING

from rich.text import Text

from motet.commands.console import out, print_json, titled
from motet.commands.from_api import ApiCall, of_api
from motet.commands.options import AsJson

if TYPE_CHECKING:
    from motet_cluster.planning import Planned

GIB = 2**30


@of_api("motet_cluster.planning:plan", loads=False)
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
