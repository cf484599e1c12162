"""All keys of a run config: what each takes, its default, and its docstring in the schema.

A section is one record of the schema. A record of several kinds, such as `algorithm.credit`, has
one section per kind.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic.fields import FieldInfo

from motet.config.schema import RunKeys
from motet.settings import Settings
from motet.settings.kinds import ByKind
from motet.user_code.installed import installed, load, package_of

NAMED = {"models": "NAME", "policies": "NAME", "team": "AGENT", "agents": "AGENT"}
"""Key that holds a mapping -> the word that stands for a name of the user's choice."""
WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
BOUNDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


@dataclass(frozen=True)
class ConfigKey:
    """One key of a section."""

    key: str
    takes: str
    default: str
    meaning: str


@dataclass(frozen=True)
class Section:
    """The keys of one record of the schema."""

    path: str
    """Where the record stands in a config, such as `models.NAME`; empty for the config itself."""
    kind: str
    """How a config chooses this record among several, such as `kind: group`. Empty for one."""
    about: str
    rows: tuple[ConfigKey, ...]

    @property
    def title(self) -> str:
        where = f"`{self.path}`" if self.path else "The config"
        return f"{where} with `{self.kind}`" if self.kind else where


def sections() -> list[Section]:
    """Return all sections of a run config, each before those inside it."""
    return list(_sections(RunKeys, "", ""))


def keys() -> set[str]:
    """Return the whole path of every key, such as `policies.NAME.lora.rank`."""
    return {
        f"{section.path}.{row.key}".lstrip(".") for section in sections() for row in section.rows
    }


def _sections(record: type[Settings], path: str, kind: str) -> Iterator[Section]:
    rows = tuple(_row(key, field) for key, field in record.model_fields.items())
    yield Section(path, kind, _paragraphs(record.__doc__), rows)
    for key, field in record.model_fields.items():
        below = f"{path}.{key}".lstrip(".")
        for inner, how, more in _records(field.annotation, field.metadata, key):
            yield from _sections(inner, f"{below}{more}", how)


def _records(
    annotation: Any, metadata: list[Any], key: str, more: str = ""
) -> Iterator[tuple[type[Settings], str, str]]:
    """Yield the records in the type of a key, how each is chosen, and what its path has besides."""
    chosen = next((one for one in metadata if isinstance(one, ByKind)), None)
    if chosen is not None:
        for record, kinds in _by_record(chosen).items():
            yield record, " or ".join(kinds), more
        return
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        yield annotation, "", more
        return
    parts = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        yield from _records(parts[0], list(annotation.__metadata__), key, more)
    elif get_origin(annotation) in (dict, Mapping):
        yield from _records(parts[1], [], key, f"{more}.{NAMED.get(key, 'NAME')}")
    elif get_origin(annotation) is not Literal:
        for part in parts:
            yield from _records(part, [], key, more)


def _by_record(chosen: ByKind) -> Mapping[type[Settings], list[str]]:
    """Return record -> how a config chooses it."""
    others = [] if chosen.other is None else [("./file.py:NAME", chosen.other)]
    found: dict[type[Settings], list[str]] = {}
    for kind, record in [*chosen.kinds.items(), *others]:
        is_first = record not in found
        name = chosen.called(kind) if is_first else kind
        found.setdefault(record, []).append(name)
    return found


def _row(key: str, field: FieldInfo) -> ConfigKey:
    default = "required" if field.is_required() else _default(field)
    return ConfigKey(
        key, _takes(field.annotation, field.metadata), default, _line(field.description)
    )


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Settings):
        return "its own defaults"
    if value in ((), {}, []):
        return "empty"
    return f"`{json.dumps(value, ensure_ascii=False, default=str)}`"


def _takes(annotation: Any, metadata: list[Any]) -> str:
    """Return what a key takes, in words."""
    parts = get_args(annotation)
    if hasattr(annotation, "__metadata__"):
        return _takes(parts[0], [*annotation.__metadata__, *metadata])
    if any(isinstance(one, ByKind) for one in metadata) or _is_record(annotation):
        return "a section, below"
    origin = get_origin(annotation)
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return _either(_takes(part, metadata) for part in parts if part is not NoneType) + (
            ", or null" if NoneType in parts else ""
        )
    if origin in (tuple, list):
        return f"a list: {_takes(parts[0], [])}"
    if origin in (dict, Mapping):
        return f"a mapping: {_takes(parts[1], [])}"
    return f"{WORDS.get(annotation, 'any value')}{_bounds(metadata)}"


def _is_record(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def _either(words: Iterator[str]) -> str:
    return " or ".join(dict.fromkeys(words))


def _bounds(metadata: list[Any]) -> str:
    """Return the bounds of a number, such as `, above 0 and at most 1`."""
    grouped = [part for one in metadata for part in getattr(one, "metadata", [one])]
    found = [
        f"{word} {getattr(one, name):g}"
        for one in grouped
        if isinstance(
            one, annotated_types.Gt | annotated_types.Ge | annotated_types.Lt | annotated_types.Le
        )
        for name, word in BOUNDS.items()
        if hasattr(one, name)
    ]
    return f", {' and '.join(found)}" if found else ""


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(_line(part) for part in (text or "").split("\n\n"))


def options_of_environments() -> list[Section]:
    """Return the options of every installed environment that has some."""
    found = []
    for name, point in installed("environments").items():
        options = getattr(load("environments", name), "Options", None)
        if options is None or not options.model_fields:
            continue
        rows = tuple(_row(key, field) for key, field in options.model_fields.items())
        about = f"{_paragraphs(options.__doc__)}\n\nIn the package {package_of(point)}."
        found.append(Section("environment", f"name: {name}", about, rows))
    return found
