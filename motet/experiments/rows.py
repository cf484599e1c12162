"""What a row of a table of published keys is, and how the values of such keys are read.

A spelling that begins with `*.` stands in the section of the trainer (`grpo`, `magrpo`, ...). A row is one of four things:

    Goes      to a place of Motet's config, by itself
    Joins     others: what they make together is what `becomes` says; null takes it back
    Told      nothing hangs on it here; the person is told why, unless the value is one of `quiet`
    Refused   it asks for what Motet does not do; an error says why, unless the value is one of `unless`
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Read: TypeAlias = Callable[[Any], Any]
"""A value as published -> as Motet has it. Raises: ValueError saying what was expected."""


def as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Key:
    spellings: tuple[str, ...]
    critic: bool = field(default=False, kw_only=True)
    """Whether it is for trainers with a critic; the others refuse it."""


@dataclass(frozen=True)
class Goes(Key):
    to: str
    read: Read = as_it_is


@dataclass(frozen=True)
class Joins(Key):
    becomes: str
    read: Read = as_it_is


@dataclass(frozen=True)
class Told(Key):
    why: str
    quiet: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Refused(Key):
    why: str
    unless: tuple[Any, ...] = (None, False)


Row: TypeAlias = Goes | Joins | Told | Refused


def spellings_of(row: Row, sections: tuple[str, ...]) -> list[str]:
    """Every way to write a row's key where the trainer's section has one of these names; the later ones give way to the first."""
    return [
        spelling.replace("*", section, 1)
        for spelling in row.spellings
        for section in (sections if spelling.startswith("*.") else ("",))
    ]


# ---------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class OneOf:
    """Reads a closed choice."""

    of: Mapping[Any, Any] = field(hash=False)

    def __call__(self, value: Any) -> Any:
        try:
            return self.of[value]
        except (KeyError, TypeError) as error:
            raise ValueError(f"expected one of {', '.join(str(name).lower() for name in self.of)}") from error


@dataclass(frozen=True)
class AtLeast:
    """Reads a whole number."""

    least: int

    def __call__(self, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < self.least:
            raise ValueError(f"expected a whole number of at least {self.least}")
        return value


def texts(value: Any) -> tuple[str, ...]:
    """A text, or a list of them. None is none."""
    listed = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ValueError("expected a text, or a list of them")
    return tuple(listed)


def a_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a text")
    return value


def a_number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("expected a number")
    return value


def yes_or_no(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


TYPES = OneOf(
    {
        **dict.fromkeys(("float32", "fp32"), "float32"),
        **dict.fromkeys(("float16", "fp16"), "float16"),
        # `auto` is the type of the checkpoint, and those of the published models are all bfloat16
        **dict.fromkeys(("bfloat16", "bf16", "auto"), "bfloat16"),
    }
)
