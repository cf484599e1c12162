"""Results as plain JSON, and back.

A result is a frozen dataclass. Its JSON is an object with the same names, without the fields that
do not apply: those that are None, and None by default.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from motet.errors import ConfigError, shortened

Record = TypeVar("Record")


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
    """Return the record of a JSON file. Raises: ConfigError that names the first wrong field."""
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        said = (
            first["msg"]
            if first["type"] in ("missing", "json_invalid")
            else (f"{first['msg']}, got {shortened(repr(first['input']))}")
        )
        raise ConfigError(f"{where}: {key or 'it'}: {said}; expected what Motet writes") from error
