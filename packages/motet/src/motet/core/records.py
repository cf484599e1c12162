"""Results as plain JSON, and back.

A result is a frozen dataclass. Its JSON is an object with the same names, without the fields that
do not apply: those that are None, and None by default.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from motet.errors import ConfigError, shortened

Record = TypeVar("Record")
Location: TypeAlias = tuple[int | str, ...]
"""The keys and places that lead to a value of a JSON text."""
EMPTY: tuple[Any, ...] = (None, [], {})
"""What stands for a field that a file does not have: the first of them that the field may be."""


def as_json(value: Any) -> Any:
    """Return a record, or plain values with records in them, as plain JSON."""
    if is_dataclass(value):
        given = ((field, getattr(value, field.name)) for field in fields(value))
        return {
            field.name: as_json(one)
            for field, one in given
            if one is not None or field.default is not None
        }
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    return str(value) if isinstance(value, Path) else value


def from_json(kind: type[Record], text: bytes, where: Path) -> Record:
    """Return the record of a JSON file.

    A field that an earlier version of Motet did not write becomes null or empty, if it may be that.
    Raises: ConfigError that names the first wrong field.
    """
    filled: Counter[Location] = Counter()
    while True:
        try:
            return TypeAdapter(kind).validate_json(text, strict=True)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            loc = first["loc"]
            absent = first["type"] == "missing" or loc in filled
            if absent and filled[loc] < len(EMPTY):
                text = _with(text, loc, EMPTY[filled[loc]])
                filled[loc] += 1
                continue
            said = (
                "Field required"
                if absent
                else first["msg"]
                if first["type"] == "json_invalid"
                else f"{first['msg']}, got {shortened(repr(first['input']))}"
            )
            key = ".".join(map(str, loc))
            raise ConfigError(
                f"{where}: {key or 'it'}: {said}; expected what Motet writes"
            ) from error


def _with(text: bytes, loc: Location, value: Any) -> bytes:
    """Return the JSON with `value` at `loc`."""
    whole = json.loads(text)
    place = whole
    for key in loc[:-1]:
        place = place[key]
    place[loc[-1]] = value
    return json.dumps(whole).encode()
