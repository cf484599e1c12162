"""Environments: games for agents that speak, text only. One file per game, with its own `Options`; registry.py finds them.

    quickstart relay     embedded games, with tasks of their own
    coding/              games that write programs
    writing              games that write prose
    history feedback     what agents hear of earlier turns, and what they are told between two; advice divides it among them
    scaling              from levels to rewards
    rewarded transplant protocols forward      wrap any game: another reward, another's messages, another order of turns

`check_environment` tests one's own.
"""

from motet.environments.check import check_environment
from motet.environments.rewarded import Rewarded
from motet.environments.transplant import Transplanted

__all__ = ["Rewarded", "Transplanted", "check_environment"]
