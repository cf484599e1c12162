"""Read and write YAML 1.2, and remember the line of every key for error messages.

PyYAML alone implements YAML 1.1, where `5e-6` is a string and `no` is False.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from motet.errors import ConfigError, shortened
from motet.safety.reading import read_text
from motet.safety.visible import on_one_line, visible

KeyPath: TypeAlias = tuple[str | int, ...]
"""The keys that lead from the top to a value: ("team", "aux", "decode")."""
_DEEPEST = 50
"""Maximum nesting depth. No config needs a tenth of it, and Python's stack allows about a
thousand."""
_MOST_VALUES = 20_000
"""Maximum number of values in one string. Nested aliases could otherwise fill the memory from a few
lines."""


_MOST_NODES, _DEEPEST_READ = 2 * _MOST_VALUES + 1, 4 * _DEEPEST
"""Bounds of what is read before it is looked at: a key and its value are two nodes."""


class _TooMany(Exception):
    """A document has more than `_MOST_NODES` nodes."""


@dataclass(frozen=True)
class Document:
    """Keys and plain values as written, and the place of each: `configs/x.yaml:12`, or the
    override."""

    data: dict[str, Any]
    places: Mapping[KeyPath, str]
    warnings: tuple[str, ...] = ()
    """Messages about keys that were read, but perhaps not as their author thinks."""
    dropped: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Section of the algorithm -> its keys in a lower layer, where a higher one names another
    kind."""


# ------------------------------------------------------------------------------ reading and writing


def read_yaml(path: Path, *, last_counts: bool = False) -> Document:
    """Read one YAML file.

    With `last_counts`, a key may be defined twice, and its last value counts, as in PyYAML.

    Raises: ConfigError in one line if the file is missing or empty, is not YAML, defines a key
    twice, or is not a mapping.
    """
    if path.suffix == ".py":
        raise ConfigError(
            f"{path} is a Python file; expected a config. python {path} runs it; a team that it "
            "trains has a config in its run: runs/NAME/config.yaml"
        )
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
            f"{path}: got {shown(data)}, expected keys and values, such as name: quickstart"
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
    reader = _Reader(source, lines)
    try:
        node = yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        where = source if error.problem_mark is None else reader.place(error.problem_mark)
        raise ConfigError(
            f"{where}: not YAML: {error.problem}; expected keys and values, such as name: "
            "quickstart"
        ) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ConfigError(
            f"{source}: nested too deeply; expected at most {_DEEPEST} levels"
        ) from error
    except _TooMany as error:
        raise _too_many(source) from error
    value = None if node is None else reader.value(node, (), ())
    return value, reader.places, reader.repeated


def _too_many(source: str) -> ConfigError:
    return ConfigError(
        f"{source}: more than {_MOST_VALUES:,} values; expected fewer: put rows of data into a "
        "data file"
    )


class _Reader:
    """Turns YAML nodes into plain values.

    `places` maps each key to its place, and `repeated` has a message for each key that is defined
    twice.
    """

    def __init__(self, source: str, lines: bool) -> None:
        self.places: dict[KeyPath, str] = {}
        self.repeated: list[str] = []
        self._source, self._lines = source, lines

    def place(self, mark: yaml.Mark) -> str:
        return f"{self._source}:{mark.line + 1}" if self._lines else self._source

    def value(self, node: yaml.Node, path: KeyPath, inside: tuple[yaml.Node, ...]) -> Any:
        """Return the value of a node. `inside` are the nodes that contain it."""
        place = self.place(node.start_mark)
        if node in inside:
            raise ConfigError(
                f"{place}: {dotted(path)} contains itself; expected an alias of another value"
            )
        if len(path) > _DEEPEST:
            raise ConfigError(
                f"{place}: {dotted(path[:3])} is nested too deeply; expected at most {_DEEPEST} "
                "levels"
            )
        if len(self.places) > _MOST_VALUES:
            raise _too_many(self._source)
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path, (*inside, node))
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            for index, item in enumerate(node.value):
                self.places[*path, index] = self.place(item.start_mark)
            return [
                self.value(item, (*path, index), (*inside, node))
                for index, item in enumerate(node.value)
            ]
        return _scalar(node, place)

    def _mapping(
        self, node: yaml.MappingNode, path: KeyPath, inside: tuple[yaml.Node, ...]
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            place = self.place(key_node.start_mark)
            key = _scalar(key_node, place)
            if not isinstance(key, str):
                raise ConfigError(
                    f"{place}: got the key {shown(key)}, expected a string: write it in quotes"
                )
            if key in first_lines:
                first = f", first on line {first_lines[key]}" if self._lines else ""
                self.repeated.append(f"{place}: {dotted((*path, key))} is set twice{first}")
            first_lines[key] = key_node.start_mark.line + 1
            self.places[*path, key] = place
            found[key] = self.value(value_node, (*path, key), inside)
        return found


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
    """A loader that knows only the types of YAML 1.2's core schema.

    A document with too many or too deeply nested values is refused while it is read, because
    reading takes a tenth of a millisecond for each value.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._nodes, self._depth = 0, 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooMany
        if self._depth > _DEEPEST_READ:
            raise RecursionError
        self._depth += 1
        try:
            found: yaml.Node | None = super().compose_node(parent, index)
            return found
        finally:
            self._depth -= 1


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


# ------------------------------------------------------------------------------- texts for messages


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


def shown(value: Any) -> str:
    text = (
        json.dumps(value, ensure_ascii=False, default=str)
        if not isinstance(value, str)
        else repr(value)
    )
    return text if len(text) <= 60 else text[:57] + "..."
