"""The global names of a suite while it runs: its own, then Python's, then those that it may see of the candidate's."""

import builtins
from typing import Any

from motet.sandbox.protocol import Compiled
from motet.sandbox.world import Absent, World


def namespace(world: World, suite: Compiled) -> dict[str, Any]:
    """Where a suite runs. What it reads there without having defined it is looked up when it is read."""
    space = {"__name__": "tests", "__file__": "tests.py", "__builtins__": _Behind(world, suite)}
    world.space = space
    return space


class _Behind(dict[str, Any]):
    """Python's builtins as the tests have them, and behind them the candidate's names. What is plain there may change: it is
    asked for anew."""

    def __init__(self, world: World, suite: Compiled) -> None:
        super().__init__(vars(builtins))
        self._world, self._names, self._library = world, suite.names, suite.library
        for name in suite.shadows:
            self.pop(name, None)

    def __missing__(self, name: str) -> Any:
        try:
            if name in self._library:
                value = self[name] = self._world.library(name)
                return value
            if name not in self._names:
                raise KeyError(name)
            value = self._world.name(name)
        except Absent:
            raise KeyError(name) from None
        if callable(value):
            self[name] = value
        return value
