"""What a planning game is played on: a puzzle that takes actions and pays for them."""

from collections.abc import Sequence
from typing import Any, Protocol, Self, TypeAlias

Action: TypeAlias = Sequence[Any]
"""What one turn does: a list of moves, of rows or of steps, as an agent wrote it."""


class Puzzle(Protocol):
    """A puzzle as it stands. It is an immutable value."""

    @property
    def solved(self) -> bool: ...

    @property
    def over(self) -> bool:
        """Whether it takes no more actions: it is solved, or out of steps."""

    def rows(self) -> list[str]:
        """Return it as text, which `read` of its game reads again."""

    def told(self) -> str:
        """Return what a prompt says about how it stands."""

    def played(self, action: Action) -> tuple[Self, float]:
        """Return the puzzle after an action, and the published reward of the action."""

    def solution(self) -> Action | None:
        """Return an action that solves it, or None if none does."""
