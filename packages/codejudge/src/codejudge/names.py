"""The global namespace in which a suite runs.

A name is looked up among the suite's own names, then Python's builtins, then those names of the
candidate that the suite may use.
"""

import builtins
from typing import Any

from codejudge.candidate_client import Absent, CandidateClient
from codejudge.protocol import Compiled


def namespace(client: CandidateClient, suite: Compiled) -> dict[str, Any]:
    """Make the namespace of a suite. Names that it does not define are looked up when read."""
    space = {"__name__": "tests", "__file__": "tests.py", "__builtins__": _Behind(client, suite)}
    client.space = space
    return space


class _Behind(dict[str, Any]):
    """Python's builtins, with the candidate's names as a fallback.

    A plain value of the candidate may change, so it is not stored but requested anew each time.
    """

    def __init__(self, client: CandidateClient, suite: Compiled) -> None:
        super().__init__(vars(builtins))
        self._client, self._names, self._library = client, suite.names, suite.library
        for name in suite.shadows:
            self.pop(name, None)

    def __missing__(self, name: str) -> Any:
        try:
            if name in self._library:
                value = self[name] = self._client.library(name)
                return value
            if name not in self._names:
                raise KeyError(name)
            value = self._client.name(name)
        except Absent:
            raise KeyError(name) from None
        if callable(value):
            self[name] = value
        return value
