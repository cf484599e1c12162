"""How deeply tuples are nested in one another."""

from collections.abc import Mapping
from typing import Any, Final

from codejudge.object_table import Garbled

_MOST_LEVELS: Final = 10_000
"""Maximum nesting of tuples that are sent by number. Python hashes tuples recursively on the C
stack, without checking how much of it is left.
"""


class TupleDepths:
    """The depths of those tuples that are sent by number: instances of tuple subclasses."""

    def __init__(self, numbers: Mapping[int, int]) -> None:
        """`numbers`: id(object) -> its number."""
        self._numbers = numbers
        self._depths: dict[int, int] = {}

    def of(self, value: Any) -> int:
        """Return the depth of nested tuples. Raises Garbled if it is too large."""
        depth = self._depths.get(self._numbers.get(id(value), -1))
        if depth is None:
            inner = tuple.__iter__(value) if isinstance(value, tuple) else ()
            depth = 1 + max(map(self.of, inner), default=0)
        if depth > _MOST_LEVELS:
            raise Garbled(f"more than {_MOST_LEVELS} nested tuples")
        return depth

    def remember(self, number: int, depth: int) -> None:
        self._depths[number] = depth

    def forget(self, number: int) -> None:
        self._depths.pop(number, None)
