"""The commands in the order and the groups in which `motet --help` shows them: by what a person
wants to do."""

from collections.abc import Mapping
from typing import Any

from typer.core import TyperGroup

PANELS: Mapping[str, tuple[str, ...]] = {
    "Start": ("init", "examples", "configs", "keys", "show", "check", "doctor"),
    "Train": ("train", "warmup", "distill", "plan"),
    "Look at runs and games": ("view", "episodes", "play", "replay"),
    "Judge a team": (
        "evaluate", "compare", "baselines", "diagnose", "messages", "crossplay", "exploitability",
        "verifier",
    ),
    "Use a team": ("chat", "serve"),
    "Share a team": ("export",),
}  # fmt: skip
"""Group -> its commands."""
OTHERS = "Of other packages"
_GROUP_OF = {name: panel for panel, names in PANELS.items() for name in names}
_PLACE_OF = {name: place for place, name in enumerate(_GROUP_OF)}


def panel_of(command: str) -> str:
    """Return the group of a command."""
    return _GROUP_OF.get(command, OTHERS)


class InPanels(TyperGroup):
    """Lists commands in the order of `PANELS`, and those of other packages last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=lambda name: (_PLACE_OF.get(name, len(_PLACE_OF)), name))
