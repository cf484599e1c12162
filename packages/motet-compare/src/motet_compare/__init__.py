"""Compares the runs and the teams of Motet: over seeds, with baselines, with each other
and with their records.

    import motet_compare

    motet_compare.runs("runs/quickstart-seed*").statistics

many_runs   several runs side by side: a row per run, groups over seeds, curves
over_seeds  mean, deviation and interval of a figure over seeds
api         plays: measure_baselines, compare_messages, crossplay, diagnose
baselines   what a team is compared with: one agent, protocols, best and majority of n
protocols   wraps an environment: changes the order in which agents act
selection   best of n and majority vote
messages    wraps an environment: messages of another task, or empty ones
cross_play  the first agent of one team with the other agents of another
diagnosis   a team and the figures that say which agent and which message matters
contributions  Shapley values of agents; wraps an environment: agents that say nothing
replaying   a step of a run again, beside its record
plots       curves with bands, and the matrix of cross-play
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_compare.api import compare_messages, crossplay, diagnose, measure_baselines
    from motet_compare.api_replay import replay
    from motet_compare.baselines import BaselineTable
    from motet_compare.cross_play import CrossplayResult
    from motet_compare.diagnosis import Diagnosis
    from motet_compare.many_runs import ComparedRun, LoadedRuns, compare, runs
    from motet_compare.messages import ComparedMessages
    from motet_compare.replaying import ReplayResult

_MODULE_OF = {
    "BaselineTable": "baselines",
    "ComparedMessages": "messages",
    "ComparedRun": "many_runs",
    "CrossplayResult": "cross_play",
    "Diagnosis": "diagnosis",
    "LoadedRuns": "many_runs",
    "compare": "many_runs",
    "compare_messages": "api",
    "ReplayResult": "replaying",
    "crossplay": "api",
    "diagnose": "api",
    "measure_baselines": "api",
    "replay": "api_replay",
    "runs": "many_runs",
}
__all__ = [
    "BaselineTable",
    "ComparedMessages",
    "ComparedRun",
    "CrossplayResult",
    "Diagnosis",
    "LoadedRuns",
    "ReplayResult",
    "compare",
    "compare_messages",
    "crossplay",
    "diagnose",
    "measure_baselines",
    "replay",
    "runs",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"motet_compare.{_MODULE_OF[name]}"), name)
