"""Prints evaluations as tables: figures, influence."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from motet.commands.console import figure, out, print_conventions, print_endpoints, titled

if TYPE_CHECKING:
    from motet.evaluation.evaluate import EvaluationResult
    from motet.evaluation.influence import Influence, Pair, TurnChange
    from motet.evaluation.intervals import Estimate

FIGURES = (
    "episodes", "samples", "faults", "success", "reward", "final_reward", "turns", "tokens",
    "tokens_per_episode",
)  # fmt: skip
"""Metrics of an evaluation, in the order of the table."""


def print_evaluation(target: Path, figures: "EvaluationResult") -> None:
    table = titled(str(target), ["figure", "value", "95 %"])
    for name in FIGURES:
        if name == "final_reward" and len(figures.by_turn) <= 1:
            continue  # the reward
        ends = (figures.interval or {}).get(name)
        table.add_row(name, figure(getattr(figures, name)), "" if ends is None else span(*ends))
    for name, value in (figures.time or {}).items():
        table.add_row(name, figure(value))
    for k, value in figures.pass_at.items():
        if list(figures.pass_at) == [1] and figures.success is not None:
            continue  # the success
        table.add_row(f"pass@{k}", figure(value))
    for name, own in (figures.environments or {}).items():
        table.add_row(f"success {name}", figure(own.success))
        table.add_row(f"reward {name}", figure(own.reward))
    for agent, value in figures.agent_rewards.items():
        table.add_row(f"reward {agent}", figure(value))
    for name, value in figures.terms.items():
        table.add_row(f"term {name}", figure(value))
    for agent, counts in (figures.tools or {}).items():
        table.add_row(f"tool calls {agent}", str(counts.calls))
        table.add_row(f"tool errors {agent}", str(counts.errors))
    for cause, count in figures.causes.items():
        table.add_row(f"fault {cause}", str(count))
    out.print(table)
    print_endpoints(figures.endpoints)
    if len(figures.by_turn) > 1:
        table = titled(
            "results by turn", ["turn", "games that reached it", "reward", "success so far"]
        )
        for number, turn in enumerate(figures.by_turn, start=1):
            table.add_row(
                str(number), figure(turn.played), figure(turn.reward), figure(turn.success)
            )
        out.print(table)
    if figures.influence is not None:
        print_influence(figures.influence)
    if figures.conventions is not None:
        print_conventions(figures.conventions)


def print_influence(found: "Influence") -> None:
    """Print who was right at each turn, who changed the answer between turns, and who persuaded
    whom."""
    turns = found.turns
    columns = ["", *(f"turn {number}" for number in range(1, len(turns) + 1))]
    table = titled("right answers by turn", columns)
    for agent in turns[0].right:
        table.add_row(agent, *(figure(turn.right[agent]) for turn in turns))
    table.add_row("mean", *(figure(turn.mean) for turn in turns))
    table.add_row("majority", *(figure(turn.majority) for turn in turns))
    out.print(table)
    table = titled("reward by turn", columns)
    for agent in turns[0].rewards:
        table.add_row(agent, *(figure(turn.rewards[agent]) for turn in turns))
    out.print(table)
    if found.steps:
        _print_changes(found.steps)
    if found.pairs:
        _print_pairs(found.pairs)


def _print_changes(steps: Sequence["TurnChange"]) -> None:
    shares = ("improved", "declined", "kept_right", "kept_wrong", "corrected", "spoiled")
    table = titled("changes between turns", ["", *(share.replace("_", " ") for share in shares)])
    table.columns[0].no_wrap = True
    for number, step in enumerate(steps, start=1):
        for name, change in [*step.agents.items(), ("all", step.team)]:
            row = [figure(getattr(change, share)) for share in shares]
            table.add_row(f"{number} to {number + 1}  {name}", *row, end_section=name == "all")
    out.print(table)
    out.print(
        "  corrected: share of wrong answers that improved; spoiled: share of right answers that "
        "declined",
        soft_wrap=True,
    )


def _print_pairs(pairs: Sequence["Pair"]) -> None:
    table = titled("who persuaded whom", ["speaker", "listener", "persuaded", "of", "misled", "of"])
    for pair in pairs:
        persuaded = figure(pair.persuaded), figure(pair.persuadable)
        misled = figure(pair.misled), figure(pair.misleadable)
        table.add_row(pair.speaker, pair.listener, *persuaded, *misled)
    out.print(table)
    out.print(
        "  persuaded: share of cases with a wrong listener and a right speaker in which the "
        "listener was right next; misled: the reverse",
        soft_wrap=True,
    )


def counted(causes: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in causes.items())


def estimated(found: "Estimate | None") -> str:
    """Return a mean with its interval. One without a width says nothing, and is left out."""
    if found is None:
        return "-"
    return f"{found.mean:.3f}" + ("" if found.certain else f"\n{span(found.low, found.high)}")


def span(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"
