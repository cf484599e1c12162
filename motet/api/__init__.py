"""Motet from Python: one function per command. A config is a path or a mapping; results are plain values, ready for JSON."""

from motet.api.baselines import measure_baselines
from motet.api.evaluation import evaluate, play
from motet.api.opening import ConfigLike, read_config
from motet.api.replaying import replay
from motet.api.survey import check, compare, crossplay, dry_run
from motet.api.training import train, warmup
from motet.api.verifying import balance_answers, sample_answers, serve_verifier, train_verifier

__all__ = [
    "ConfigLike",
    "balance_answers",
    "check",
    "compare",
    "crossplay",
    "dry_run",
    "evaluate",
    "measure_baselines",
    "play",
    "read_config",
    "replay",
    "sample_answers",
    "serve_verifier",
    "train",
    "train_verifier",
    "warmup",
]
