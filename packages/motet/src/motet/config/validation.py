"""Check plain values against a record of settings, with one line per problem."""

import json
import types
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from math import isfinite
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from motet.config.yaml import KeyPath, dotted, place_of, shown
from motet.errors import ConfigError
from motet.settings import Settings
from motet.settings.kinds import TAG

Model = TypeVar("Model", bound=Settings)
MOST_COMPLAINTS = 30
"""Further problems of a config are only counted."""
MOST_BITS = 14_000
"""Maximum size of an integer. Python refuses to print larger ones in decimal."""


def validate_options(
    model: type[Model], data: Mapping[str, Any], places: Mapping[KeyPath, str], at: KeyPath = ()
) -> Model:
    """Validate `data`, which is set at the key `at`, as a `model` record.

    Values are never converted: the string "5" is not a number.

    Raises: ConfigError with one line per problem, such as `configs/x.yaml:12: algorithm.gama:
    unknown key; did you mean gamma?`
    """
    unsayable = [
        f"{_prefix(places, at + path)}{dotted(at + path)}: {wrong}"
        for path, wrong in islice(_beyond_json(data), MOST_COMPLAINTS)
    ]
    if unsayable:
        raise ConfigError("\n".join(unsayable))
    try:
        # Validate as JSON: there, strict mode lets a list fill a tuple but no string fill a number.
        return model.model_validate_json(json.dumps(data), strict=True, context=places)
    except TypeError as error:
        raise ConfigError(
            f"{_prefix(places, at)}{error}; expected plain values, as in a YAML file"
        ) from error
    except ValidationError as error:
        # The lines say all that pydantic's own do.
        raise ConfigError("\n".join(_complaints(error, model, data, places, at))) from None


def _beyond_json(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Find numbers that JSON cannot represent, and say what is wrong with each."""
    if isinstance(value, float) and not isfinite(value):
        yield path, f"got {shown(value)}, expected a finite number"
    elif isinstance(value, int) and value.bit_length() > MOST_BITS:
        yield (
            path,
            f"got a whole number of {value.bit_length():,} bits, expected one of at most "
            f"{MOST_BITS:,}",
        )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _beyond_json(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _beyond_json(item, (*path, index))


def _prefix(places: Mapping[KeyPath, str], path: KeyPath) -> str:
    place = place_of(places, path)
    return f"{place}: " if place else ""


def _complaints(
    error: ValidationError,
    model: type[Settings],
    data: Mapping[str, Any],
    places: Mapping[KeyPath, str],
    at: KeyPath,
) -> list[str]:
    """Return one line per problem.

    Pydantic reports one error per member of a union. Their expectations for the same value are
    joined with "or", because any of them would do.
    """
    lines: dict[str, list[str]] = {}
    examples: dict[str, str] = {}
    problems = error.errors(include_url=False)
    for number, problem in enumerate(problems):
        if len(lines) >= MOST_COMPLAINTS:
            lines[f"and {len(problems) - number:,} more problems"] = []
            break
        path = _written(problem["loc"], data)
        key, prefix = dotted(at + path), _prefix(places, at + path)
        kind, got, text = (
            problem["type"],
            problem["input"],
            problem["msg"].removeprefix("Value error, "),
        )
        if kind == "extra_forbidden":
            name, valid = str(path[-1]), _keys_at(model, path[:-1])
            deeper = [
                f"{part}.{name}" for part in valid if name in _keys_at(model, (*path[:-1], part))
            ]
            advice = (
                (model.advises(name) if not at else None)
                or (f"did you mean {' or '.join(deeper)}?" if deeper else "")
                or _meant(name, valid)
            )
            lines[f"{prefix}{key}: unknown key; {advice}"] = []
        elif kind == "missing":
            lines[f"{prefix}{key}: missing; it has no default{_others(path, data)}"] = []
        elif kind in ("value_error", "motet"):
            lines[prefix + (text if not key or text.startswith(key) else f"{key}: {text}")] = []
        elif kind in _WISHES or text.startswith("Input should be "):
            wish = _WISHES[kind] if kind in _WISHES else text.removeprefix("Input should be ")
            if kind == "model_type" and (valid := _keys_at(model, path)):
                wish += f": {', '.join(valid)}"
            start = f"{prefix}{key}: got {shown(got)}, expected "
            lines.setdefault(start, []).append(wish)
            if isinstance(got, int | float):
                examples[start] = f", such as [{got}]"
        elif kind != "too_short":
            lines[f"{prefix}{key}: got {shown(got)}: {text}"] = []
        elif not got:  # a list whose items were all rejected is also "too short"; skip that
            lines[
                f"{prefix}{key}: got {shown(got)}, expected at least "
                f"{problem['ctx']['min_length']} of them"
            ] = []
    return [
        start
        + " or ".join(dict.fromkeys(wishes))
        + (examples.get(start, "") if wishes == ["a list"] else "")
        for start, wishes in lines.items()
    ]


def _others(path: KeyPath, data: Mapping[str, Any]) -> str:
    """Return the other names of a section whose names a user chooses, one of which may be meant."""
    if len(path) != 3 or path[0] not in ("models", "policies", "team"):
        return ""
    others = [name for name in data[str(path[0])] if name != path[1]]
    return f". Or is {path[1]} one of {', '.join(others)}?" if others else ""


_WISHES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "tuple_type": "a list",
    "list_type": "a list",
}


def _written(location: KeyPath, data: Any) -> KeyPath:
    """Return the part of pydantic's location that exists in `data`, plus at most one missing key.

    This drops the names of union members, which pydantic adds to its locations.
    """
    location = tuple(key for key in location if not str(key).startswith(TAG))
    for depth, key in enumerate(location):
        keys = (
            data
            if isinstance(data, Mapping)
            else range(len(data))
            if isinstance(data, list)
            else ()
        )
        if key not in keys:
            return location[: depth + 1] if isinstance(data, Mapping) else location[:depth]
        data = data[key]
    return location


def _keys_at(annotation: Any, path: KeyPath) -> list[str]:
    """Return the valid keys of the record at `path` below a field of type `annotation`."""
    if get_origin(annotation) in (Union, types.UnionType):
        keys = [key for member in get_args(annotation) for key in _keys_at(member, path)]
        return list(dict.fromkeys(keys))
    if get_origin(annotation) is Annotated:
        return _keys_at(get_args(annotation)[0], path)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        fields = annotation.model_fields
        if not path:
            return list(fields)
        return _keys_at(fields[path[0]].annotation, path[1:]) if path[0] in fields else []
    inner = [argument for argument in get_args(annotation) if argument is not Ellipsis]
    return _keys_at(inner[-1], path[1:]) if inner and path else []


def _meant(key: str, valid: list[str]) -> str:
    name, colon, value = key.partition(":")
    if colon and name in valid:
        return f"write {name}: {value}, with a space after the colon"
    close = get_close_matches(key, valid, n=1)
    return (
        f"did you mean {close[0]}?"
        if close
        else f"the keys here are: {', '.join(valid) or '(none)'}"
    )
