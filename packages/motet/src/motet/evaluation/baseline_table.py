"""The comparison of a team with its baselines and with other teams, as a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from motet.evaluation.baselines import BaselineResult
from motet.evaluation.bootstrap import CONFIDENCE, RESAMPLES, Estimate, estimate, paired_difference
from motet.evaluation.playthrough import rewards, successes
from motet.evaluation.rates import game_count, rate_difference, success_of


@dataclass(frozen=True)
class BaselineRow:
    """The results of one protocol.

    Metrics are means over tasks with confidence intervals. None if the environment does not report
    the metric, or if all tasks failed.
    """

    protocol: str
    success: Estimate | None
    reward: Estimate | None
    lead: Mapping[str, Estimate | None]
    """For `success` and `reward`: the lead of the first row over this one, compared task by task.
    Empty in the first row."""
    n: int
    """Number of samples from which each answer was chosen."""
    tokens_per_task: float
    """Tokens generated for one answer by all agents in all turns, including drafts and rejected
    samples."""
    tasks: int
    """Number of tasks that count. The other tasks failed."""
    faults: int
    causes: Mapping[str, int]
    """`where/cause` -> number of faults."""
    note: str
    time: Mapping[str, float]
    """`seconds_per_task`: wall-clock time for one answer when all tasks are played concurrently."""


@dataclass(frozen=True)
class BaselineTable:
    """The comparison table. Everything except `BaselineRow.time` is determined by the config and
    its seed."""

    tasks: int
    samples: int
    """Games per task in each row that does not choose among n samples."""
    confidence: float
    resamples: int
    rows: list[BaselineRow]
    left_out: dict[str, str]
    """Protocol -> why it is missing from the table."""


def baseline_table(
    results: Sequence[BaselineResult],
    left_out: dict[str, str],
    *,
    tasks: int,
    samples: int,
    seed: int,
) -> BaselineTable:
    """Return one row per result. The first one is compared with each of the others."""
    rows = [_row(one, results[0] if place else None, seed) for place, one in enumerate(results)]
    return BaselineTable(tasks, samples, CONFIDENCE, RESAMPLES, rows, left_out)


def _row(one: BaselineResult, first: BaselineResult | None, seed: int) -> BaselineRow:
    count, reward_of = game_count(one.games), rewards(one.games)
    lead: dict[str, Estimate | None] = {}
    if first is not None:
        fewer = min(game_count(first.games), count)
        theirs, own = successes(first.games), successes(one.games)
        lead["success"] = rate_difference(theirs, own, fewer, seed)
        lead["reward"] = paired_difference(rewards(first.games), reward_of, seed)
    return BaselineRow(
        protocol=one.protocol,
        success=success_of(one.games, seed),
        reward=estimate(reward_of, seed),
        lead=lead,
        n=one.n,
        tokens_per_task=one.tokens_per_task,
        tasks=sum(value is not None for value in reward_of),
        faults=one.played.summary.faults,
        causes=one.played.summary.causes,
        note=one.note,
        time={"seconds_per_task": one.seconds_per_task},
    )
