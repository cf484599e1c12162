"""Compares the runs and the teams of Motet: over seeds, with baselines, and with each other.

    import motet_compare

    motet_compare.runs("runs/quickstart-seed*").statistics

many_runs   several runs side by side: a row per run, groups over seeds, curves
over_seeds  mean, deviation and interval of a figure over seeds
api         plays: measure_baselines, crossplay
baselines   what a team is compared with: one agent, protocols, best and majority of n
protocols   wraps an environment: changes the order in which agents act
selection   best of n and majority vote
cross_play  the first agent of one team with the other agents of another
plots       curves with bands, and the matrix of cross-play
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motet_compare.api import crossplay, measure_baselines
    from motet_compare.baselines import BaselineTable
    from motet_compare.cross_play import CrossplayResult
    from motet_compare.many_runs import ComparedRun, LoadedRuns, compare, runs

_MODULE_OF = {
    "BaselineTable": "baselines",
    "ComparedRun": "many_runs",
    "CrossplayResult": "cross_play",
    "LoadedRuns": "many_runs",
    "compare": "many_runs",
    "crossplay": "api",
    "measure_baselines": "api",
    "runs": "many_runs",
}
__all__ = [
    "BaselineTable",
    "ComparedRun",
    "CrossplayResult",
    "LoadedRuns",
    "compare",
    "crossplay",
    "measure_baselines",
    "runs",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"motet_compare.{_MODULE_OF[name]}"), name)
