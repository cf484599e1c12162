"""Settings that a config file fills in: every field with its default and its meaning.

They are a room of their own because the rooms credit, rollout and models all read them, and those
rooms may not import each other.
"""

from motet.settings.alarms import AlarmBounds
from motet.settings.algorithm import DERIVED, Algorithm, Incentives
from motet.settings.base import Probability, Settings, Share
from motet.settings.chat_template import ChatTemplate
from motet.settings.credit import CriticCredit, GroupCredit, NoCredit, PairCredit
from motet.settings.kinds import ByKey, tupled, validation_error
from motet.settings.losses import (
    CispoLoss,
    ClippedLoss,
    KlInLoss,
    KlInReward,
    OwnLoss,
    PolicyGradient,
)
from motet.settings.models import Lora, TinyModel
from motet.settings.optimizer import Optimizer, Schedule, Warmup
from motet.settings.pairs import PairReplay, Pairs
from motet.settings.reward_model import RewardModel
from motet.settings.rollout import (
    COLDEST,
    HOTTEST,
    AnswerFormat,
    Decode,
    Plan,
    Thinking,
    check_temperature,
)
from motet.settings.task_sampling import (
    InformativeSampling,
    LevelSampling,
    TaskSampling,
    UniformSampling,
)
from motet.settings.tools import ToolUse

__all__ = [
    "COLDEST",
    "DERIVED",
    "HOTTEST",
    "AlarmBounds",
    "Algorithm",
    "AnswerFormat",
    "ByKey",
    "ChatTemplate",
    "CispoLoss",
    "ClippedLoss",
    "CriticCredit",
    "Decode",
    "GroupCredit",
    "Incentives",
    "InformativeSampling",
    "KlInLoss",
    "KlInReward",
    "LevelSampling",
    "Lora",
    "NoCredit",
    "Optimizer",
    "OwnLoss",
    "PairCredit",
    "PairReplay",
    "Pairs",
    "Plan",
    "PolicyGradient",
    "Probability",
    "RewardModel",
    "Schedule",
    "Settings",
    "Share",
    "TaskSampling",
    "Thinking",
    "TinyModel",
    "ToolUse",
    "UniformSampling",
    "Warmup",
    "check_temperature",
    "tupled",
    "validation_error",
]
