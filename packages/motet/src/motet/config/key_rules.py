"""Rules about config keys that have no effect, applied to keys that somebody has written.

A key counts as written if its value is not the default.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from motet.config.yaml import KeyPath, dotted
from motet.settings import Settings

KeyRules: TypeAlias = Sequence[tuple[str, bool, str, str]]
"""(key, whether it has no effect, why, what to change so that it has one)."""


@dataclass(frozen=True)
class KeyWithoutEffect:
    """A key, its value, why the value has no effect, and how to fix it."""

    path: KeyPath
    value: Any
    why: str
    fix: str

    def __str__(self) -> str:
        return (
            f"{dotted(self.path)}: got {shown(self.value)}, which has no effect, because "
            f"{self.why}: {self.fix}"
        )


def keys_by_rules(
    rules: KeyRules, section: KeyPath, written: Settings, default: Settings
) -> Iterator[KeyWithoutEffect]:
    """Apply the rules to the keys of `written` that differ from `default`; the first that holds
    counts."""
    found: set[str] = set()
    for key, holds, why, instead in rules:
        value, usual = getattr(written, key), getattr(default, key)
        if holds and value != usual and key not in found:
            found.add(key)
            fix = f"leave it at {shown(usual)}, or {instead}"
            yield KeyWithoutEffect((*section, key), value, why, fix)


def replaced_keys(
    section: KeyPath, common: Settings, own: dict[str, Any]
) -> Iterator[KeyWithoutEffect]:
    """Yield the common keys that everyone replaces with their own. `own` is settings by name."""
    fields = [one.model_fields_set if one is not None else set() for one in own.values()]
    everywhere = set.intersection(*fields) if fields else set()
    why = f"it is replaced in {' and '.join(own)}"
    rules = [
        (key, key in everywhere, why, "drop one of those") for key in type(common).model_fields
    ]
    yield from keys_by_rules(rules, section, common, type(common)())


def shown(value: Any) -> str:
    """Return a value as in YAML."""
    return value if isinstance(value, str) else json.dumps(value)
