"""Whether a game with a mutable state can be copied, so that each step may play a copy."""

import copy
from typing import Any


def can_be_copied(game: Any) -> bool:
    """Return whether `copy.deepcopy` copies the game."""
    try:
        copy.deepcopy(game)
    except Exception:  # noqa: BLE001 - a game may hold anything, and then trees are refused
        return False
    return True
