"""Motet from Python: one function per command. A config is a path or a mapping; results are plain values, ready for JSON."""

from motet.api.baselines import measure_baselines
from motet.api.evaluation import evaluate, play
from motet.api.opening import ConfigLike, read_config
from motet.api.survey import check, compare, crossplay, dry_run
from motet.api.training import train, warmup
from motet.api.verifying import serve_verifier

__all__ = [
    "ConfigLike",
    "check",
    "compare",
    "crossplay",
    "dry_run",
    "evaluate",
    "measure_baselines",
    "play",
    "read_config",
    "serve_verifier",
    "train",
    "warmup",
]
