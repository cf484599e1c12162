"""Read a published config: merge its layers, check every key, and convert the values."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from motet.config.yaml import Document, KeyPath, dotted, place_of
from motet.errors import ConfigError
from motet.user_code.plugins import nearest
from motet_published.keys import Combined, KeyTable, NoEffect, Renamed, Unsupported, spellings_of

OWN = "motet"
"""The section of Motet's own keys, which replace translated values."""


@dataclass(frozen=True)
class PublishedValue:
    """A value, its key as it was written, and its place: `configs/x.yaml:12`, or an override."""

    value: Any
    key: str
    place: str

    def error(self, text: str) -> ConfigError:
        return ConfigError(f"{self.place}: {self.key}: {text}")


class PublishedConfig:
    """The layers of a published config, merged into one value per key."""

    def __init__(
        self,
        keys: KeyTable,
        sections: Mapping[str, tuple[str, ...]],
        other_trainers: Mapping[str, str],
    ) -> None:
        """Create an empty config.

        Args:
            keys: The table of the trainer's keys.
            sections: Section in the table -> its names in a config.
            other_trainers: The section of another trainer -> the name of that trainer.
        """
        self.keys = keys
        self.values: dict[str, PublishedValue] = {}
        """Key in the table -> the last value set for it, converted."""
        self.own: list[Document] = []
        """Motet's own keys: one document per layer that has them."""
        self._warnings: list[str] = []
        self._no_effect: dict[str, tuple[PublishedValue, str]] = {}
        """Key in the table without effect -> its last value, and why."""
        self._refused: dict[str, tuple[PublishedValue, str]] = {}
        """Key that is unsupported or unknown -> its last value, and why. A later layer may take it
        back with null."""
        self._own_sections = sections.get("trainer", ())
        self._other_trainers = other_trainers
        self._spellings = {
            spelling: (rank, key)
            for key, rule in keys.items()
            for rank, spelling in enumerate(spellings_of(key, rule, sections))
        }
        self._sections = {spelling.rpartition(".")[0] for spelling in self._spellings}

    @property
    def notes(self) -> list[str]:
        """Messages for the user."""
        return [
            *self._warnings,
            *(f"{written.key}: {why}" for written, why in self._no_effect.values()),
        ]

    def refuse_unsupported(self) -> None:
        """Raise ConfigError if the layers together set an unsupported or unknown key."""
        for written, why in self._refused.values():
            raise written.error(why)

    def add_layer(self, layer: Document) -> None:
        """Read a layer of the config. Its values replace those of earlier layers.

        Unsupported and unknown keys are remembered: `refuse_unsupported` raises, after the last
        layer.

        Raises:
            ConfigError: names the place, the key as it was written, and what to do.
        """
        data = dict(layer.data)
        if isinstance(data.get(OWN), Mapping):
            places = {
                path[1:]: f"{place}: {dotted(path)}"
                for path, place in layer.places.items()
                if path[:1] == (OWN,)
            }
            self.own.append(Document(data.pop(OWN), places))
        self._warnings += layer.warnings
        several: dict[str, list[tuple[int, PublishedValue]]] = {}
        for written in self._flattened(data, (), layer.places):
            if written.key not in self._spellings:
                if written.key in self._sections and written.value is None:
                    self._unset_section(written.key)
                else:
                    self._take_unknown(written)
                continue
            rank, key = self._spellings[written.key]
            match self.keys[key]:
                case Unsupported(why, allowed):
                    self._refused.pop(key, None)
                    if not _among(written.value, (None, *allowed)):
                        self._refused[key] = (written, why)
                case NoEffect(why, silent):
                    self._no_effect.pop(key, None)
                    if not _among(written.value, (None, *silent)):
                        self._no_effect[key] = (written, why)
                case Combined() if written.value is None:
                    self.values.pop(key, None)
                case Renamed() | Combined() as rule:
                    several.setdefault(key, []).append((rank, _converted(written, rule)))
        for key, ranked in several.items():
            self.values[key] = self._first(
                [value for _, value in sorted(ranked, key=lambda pair: pair[0])]
            )

    def _flattened(
        self, data: Mapping[str, Any], above: KeyPath, places: Mapping[KeyPath, str]
    ) -> Iterator[PublishedValue]:
        """Yield every key that is set, known or not, and every section that is null."""
        for name, value in data.items():
            path = (*above, name)
            written = PublishedValue(value, dotted(path), place_of(places, path))
            is_section = written.key in self._sections
            if is_section and isinstance(value, Mapping):
                yield from self._flattened(value, path, places)
            else:
                yield written

    def _take_unknown(self, written: PublishedValue) -> None:
        """Remember a key that is in no table. With null it takes back what an earlier layer set."""
        if written.value is not None or written.key not in self._refused:
            self._refused[written.key] = (written, self._why_unknown(written.key))
        else:
            del self._refused[written.key]

    def _unset_section(self, section: str) -> None:
        inside = f"{section}."
        self.values = {
            key: value for key, value in self.values.items() if not value.key.startswith(inside)
        }
        for marked in (self._refused, self._no_effect):
            for key in [key for key, (value, _) in marked.items() if value.key.startswith(inside)]:
                del marked[key]

    def _why_unknown(self, key: str) -> str:
        section = key.partition(".")[0]
        if section in self._other_trainers:
            mine = "".join(
                f"this trainer reads the section {own}: set the key there, or "
                for own in self._own_sections[:1]
            )
            return f"{mine}use train_{self._other_trainers[section]}.py"
        return f"unknown key{nearest(key, self._spellings)}; Motet's own keys are {OWN}.KEY"

    def _first(self, spellings: list[PublishedValue]) -> PublishedValue:
        """Choose between several spellings of a key in one layer: the first of the table.

        Raises:
            ConfigError: another spelling has a different value. It is only a note if exactly one of
                the two is in the trainer's own section.
        """
        chosen, *others = spellings
        for other in others:
            if other.value == chosen.value:
                continue
            if self._in_own_section(other) == self._in_own_section(chosen):
                raise other.error(
                    f"is another name of {chosen.key} but has a different value: keep one"
                )
            self._warnings.append(f"{other.key} is overridden by {chosen.key}")
        return chosen

    def _in_own_section(self, written: PublishedValue) -> bool:
        return written.key.partition(".")[0] in self._own_sections


def _converted(written: PublishedValue, rule: Renamed | Combined) -> PublishedValue:
    try:
        return replace(written, value=rule.convert(written.value))
    except ValueError as error:
        raise written.error(f"got {written.value!r}, {error}") from error


def _among(value: Any, values: tuple[Any, ...]) -> bool:
    """Test whether `value` is in `values`. Here, True is not equal to 1."""
    return any(value == one and type(value) is type(one) for one in values)
