"""Prints results as tables and lines on the terminal."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from motet.safety.visible import Console, styled, visible
from motet.user_code.libraries import is_there

if TYPE_CHECKING:
    from motet.api.dry_runs import Cost
    from motet.api.summary import RunSummary
    from motet.rollout.summary import EndpointUse

out = Console()


def titled(title: str, columns: list[str]) -> Table:
    """Print the title and return an empty table for the rows below it.

    A title of the rich Table itself would wrap at the table's width.
    """
    out.print(title, style="bold", soft_wrap=True)
    table = Table()
    for place, column in enumerate(columns):
        table.add_column(
            column, justify="left" if place == 0 or column.startswith("differs") else "right"
        )
    return table


def figure(value: float | int | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def listed(figures: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3g}" for name, value in figures.items())


def print_json(found: Any) -> None:
    """Print a record as one JSON object."""
    from motet.core.records import as_json  # it loads pydantic

    print(json.dumps(as_json(found)))


def say_on_stderr(lines: Sequence[str]) -> None:
    """Print lines on standard error, so that --json stays one object."""
    for line in lines:
        print(visible(line), file=sys.stderr)


def print_conventions(named: Mapping[str, Mapping[str, float]]) -> None:
    for agent, labels in named.items():
        out.print(
            f"  {agent}: " + ", ".join(f"{label} {share:.0%}" for label, share in labels.items())
        )


def print_endpoints(endpoints: "Mapping[str, EndpointUse] | None") -> None:
    """Print what policies behind endpoints answered, and the tokens that their servers counted."""
    for policy, use in (endpoints or {}).items():
        counted = "its server does not count tokens"
        if use.uncounted < use.answers:
            counted = f"{use.prompt_tokens:,} tokens read, {use.completion_tokens:,} written"
            counted += f", without {use.uncounted:,} that were not counted" * bool(use.uncounted)
        out.print(f"  endpoint of {policy}: {use.answers:,} answers; {counted}", soft_wrap=True)


def print_finished(summary: "RunSummary", runs: Path) -> None:
    """Print the results of a finished run, and where to find more."""
    place = runs / summary.name
    table = titled(str(place), ["held out", "success", "reward", "faults"])
    for when, found in summary.heldout.items():
        table.add_row(when, figure(found.success), figure(found.reward), str(found.faults))
    out.print(table)
    after = summary.heldout.get("after")
    for agent, labels in ((after and after.conventions) or {}).items():
        for label, share in list(labels.items())[:1]:
            out.print(f"  {agent} settled on {label!r} ({share:.0%})")
    print_endpoints(summary.endpoints)
    curve = f"  learning curve  {place / 'curve.png'!s}\n" if is_there("matplotlib") else ""
    out.print(
        f"  {steps_of(summary.steps)}, {summary.tokens:,} tokens at "
        f"{summary.tokens_per_second:,.0f}/s, "
        f"{summary.wall_seconds:.0f} s ({summary.cpu_seconds:.0f} CPU-seconds)\n"
        f"  {step_took(summary.profile)}\n"
        f"{curve}"
        f"  show a game     motet play {place!s}\n"
        f"  in the browser  motet view {place!s}\n",
        soft_wrap=True,
    )


def step_took(profile: Mapping[str, float]) -> str:
    """Return the time of a step and the share of each stage, largest first.

    A stage with parts is replaced by its parts. Shares of 1 % or less are omitted.
    """
    total = sum(seconds for stage, seconds in profile.items() if "/" not in stage)
    wholes = {stage.partition("/")[0] for stage in profile if "/" in stage}
    parts = {
        stage.rpartition("/")[2]: seconds
        for stage, seconds in profile.items()
        if stage not in wholes
    }
    most = sorted(parts, key=lambda stage: parts[stage], reverse=True)
    shares = ", ".join(
        f"{stage} {parts[stage] / total:.0%}" for stage in most if parts[stage] > 0.01 * total
    )
    return f"a step took {total:.2f} s: {shares}"


def print_cost(cost: "Cost") -> None:
    """Print what a training step samples, and how much memory the run needs."""
    table = titled("one training step", ["what", "count"])
    table.add_row("nodes (rounds of play)", f"{cost.rounds:,}")
    table.add_row("completions", f"{cost.completions:,}")
    table.add_row("reward calls (joint actions)", f"{cost.joint_actions:,}")
    table.add_row("tokens (maximum)", f"{cost.longest_completions:,}")
    out.print(table)
    table = titled("estimated memory", ["part", "GiB"])
    for part, size in cost.memory.items():
        table.add_row(
            part,
            f"{size / 2**30:.3f}",
            end_section=part != "total" and part == list(cost.memory)[-2],
        )
    out.print(table)
    if cost.homes:
        table = titled("homes", ["home", "GPUs", "policies and critics", "GiB"])
        for home in cost.homes:
            gib = f"{home.memory / 2**30:.3f}"
            table.add_row(home.name, str(home.gpus), ", ".join(home.residents), gib)
        out.print(table)
    for line in (cost.rewards, *cost.derived, *cost.notes):
        if line:
            out.print(f"  {line}", soft_wrap=True)
    print_warnings(cost.warnings)
    out.print(f"  {steps_of(cost.steps)}; no training was started, no file was written")


def steps_of(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"


def print_warnings(lines: Sequence[str]) -> None:
    for line in lines:
        out.print(styled("warning", "yellow", f": {line}"), soft_wrap=True)
