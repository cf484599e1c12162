"""The four kinds of entries in a table of published keys, and converters for the keys' values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Converter: TypeAlias = Callable[[Any], Any]
"""Convert a published value to Motet's. Raises ValueError saying what was expected."""


def unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Renamed:
    """The key sets the key `to` of Motet's config. `also` are other spellings of the key.

    If one file uses several spellings, an earlier one takes precedence over a later one.
    """

    to: str
    convert: Converter = unchanged
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Combined:
    """The trainer's function reads the key, together with others. A null unsets the key."""

    convert: Converter = unchanged
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class NoEffect:
    """The key is accepted and has no effect. A note tells the user why, except for null and
    `silent`."""

    why: str
    silent: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Unsupported:
    """The key is an error that says why, unless its last value is null or in `allowed`."""

    why: str
    allowed: tuple[Any, ...] = (False,)


KeyRule: TypeAlias = Renamed | Combined | NoEffect | Unsupported
KeyTable: TypeAlias = Mapping[str, KeyRule]


def spellings_of(key: str, rule: KeyRule, sections: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return all spellings of a key, with every name of its section; earlier ones take precedence.

    `sections` has the names of each section in the table that has several.
    """
    found = []
    for spelling in (key, *(rule.also if isinstance(rule, Renamed | Combined) else ())):
        section, dot, name = spelling.partition(".")
        names = sections[section] if dot and section in sections else (section,)
        found += [f"{one}{dot}{name}" for one in names]
    return found


def one_of(choices: Mapping[str, Any]) -> Converter:
    def convert(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"expected one of {', '.join(choices)}")
        return choices[value]

    return convert


def whole_number(least: int) -> Converter:
    def convert(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"expected a whole number of at least {least}")
        return value

    return convert


def texts(value: Any) -> tuple[str, ...]:
    """Convert a string or a list of strings. None is an empty list."""
    listed = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise ValueError("expected a string or a list of strings")
    return tuple(listed)


def text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a string")
    return value


def number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("expected a number")
    return value


def boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value
