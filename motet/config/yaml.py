"""Read and write YAML 1.2, and remember the line of every key for error messages.

PyYAML alone implements YAML 1.1, where `5e-6` is a string and `no` is False.
"""

import json
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from motet.errors import ConfigError, shortened
from motet.reading import read_text
from motet.settings import Settings
from motet.visible import on_one_line, visible

KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys that lead from the top to a value: ("team", "aux", "decode")."""
_DEEPEST = 50
"""Maximum nesting depth. No config needs a tenth of it, and Python's stack allows about a
thousand."""
_MOST_BITS = 14_000
"""Maximum size of an integer. Python refuses to print larger ones in decimal."""
_MOST_VALUES = 100_000
"""Maximum number of values in one string. Nested aliases could otherwise fill the memory from a few
lines."""
Model = TypeVar("Model", bound=Settings)


@dataclass(frozen=True)
class Document:
    """Keys and plain values as written, and the place of each: `configs/x.yaml:12`, or the
    override."""

    data: dict[str, Any]
    places: Mapping[KeyPath, str]
    warnings: tuple[str, ...] = ()
    """Messages about keys that were read, but perhaps not as their author thinks."""


# ------------------------------------------------------------------------------ reading and writing


def read_yaml(path: Path, *, last_counts: bool = False) -> Document:
    """Read one YAML file.

    With `last_counts`, a key may be defined twice, and its last value counts, as in PyYAML.

    Raises: ConfigError in one line if the file is missing or empty, is not YAML, defines a key
    twice, or is not a mapping.
    """
    try:
        text = read_text(path)
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist; expected a YAML file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}; expected a YAML file in UTF-8"
        ) from error
    data, places, repeated = _read(text, on_one_line(str(path)))
    if repeated and not last_counts:
        raise ConfigError(f"{repeated[0]}: keep one")
    if data is None:
        raise ConfigError(f"{path} is empty; expected keys and values, such as name: quickstart")
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: got {_shown(data)}, expected keys and values, such as name: quickstart"
        )
    warnings = tuple(f"{line}; the last one counts" for line in repeated)
    return Document(data, {**places, (): str(path)}, warnings)


def read_value(text: str, place: str) -> Any:
    """Parse a string as a YAML 1.2 value.

    `5e-6` is a float and `[1.5,0.5]` is a list; `no` and `train[:1000]` are strings.
    """
    value, _, repeated = _read(text, place, lines=False)
    if repeated:
        raise ConfigError(f"{repeated[0]}: keep one")
    return value


def write_yaml(data: Mapping[str, Any]) -> str:
    """Return YAML that `read_yaml` reads back equal.

    Keys keep their order, and lists of plain values stand on one line.
    """
    text = yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    # Strings with invisible characters are in double quotes, where `\u202e` is that character.
    return visible(text)


def _read(text: str, source: str, lines: bool = True) -> tuple[Any, dict[KeyPath, str], list[str]]:
    """Return the value, the place of each key, and a message for each key that is defined twice."""

    def place(mark: yaml.Mark | None) -> str:
        return f"{source}:{mark.line + 1}" if lines and mark is not None else source

    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(
            f"{place(error.problem_mark)}: not YAML: {error.problem}; expected keys and values, "
            "such as name: quickstart"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(
            f"{source}: nested too deeply; expected at most {_DEEPEST} levels"
        ) from error
    places: dict[KeyPath, str] = {}
    repeated: list[str] = []

    def value(node: yaml.Node, path: KeyPath, inside: tuple[yaml.Node, ...]) -> Any:
        if node in inside:
            raise ConfigError(
                f"{place(node.start_mark)}: {dotted(path)} contains itself; expected an alias of "
                "another value"
            )
        if len(path) > _DEEPEST:
            raise ConfigError(
                f"{place(node.start_mark)}: {dotted(path[:3])} is nested too deeply; expected at "
                f"most {_DEEPEST} levels"
            )
        if len(places) > _MOST_VALUES:
            raise ConfigError(
                f"{source}: more than {_MOST_VALUES:,} values; expected fewer: put rows of data "
                "into a data file"
            )
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return mapping(node, path, (*inside, node))
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            for index, item in enumerate(node.value):
                places[*path, index] = place(item.start_mark)
            return [
                value(item, (*path, index), (*inside, node))
                for index, item in enumerate(node.value)
            ]
        return _scalar(node, place(node.start_mark))

    def mapping(
        node: yaml.MappingNode, path: KeyPath, inside: tuple[yaml.Node, ...]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        said: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = _scalar(key_node, place(key_node.start_mark))
            if not isinstance(key, str):
                raise ConfigError(
                    f"{place(key_node.start_mark)}: got the key {_shown(key)}, expected a string: "
                    "write it in quotes"
                )
            if key in said:
                first = f", first on line {said[key]}" if lines else ""
                repeated.append(
                    f"{place(key_node.start_mark)}: {dotted((*path, key))} is set twice{first}"
                )
            said[key] = key_node.start_mark.line + 1
            places[*path, key] = place(key_node.start_mark)
            found[key] = value(value_node, (*path, key), inside)
        return found

    return (None if node is None else value(node, (), ())), places, repeated


def _scalar(node: yaml.Node, place: str) -> Any:
    convert = (
        _SCALARS.get(node.tag.removeprefix(_TAG)) if isinstance(node, yaml.ScalarNode) else None
    )
    if convert is None:
        raise ConfigError(f"{place}: got the tag {node.tag}, expected plain values without tags")
    try:
        return convert(node.value)
    except ValueError as error:
        said = shortened(repr(node.value), 100)
        raise ConfigError(f"{place}: got {said}, expected a value of its tag {node.tag}") from error


def _integer(text: str) -> int:
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(text: str) -> float:
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, Callable[[str], Any]] = {
    "null": lambda text: None,
    "bool": lambda text: text.lower() == "true",
    "int": _integer,
    "float": _float,
    "str": str,
}
_CORE_SCHEMA = {  # YAML 1.2.2, section 10.3.2; the first pattern that matches is the type
    "null": r"(?:~|null|Null|NULL|)\Z",
    "bool": r"(?:true|True|TRUE|false|False|FALSE)\Z",
    "int": r"(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z",
    "float": (
        r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
    ),
}


class _Loader(yaml.SafeLoader):
    """A loader that knows only the types of YAML 1.2's core schema."""


class _Dumper(yaml.SafeDumper):
    """A dumper that quotes strings which `_Loader` would read as another type, and writes no
    aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {
    None: [(_TAG + kind, re.compile(pattern)) for kind, pattern in _CORE_SCHEMA.items()]
}
_Dumper.yaml_implicit_resolvers = _Loader.yaml_implicit_resolvers


def _list_node(dumper: _Dumper, items: list[Any]) -> yaml.SequenceNode:
    plain = not any(isinstance(item, list | dict) for item in items)
    return dumper.represent_sequence(_TAG + "seq", items, flow_style=plain)


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    quoted = '"' if visible(text) != text else None
    return dumper.represent_scalar(_TAG + "str", text, style=quoted)


_Dumper.add_representer(list, _list_node)
_Dumper.add_representer(str, _text_node)


# ----------------------------------------------------------------------------------------- checking


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
        for path, wrong in _beyond_json(data)
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
        raise ConfigError("\n".join(_complaints(error, model, data, places, at))) from error


def _beyond_json(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, str]]:
    """Find numbers that JSON cannot represent, and say what is wrong with each."""
    if isinstance(value, float) and not isfinite(value):
        yield path, f"got {_shown(value)}, expected a finite number"
    elif isinstance(value, int) and value.bit_length() > _MOST_BITS:
        yield (
            path,
            f"got a whole number of {value.bit_length():,} bits, expected one of at most "
            f"{_MOST_BITS:,}",
        )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _beyond_json(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _beyond_json(item, (*path, index))


def dotted(path: KeyPath) -> str:
    """Format a key path: ("rollout", "samples", 0) -> rollout.samples[0]"""
    parts = (
        f"[{key}]" if isinstance(key, int) else f".{on_one_line(shortened(key, 100))}"
        for key in path
    )
    return "".join(parts).removeprefix(".")


def place_of(places: Mapping[KeyPath, str], path: KeyPath) -> str:
    """Return the place where `path` or its nearest parent is set; "" if none is known."""
    return next(
        (places[path[:depth]] for depth in range(len(path), -1, -1) if path[:depth] in places), ""
    )


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
    for problem in error.errors(include_url=False):
        path = _written(problem["loc"], data)
        key, prefix = dotted(at + path), _prefix(places, at + path)
        kind, got, text = (
            problem["type"],
            problem["input"],
            problem["msg"].removeprefix("Value error, "),
        )
        if kind == "extra_forbidden":
            name, valid = str(path[-1]), _keys_at(model, path[:-1])
            advice = (model.advises(name) if not at else None) or _meant(name, valid)
            lines[f"{prefix}{key}: unknown key; {advice}"] = []
        elif kind == "missing":
            lines[f"{prefix}{key}: missing; it has no default"] = []
        elif kind in ("value_error", "motet"):
            lines[prefix + (text if not key or text.startswith(key) else f"{key}: {text}")] = []
        elif kind in _WISHES or text.startswith("Input should be "):
            wish = _WISHES[kind] if kind in _WISHES else text.removeprefix("Input should be ")
            start = f"{prefix}{key}: got {_shown(got)}, expected "
            lines.setdefault(start, []).append(wish)
            if isinstance(got, int | float):
                examples[start] = f", such as [{got}]"
        elif kind != "too_short":
            lines[f"{prefix}{key}: got {_shown(got)}: {text}"] = []
        elif not got:  # a list whose items were all rejected is also "too short"; skip that
            lines[
                f"{prefix}{key}: got {_shown(got)}, expected at least "
                f"{problem['ctx']['min_length']} of them"
            ] = []
    return [
        start
        + " or ".join(dict.fromkeys(wishes))
        + (examples.get(start, "") if wishes == ["a list"] else "")
        for start, wishes in lines.items()
    ]


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
        return [key for member in get_args(annotation) for key in _keys_at(member, path)]
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
    close = get_close_matches(key, valid, n=1)
    return (
        f"did you mean {close[0]}?"
        if close
        else f"the keys here are: {', '.join(valid) or '(none)'}"
    )


def _shown(value: Any) -> str:
    text = (
        json.dumps(value, ensure_ascii=False, default=str)
        if not isinstance(value, str)
        else repr(value)
    )
    return text if len(text) <= 60 else text[:57] + "..."
