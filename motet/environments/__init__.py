"""Environments: games for agents that speak, text only. One file per game, with its own `Options`; registry.py finds them.

`check_environment` tests one's own. rewarded.py and transplant.py wrap any of them.
"""

from motet.environments.check import check_environment
from motet.environments.rewarded import Rewarded
from motet.environments.transplant import Transplanted

__all__ = ["Rewarded", "Transplanted", "check_environment"]
