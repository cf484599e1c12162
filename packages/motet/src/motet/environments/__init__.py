"""Environments: multi-agent games that see only text.

Each file defines one environment with its own `Options`. registry.py finds environments by name.

    quickstart relay debate_tiny    embedded environments, which generate their own tasks
    debate/                         a debate on questions with gold answers
    coding/                         environments in which agents write programs
    minecraft/                      environments in which agents build in a simulated Minecraft
    writing                         an environment in which agents write prose
    history                         which earlier turns are part of an agent's prompt
    feedback advice                 feedback between turns, and how it is divided among the agents
    scaling                         maps the sum of the levels to a reward
    rewarded                        wraps an environment: replaces its reward
    centralized                     wraps an environment: one agent answers for all agents
    wrapper                         base class of all wrappers: forwards to the wrapped environment

`check_environment` tests a custom environment.
"""

from motet.environments.check import check_environment
from motet.environments.rewarded import Rewarded

__all__ = ["Rewarded", "check_environment"]
