"""Environments: multi-agent games that see only text.

Each file defines one environment with its own `Options`. registry.py finds environments by name.

    quickstart relay debate_tiny    embedded environments, which generate their own tasks
    functions                       a team whose prompts and reward are functions of a row
    free_form                       a team described by one coroutine that asks the agents
    history                         which earlier turns are part of an agent's prompt
    debating                        what debates share: votes, and verifiers of answers
    rewarded                        wraps an environment: replaces its reward
    centralized                     wraps an environment: one agent answers for all agents
    wrapper                         base class of all wrappers: forwards to the wrapped environment

`check_environment` tests a custom environment.
"""

from motet.environments.check import check_environment
from motet.environments.rewarded import Rewarded

__all__ = ["Rewarded", "check_environment"]
