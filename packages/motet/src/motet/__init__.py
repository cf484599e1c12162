"""Motet trains several language models to collaborate, with multi-agent reinforcement learning.

    import motet

    summary = motet.train("quickstart")
    print(summary.heldout["after"].success)

Importing this module is fast: everything but the errors is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from motet.errors import (
    ConfigError,
    EnvironmentFault,
    MotetError,
    RewardFault,
    SamplerFault,
    TrainingDiverged,
)

if TYPE_CHECKING:
    from codejudge import Sandbox, SandboxFault
    from motet.algorithms import ALGORITHMS
    from motet.api import (
        check,
        compare,
        crossplay,
        dry_run,
        episodes,
        evaluate,
        measure_baselines,
        play,
        read_config,
        replay,
        train,
        warmup,
    )
    from motet.api.comparison import runs
    from motet.api.exporting import export
    from motet.api.objects import Objects
    from motet.api.runs import load_run, load_team
    from motet.api.teams import team_config, train_team, write_config
    from motet.batch import pack, policy_objective
    from motet.core import (
        Chat,
        Completion,
        CreditState,
        Demonstration,
        Environment,
        Episode,
        Fault,
        Grade,
        Message,
        Outcome,
        Prompt,
        Reply,
        Round,
        Scores,
        Task,
        Team,
        Transition,
    )
    from motet.credit.assign import assign_credit
    from motet.credit.own import CreditStep
    from motet.environments.check import check_environment
    from motet.environments.quickstart import Quickstart
    from motet.environments.reward import Score
    from motet.models.backbone import Backbone, Policy
    from motet.models.learner import LocalLearner
    from motet.models.sampler import LocalSampler
    from motet.models.tiny import make_tiny
    from motet.models.warmup import warm_up
    from motet.rollout.collect import collect
    from motet.rollout.freeform import FreeForm
    from motet.rollout.summary import summarise
    from motet.settings import (
        Algorithm,
        Decode,
        Lora,
        Optimizer,
        Plan,
        Settings,
        TinyModel,
        Warmup,
    )
    from motet.trainer.callbacks import Callback, stop_when
    from motet.trainer.score import score

_CORE = (
    "Chat",
    "Completion",
    "CreditState",
    "Demonstration",
    "Environment",
    "Episode",
    "Fault",
    "Grade",
    "Message",
    "Outcome",
    "Prompt",
    "Reply",
    "Round",
    "Scores",
    "Task",
    "Team",
    "Transition",
)
_SETTINGS = ("Algorithm", "Decode", "Lora", "Optimizer", "Plan", "Settings", "TinyModel", "Warmup")
_LATER = {
    **dict.fromkeys(_CORE, "motet.core"),
    **dict.fromkeys(_SETTINGS, "motet.settings"),
    "train": "motet.api",
    "warmup": "motet.api",
    "evaluate": "motet.api",
    "play": "motet.api",
    "read_config": "motet.api",
    "replay": "motet.api",
    "measure_baselines": "motet.api",
    "check": "motet.api",
    "compare": "motet.api",
    "crossplay": "motet.api",
    "dry_run": "motet.api",
    "train_team": "motet.api.teams",
    "team_config": "motet.api.teams",
    "write_config": "motet.api.teams",
    "load_run": "motet.api.runs",
    "load_team": "motet.api.runs",
    "export": "motet.api.exporting",
    "runs": "motet.api.comparison",
    "Callback": "motet.trainer.callbacks",
    "CreditStep": "motet.credit.own",
    "Objects": "motet.api.objects",
    "stop_when": "motet.trainer.callbacks",
    "episodes": "motet.api",
    "check_environment": "motet.environments.check",
    # the verbs of a training step, and what they need: examples/loop.py
    "ALGORITHMS": "motet.algorithms",
    "Backbone": "motet.models.backbone",
    "LocalLearner": "motet.models.learner",
    "LocalSampler": "motet.models.sampler",
    "Policy": "motet.models.backbone",
    "Quickstart": "motet.environments.quickstart",
    "Sandbox": "codejudge",
    "SandboxFault": "codejudge",
    "assign_credit": "motet.credit.assign",
    "collect": "motet.rollout.collect",
    "make_tiny": "motet.models.tiny",
    "pack": "motet.batch",
    "policy_objective": "motet.batch",
    "score": "motet.trainer.score",
    "summarise": "motet.rollout.summary",
    "warm_up": "motet.models.warmup",
    "Score": "motet.environments.reward",
    "FreeForm": "motet.rollout.freeform",
}
"""Name -> the module that it is imported from at first use."""

__version__ = "0.1.0"
__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Backbone",
    "Callback",
    "Chat",
    "Completion",
    "ConfigError",
    "CreditState",
    "CreditStep",
    "Decode",
    "Demonstration",
    "Environment",
    "EnvironmentFault",
    "Episode",
    "Fault",
    "FreeForm",
    "Grade",
    "LocalLearner",
    "LocalSampler",
    "Lora",
    "Message",
    "MotetError",
    "Objects",
    "Optimizer",
    "Outcome",
    "Plan",
    "Policy",
    "Prompt",
    "Quickstart",
    "Reply",
    "RewardFault",
    "Round",
    "SamplerFault",
    "Sandbox",
    "SandboxFault",
    "Score",
    "Scores",
    "Settings",
    "Task",
    "Team",
    "TinyModel",
    "TrainingDiverged",
    "Transition",
    "Warmup",
    "assign_credit",
    "check",
    "check_environment",
    "collect",
    "compare",
    "crossplay",
    "dry_run",
    "episodes",
    "evaluate",
    "export",
    "load_run",
    "load_team",
    "make_tiny",
    "measure_baselines",
    "pack",
    "play",
    "policy_objective",
    "read_config",
    "replay",
    "runs",
    "score",
    "stop_when",
    "summarise",
    "team_config",
    "train",
    "train_team",
    "warm_up",
    "warmup",
    "write_config",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'motet' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
