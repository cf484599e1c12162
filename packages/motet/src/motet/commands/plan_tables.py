"""Prints the plan of a run on GPUs, and what the doctor found."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from motet.commands.console import out, titled

if TYPE_CHECKING:
    from motet.api.planning import Planned
    from motet.doctor.findings import Finding
    from motet.planning.layouts import GpuUse, LaidOut


def print_plan(planned: "Planned") -> None:
    """Print the layouts, the GPUs of the best one, and the assumptions."""
    count = f"{planned.gpus} x {planned.gpu.name}"
    table = titled(
        f"layouts on {count}, fastest first (seconds)",
        ["layout", "per home", "step", "per s", "play", "score", "learn", "publish"],
    )
    rows = [("", one) for one in planned.options]
    if planned.configured is not None:
        rows.insert(0, (" *", planned.configured))
    for mark, one in rows:
        stages = (one.play, one.score, one.learn, one.publish)
        table.add_row(
            f"{one.layout.name}{mark}",
            _per_home(one),
            _seconds(one.step) if one.fits else Text("too big", "red"),
            f"{one.completions_per_second:,.1f}" if one.fits else "",
            *(_seconds(stage) for stage in stages),
        )
    out.print(table)
    out.print("  per home: GPUs that learn + GPUs that sample; per s: completions per second")
    if planned.configured is not None:
        out.print("  * the cluster section of the config")
    best = planned.configured or planned.options[0]
    _print_gpus(best, planned)
    if not best.fits:
        out.print(
            f"nothing fits on {count}: use more GPUs or larger ones, train: lora in place of full, "
            "models.NAME.checkpointing=true, or less train.token_budget",
            style="red",
            soft_wrap=True,
        )
    out.print("assumed", style="bold")
    for line in planned.assumptions:
        out.print(f"  {line}", soft_wrap=True)


def print_expected(planned: "Planned") -> None:
    """Print the seconds of a step of the config's own layout, and what they assume."""
    made = planned.configured
    assert made is not None
    stages = ("play", "score", "learn", "publish")
    shown = ", ".join(f"{stage} {_seconds(getattr(made, stage))}" for stage in stages)
    out.print(
        f"expected on {made.gpus} x {planned.gpu.name}, on paper: {_seconds(made.step)} s per step "
        f"({shown})",
        style="bold",
        soft_wrap=True,
    )
    for line in planned.assumptions:
        out.print(f"  {line}", soft_wrap=True)
    out.print("  other GPUs and layouts: motet plan CONFIG --gpus N --gpu KIND", soft_wrap=True)


def _print_gpus(made: "LaidOut", planned: "Planned") -> None:
    table = titled(
        f"GPUs of: {made.layout.name}",
        ["GPU", "node", "home", "does", "GB", f"of {planned.gpu.memory / 1e9:.0f}"],
    )
    for use in made.uses:
        nodes = sorted({gpu // planned.per_node for gpu in use.gpus})
        table.add_row(
            _ranges(use.gpus),
            _ranges(nodes),
            use.home,
            _does(use),
            f"{use.memory / 1e9:.0f}",
            Text("fits", "green") if use.fits else Text("too much", "red"),
        )
    out.print(table)


def _per_home(made: "LaidOut") -> str:
    layout = made.layout
    return {
        "one": "",
        "own": str(layout.learners),
        "vllm": f"{layout.learners} + {layout.replicas}" if not layout.beside else "1",
    }[layout.engine]


def _does(use: "GpuUse") -> str:
    return use.role if use.rows is None else f"{use.role} ({use.rows:,} rows at once)"


STATUS = {"ok": ("ok", "green"), "costs": ("-", "yellow"), "broken": ("broken", "red")}


def print_findings(found: Sequence["Finding"]) -> None:
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


def _ranges(numbers: Sequence[int]) -> str:
    """0, 1, 2 -> 0-2."""
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first}-{last}"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
