"""How a model's chat template is used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ChatTemplate:
    """What a config says about the chat template of a model."""

    file: str | None = None
    """A Jinja file in place of the model's own template."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Variables of the template."""
    date: str | None = None
    """The date and time that the template reads, as in ISO 8601. None: now."""
