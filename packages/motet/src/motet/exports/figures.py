"""The held-out results of a run, with intervals, from its recorded episodes."""

from dataclasses import dataclass

from motet.evaluation.baseline_table import BaselineTable
from motet.evaluation.bootstrap import Estimate, estimate
from motet.evaluation.playthrough import playthroughs, rewards
from motet.evaluation.rates import success_of
from motet.rollout.summary import summarise
from motet.trainer.run_folder import RunFolder


@dataclass(frozen=True)
class HeldOut:
    """One evaluation. A figure is None if no task has it."""

    step: int
    tasks: int
    games: int
    """Games per task."""
    faults: int
    success: Estimate | None
    reward: Estimate | None


def held_out(run: RunFolder, step: int, seed: int) -> HeldOut | None:
    """Return the evaluation of a step. None if the run has none.

    Raises: ConfigError if its record is broken.
    """
    if not run.episodes("evaluate", step).is_file():
        return None
    episodes = list(run.recorded("evaluate", step))
    games = [playthroughs(episode) for episode in episodes]
    return HeldOut(
        step,
        len(games),
        max(map(len, games), default=0),
        summarise(episodes).faults,
        success_of(games, seed),
        estimate(rewards(games), seed),
    )


def baseline_lines(table: BaselineTable) -> list[list[str]]:
    """Return the rows as texts: protocol, success, reward, tokens."""
    return [
        [row.protocol, shown(row.success), shown(row.reward), f"{row.tokens_per_task:,.0f}"]
        for row in table.rows
    ]


def shown(found: Estimate | None) -> str:
    """Return a mean with its interval. One without a width says nothing, and is left out."""
    if found is None:
        return "-"
    interval = "" if found.certain else f" ({found.low:.3f} to {found.high:.3f})"
    return f"{found.mean:.3f}{interval}"
