"""What a training loop by hand is written with: examples/loop.py is one.

    collect -> score -> assign_credit -> pack -> LocalLearner.accumulate, step -> publish

ARCHITECTURE.md describes the step, and the types that go from one verb to the next.
"""

from codejudge import Sandbox
from motet.algorithms import ALGORITHMS, resolve
from motet.batch import minibatches, pack, pack_values, policy_objective, value_objective
from motet.core import CreditState, Scores, Team
from motet.credit.assign import assign_credit
from motet.environments.quickstart import Quickstart
from motet.models.backbone import Backbone, Policy
from motet.models.critic import Critic
from motet.models.learner import LocalLearner
from motet.models.sampler import LocalSampler
from motet.models.tiny import make_tiny
from motet.models.warmup import fine_tune
from motet.rollout.collect import collect
from motet.rollout.summary import summarise
from motet.settings import Decode, Lora, Optimizer, Plan, TinyModel, Warmup
from motet.trainer.score import score

__all__ = [
    "ALGORITHMS",
    "Backbone",
    "CreditState",
    "Critic",
    "Decode",
    "LocalLearner",
    "LocalSampler",
    "Lora",
    "Optimizer",
    "Plan",
    "Policy",
    "Quickstart",
    "Sandbox",
    "Scores",
    "Team",
    "TinyModel",
    "Warmup",
    "assign_credit",
    "collect",
    "fine_tune",
    "make_tiny",
    "minibatches",
    "pack",
    "pack_values",
    "policy_objective",
    "resolve",
    "score",
    "summarise",
    "value_objective",
]
