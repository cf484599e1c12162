"""The Python API of Motet: one function per command.

A config is a path or a mapping. Results are frozen records; `motet.core.records.as_json` gives
their JSON.
"""

from motet.api.comparing import crossplay, measure_baselines
from motet.api.comparison import compare
from motet.api.dry_runs import check, dry_run
from motet.api.evaluation import evaluate, play
from motet.api.exporting import export
from motet.api.planning import plan
from motet.api.recorded import episodes
from motet.api.replaying import replay
from motet.api.setup import ConfigLike, read_config
from motet.api.training import train, warmup
from motet.doctor import doctor

__all__ = [
    "ConfigLike",
    "check",
    "compare",
    "crossplay",
    "doctor",
    "dry_run",
    "episodes",
    "evaluate",
    "export",
    "measure_baselines",
    "plan",
    "play",
    "read_config",
    "replay",
    "train",
    "warmup",
]
