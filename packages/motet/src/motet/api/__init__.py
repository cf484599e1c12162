"""The Python API of Motet: one function per command, and what they return.

A config is a path or a mapping. Results are frozen records; `motet.core.records.as_json` gives
their JSON.
"""

from motet.api.distillation import distill, distilled_config
from motet.api.dry_runs import CheckResult, Cost, check, dry_run
from motet.api.evaluation import evaluate, play
from motet.api.loaded import LoadedRun, LoadedTeam, load_run, load_team
from motet.api.objects import Objects
from motet.api.setup import ConfigLike, read_config
from motet.api.summary import RunSummary
from motet.api.teams import team_config, train_team
from motet.api.training import train, warmup
from motet.doctor import doctor

__all__ = [
    "CheckResult",
    "ConfigLike",
    "Cost",
    "LoadedRun",
    "LoadedTeam",
    "Objects",
    "RunSummary",
    "check",
    "distill",
    "distilled_config",
    "doctor",
    "dry_run",
    "evaluate",
    "load_run",
    "load_team",
    "play",
    "read_config",
    "team_config",
    "train",
    "train_team",
    "warmup",
]
