"""The splits of environments that make their own tasks."""

from collections.abc import Mapping
from typing import TypeVar

from motet.errors import ConfigError

Part = TypeVar("Part")


def part_of(environment: str, parts: Mapping[str, Part], split: str) -> Part:
    """Return the part of this split. Raises: ConfigError if `environment` has no such split."""
    if split not in parts:
        raise ConfigError(
            f"{environment} has no split {split!r}; expected one of {', '.join(parts)}"
        )
    return parts[split]
