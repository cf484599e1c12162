"""Motet trains several language models to collaborate, with multi-agent reinforcement learning.

    import motet

    summary = motet.train("configs/quickstart.yaml")
    print(summary["heldout"]["after"]["success"])

Importing this module is quick: torch is loaded when something is trained or played.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from motet.core import (
    Chat,
    Completion,
    Demonstration,
    Environment,
    Episode,
    Fault,
    Mark,
    Message,
    Outcome,
    Prompt,
    Reply,
    Round,
    Task,
    Team,
    Transition,
)
from motet.errors import (
    ConfigError,
    EnvironmentFault,
    MotetError,
    RewardFault,
    SamplerFault,
    SandboxFault,
    TrainingDiverged,
)
from motet.settings import Algorithm, Decode, Lora, Optimizer, Plan, Settings

if TYPE_CHECKING:
    from motet.api import (
        check,
        compare,
        crossplay,
        dry_run,
        evaluate,
        measure_baselines,
        play,
        read_config,
        replay,
        train,
        warmup,
    )
    from motet.environments.check import check_environment
    from motet.rewards.reward import Score
    from motet.rollout.freeform import FreeForm

_LATER = {
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
    "check_environment": "motet.environments.check",
    "Score": "motet.rewards.reward",
    "FreeForm": "motet.rollout.freeform",
}
"""Name -> the module it is imported from when it is first used."""

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Chat",
    "Completion",
    "ConfigError",
    "Decode",
    "Demonstration",
    "Environment",
    "EnvironmentFault",
    "Episode",
    "Fault",
    "FreeForm",
    "Lora",
    "Mark",
    "Message",
    "MotetError",
    "Optimizer",
    "Outcome",
    "Plan",
    "Prompt",
    "Reply",
    "RewardFault",
    "Round",
    "SamplerFault",
    "SandboxFault",
    "Score",
    "Settings",
    "Task",
    "Team",
    "TrainingDiverged",
    "Transition",
    "check",
    "check_environment",
    "compare",
    "crossplay",
    "dry_run",
    "evaluate",
    "measure_baselines",
    "play",
    "read_config",
    "replay",
    "train",
    "warmup",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'motet' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
