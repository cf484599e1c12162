"""Motet trains several language models to collaborate, with multi-agent reinforcement learning.

    import motet

    summary = motet.train("quickstart")
    print(summary.heldout["after"].success)

Importing this module is fast: everything but the errors is loaded when it is first used. The verbs
of a training loop by hand are in `motet.loop`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from motet.errors import ConfigError as ConfigError
from motet.errors import EnvironmentFault as EnvironmentFault
from motet.errors import MotetError as MotetError
from motet.errors import RewardFault as RewardFault
from motet.errors import SamplerFault as SamplerFault
from motet.errors import TrainingDiverged as TrainingDiverged

if TYPE_CHECKING:
    from codejudge import SandboxFault as SandboxFault
    from motet import loop as loop
    from motet.api import CheckResult as CheckResult
    from motet.api import Cost as Cost
    from motet.api import LoadedRun as LoadedRun
    from motet.api import LoadedTeam as LoadedTeam
    from motet.api import Objects as Objects
    from motet.api import RunSummary as RunSummary
    from motet.api import check as check
    from motet.api import distill as distill
    from motet.api import distilled_config as distilled_config
    from motet.api import dry_run as dry_run
    from motet.api import evaluate as evaluate
    from motet.api import load_run as load_run
    from motet.api import load_team as load_team
    from motet.api import play as play
    from motet.api import read_config as read_config
    from motet.api import team_config as team_config
    from motet.api import train as train
    from motet.api import train_team as train_team
    from motet.api import warmup as warmup
    from motet.config.schema import RunConfig
    from motet.core import Chats as Chats
    from motet.core import Completion as Completion
    from motet.core import Demonstrates as Demonstrates
    from motet.core import Demonstration as Demonstration
    from motet.core import Drawing as Drawing
    from motet.core import Draws as Draws
    from motet.core import Environment as Environment
    from motet.core import Episode as Episode
    from motet.core import Fault as Fault
    from motet.core import Grade as Grade
    from motet.core import Grades as Grades
    from motet.core import Message as Message
    from motet.core import NamesConventions as NamesConventions
    from motet.core import Outcome as Outcome
    from motet.core import OwnsTasks as OwnsTasks
    from motet.core import PlaysAlone as PlaysAlone
    from motet.core import Prompt as Prompt
    from motet.core import RanksTasks as RanksTasks
    from motet.core import ReadsRows as ReadsRows
    from motet.core import Reply as Reply
    from motet.core import Round as Round
    from motet.core import Score as Score
    from motet.core import Solves as Solves
    from motet.core import Task as Task
    from motet.core import ToolCall as ToolCall
    from motet.core import ToolSchema as ToolSchema
    from motet.core import Transition as Transition
    from motet.core import Votes as Votes
    from motet.credit.own import CreditStep as CreditStep
    from motet.environments.check import check_environment as check_environment
    from motet.environments.free_form import FreeForm as FreeForm
    from motet.environments.mixture import Mixture as Mixture
    from motet.evaluation.evaluate import EvaluationResult as EvaluationResult
    from motet.losses import LossInputs as LossInputs
    from motet.losses import PolicyLoss as PolicyLoss
    from motet.losses import token_ratio as token_ratio
    from motet.models.function_tools import tool as tool
    from motet.settings import Algorithm as Algorithm
    from motet.settings import Settings as Settings
    from motet.trainer.callbacks import Callback as Callback
    from motet.trainer.callbacks import stop_when as stop_when
    from motet.user_code.tool_runs import ToolError as ToolError

    Config: TypeAlias = RunConfig

_LATER = {
    "codejudge": "SandboxFault",
    "motet.api": "CheckResult Cost LoadedRun LoadedTeam Objects"
    " RunSummary check distill distilled_config dry_run evaluate load_run load_team play"
    " read_config team_config train train_team warmup",
    "motet.core": "Chats Completion Demonstrates Demonstration Drawing Draws Environment Episode"
    " Fault Grade Grades Message NamesConventions Outcome OwnsTasks PlaysAlone Prompt RanksTasks"
    " ReadsRows Reply Round Score Solves Task ToolCall ToolSchema Transition Votes",
    "motet.credit.own": "CreditStep",
    "motet.environments.check": "check_environment",
    "motet.environments.mixture": "Mixture",
    "motet.evaluation.evaluate": "EvaluationResult",
    "motet.losses": "LossInputs PolicyLoss token_ratio",
    "motet.models.function_tools": "tool",
    "motet.environments.free_form": "FreeForm",
    "motet.settings": "Algorithm Settings",
    "motet.trainer.callbacks": "Callback stop_when",
    "motet.user_code.tool_runs": "ToolError",
}
"""Module -> the names that are imported from it at their first use."""
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names.split()}

__version__ = "0.2.0"
__all__ = sorted(
    [
        "Config", "ConfigError", "EnvironmentFault", "MotetError", "RewardFault", "SamplerFault",
        "TrainingDiverged", *_MODULE_OF,
    ]
)  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "loop":
        return import_module("motet.loop")
    if name == "Config":
        return import_module("motet.config.schema").RunConfig
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'motet' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "loop"]
