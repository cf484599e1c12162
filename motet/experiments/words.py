"""What was said: values with the key as it was written and the place, by the first spelling of their row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motet.errors import ConfigError


@dataclass(frozen=True)
class Said:
    """A value, its key as it was written, and where: `configs/x.yaml:12`, or an override's text."""

    value: Any
    key: str
    place: str

    def complaint(self, text: str) -> ConfigError:
        return ConfigError(f"{self.place}: {self.key}: {text}")


@dataclass(frozen=True)
class Words:
    """Every key that was said, once, in its last layer's words; values are read."""

    of: Mapping[str, Said]

    def said(self, word: str) -> bool:
        return word in self.of

    def __getitem__(self, word: str) -> Said:
        """Raises: ConfigError where it was not said."""
        if word not in self.of:
            raise ConfigError(f"{word.removeprefix('*.')} is missing: it has no default")
        return self.of[word]

    def origin(self, word: str) -> Said | None:
        return self.of[word] if word in self.of else None

    def value(self, word: str, otherwise: Any = None) -> Any:
        return self.of[word].value if word in self.of else otherwise


@dataclass(frozen=True)
class Placed:
    """A value at a dotted place of Motet's config, and what it comes from; None where it follows from no single key."""

    to: str
    value: Any
    said: Said | None = None
