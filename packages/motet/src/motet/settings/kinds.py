"""Settings of several kinds, each with keys of its own: tagged unions of records.

The kind is the value of the key `kind`, or the one key that only this kind has (`path` or
`embedded`). A config may have keys of other kinds that are null or at their default, such as
`embedded: null`: they are dropped.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, ValidationError
from pydantic_core import (
    CoreSchema,
    InitErrorDetails,
    PydanticCustomError,
    PydanticKnownError,
    core_schema,
)

from motet.errors import shortened
from motet.settings.base import Settings

TAG = "record: "
"""Begins the tags that pydantic puts into the locations of errors, so that no tag is taken for a
key."""


class Kind(Settings):
    """A record that is chosen by its `kind`, which always counts as set."""

    kind: str
    """The name of the kind."""

    def model_post_init(self, context: Any) -> None:
        self.model_fields_set.add("kind")


def tupled(value: Any) -> Any:
    """Convert lists to tuples.

    Behind a validator that runs before, strict validation sees Python values and accepts no list
    where a tuple is expected.
    """
    if isinstance(value, Mapping):
        return {key: tupled(item) for key, item in value.items()}
    return tuple(tupled(item) for item in value) if isinstance(value, list | tuple) else value


def validation_error(problems: Sequence[tuple[tuple[str, ...], str]]) -> ValidationError:
    """Build a ValidationError for these keys. Pydantic merges it with its own errors."""
    details = [
        InitErrorDetails(
            type=PydanticCustomError("motet", "{text}", {"text": text}), loc=location, input=None
        )
        for location, text in problems
    ]
    return ValidationError.from_exception_data("config", details)


@dataclass(frozen=True, eq=False)
class ByKind:
    """Annotates a union of records that are told apart by the key `kind`."""

    kinds: Mapping[str, type[Settings]]
    default: str | None = None
    """The kind if `kind` is missing."""
    other: type[Settings] | None = None
    """The record of every further kind."""

    def kind_of(self, said: Mapping[str, Any]) -> str:
        """Return the kind of these keys and values. Raises: ValidationError if it is not known."""
        kind = said.get("kind", self.default)
        if isinstance(kind, str) and (kind in self.kinds or self.other is not None):
            return kind
        got = "no kind" if kind is None else f"kind {_shown(kind)}"
        raise validation_error([((), f"got {got}, expected kind: {_either(self.kinds)}")])

    def called(self, kind: str) -> str:
        """Return how a config chooses the kind."""
        return f"kind: {kind}"

    def _only_own_keys(self, value: Any) -> Any:
        """Drop what says nothing about the chosen kind. Raises: ValidationError if more is said."""
        if isinstance(value, Settings):
            return value
        if not isinstance(value, Mapping):
            raise PydanticKnownError("model_type", {"class_name": "Settings"})
        kind = self.kind_of(value)
        own = self.kinds.get(kind, self.other)
        assert own is not None
        readers = {
            key: [name for name, record in self.kinds.items() if key in record.model_fields]
            for key in value
            if key not in own.model_fields
        }
        wrong = [
            ((key,), self._of_another_kind(kind, own, key, value[key], names))
            for key, names in readers.items()
            if names and not any(is_unset(value[key], self.kinds[name], key) for name in names)
        ]
        if wrong:
            raise validation_error(wrong)
        return tupled({key: item for key, item in value.items() if not readers.get(key)})

    def _of_another_kind(
        self, kind: str, own: type[Settings], key: str, value: Any, readers: Sequence[str]
    ) -> str:
        keys = ", ".join(name for name in own.model_fields if name != "kind") or "none"
        use = _either([self.called(reader) for reader in readers])
        return (
            f"got {_shown(value)} with {self.called(kind)}, which has no {key} (its keys: {keys}): "
            f"use {use}, or drop {key}"
        )

    def _tag_of(self, value: Any) -> str:
        if not isinstance(value, Settings):
            value = self.kinds.get(self.kind_of(value), self.other)
        return _tag(value if isinstance(value, type) else type(value))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        records = [*self.kinds.values(), *([] if self.other is None else [self.other])]
        union = core_schema.tagged_union_schema(
            {_tag(record): handler.generate_schema(record) for record in records}, self._tag_of
        )
        return core_schema.no_info_before_validator_function(self._only_own_keys, union)


@dataclass(frozen=True, eq=False)
class ByKey(ByKind):
    """Annotates a union of records, each with a key that no other has, such as `path`."""

    def kind_of(self, said: Mapping[str, Any]) -> str:
        found = [key for key in self.kinds if not is_unset(said.get(key), self.kinds[key], key)]
        if len(found) == 1:
            return found[0]
        got = " and ".join(found) or "none"
        unknown = [
            key for key in said if all(key not in k.model_fields for k in self.kinds.values())
        ]
        if not found and unknown:
            got += f", but {', '.join(map(str, unknown))}"
        text = f"got {got}, expected exactly one of {_either(self.kinds)}"
        if not found and said and not unknown:
            text += "; if this config extends another one, that has no entry of this name"
        raise validation_error([((), text)])

    def called(self, kind: str) -> str:
        return kind


def is_unset(value: Any, record: type[Settings], key: str) -> bool:
    """Return whether a value is null, or the default of this key of `record`."""
    default = record.model_fields[key].get_default(call_default_factory=True)
    return value is None or tupled(value) == default


def _tag(record: type) -> str:
    return f"{TAG}{record.__name__}"


def _shown(value: Any) -> str:
    return shortened(json.dumps(value, ensure_ascii=False, default=str), 60, 20)


def _either(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last
