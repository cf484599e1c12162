"""Build Motet's config from a published one: `Translation`, which the trainers' functions fill."""

from pathlib import Path
from typing import Any

from motet.config.yaml import Document, KeyPath
from motet.errors import ConfigError
from motet_published.keys import Renamed
from motet_published.published import PublishedConfig


class Translation:
    """A published config, and Motet's config as far as it is translated.

    config["agents"] and config.get("agents") read a published key; config.set(...) and
    config.copy(...) set keys of Motet's config.

    Every value remembers where it was set and under which spelling, so that Motet's own error
    messages can name both.
    """

    def __init__(self, published: PublishedConfig) -> None:
        self.published = published
        self.values = published.values
        """Published key, as in the table -> its value, and the key as it was written."""
        self.runs = Path("runs")
        """The folder that holds the run folders."""
        self._data: dict[str, Any] = {"train": {"max_step_kl": None}}
        """No published trainer bounds its steps."""
        self._places: dict[KeyPath, str] = {}
        self._sources: dict[KeyPath, str] = {}
        """Key of Motet's config -> the published key that it was set from."""
        self._ignored: dict[str, str] = {}
        """Published key without effect -> the message for the user."""
        self._told: list[str] = []

    @property
    def config(self) -> Document:
        """Motet's config as plain values, with the place of each."""
        return Document(self._data, self._places)

    @property
    def overrides(self) -> tuple[Document, ...]:
        """Motet's own keys in the published config. They replace values of `config`."""
        return tuple(self.published.own)

    @property
    def notes(self) -> tuple[str, ...]:
        """Messages for the user."""
        return tuple(dict.fromkeys([*self.published.notes, *self._ignored.values(), *self._told]))

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def __getitem__(self, key: str) -> Any:
        """Return the value of a published key. Raises ConfigError if it is not set."""
        if key not in self.values:
            raise ConfigError(f"{key.removeprefix('trainer.')} is missing; it has no default")
        return self.values[key].value

    def get(self, key: str, default: Any = None) -> Any:
        return self.values[key].value if key in self.values else default

    def error(self, key: str, text: str) -> ConfigError:
        """Return an error about the value of a published key that is set."""
        return self.values[key].error(text)

    def set(self, path: str, value: Any, source: str | None = None) -> None:
        """Set a key of Motet's config, such as `algorithm.gamma`.

        `source` is the published key that the value comes from. If that key is not set, the value
        is a default.
        """
        *sections, name = keys = tuple(path.split("."))
        inside = self._data
        for section in sections:
            inside = inside.setdefault(section, {})
        inside[name] = value
        if source in self.values:
            written = self.values[source]
            self._sources[keys] = source
            self._places[keys] = f"{written.place}: {written.key}"
            if sections:  # errors about the section as a whole need a place too
                self._places.setdefault(tuple(sections), self._places[keys])

    def drop(self, keys: KeyPath, why: str) -> bool:
        """Remove a key of Motet's config, and return whether it was set.

        If nothing else was set from the same published key, note why that key has no effect.
        """
        *sections, name = keys
        inside: Any = self._data
        for section in sections:
            inside = inside[section] if section in inside else {}
        if name not in inside:
            return False
        del inside[name]
        source = self._sources.pop(keys, None)
        if source is not None and source not in self._sources.values():
            self.ignore(f"{{key}} has no effect, because {why}", source)
        return True

    def copy(self, key: str, *paths: str) -> None:
        """Set keys of Motet's config to the value of a published key, if it is set."""
        if key in self:
            for path in paths:
                self.set(path, self[key], key)

    def ignore(self, why: str, *keys: str) -> None:
        """Note that published keys have no effect, if they are set.

        `{key}` in `why` becomes the key as it was written.
        """
        for key in keys:
            if key in self:
                written = self.values[key].key
                self._ignored[key] = why.replace("{key}", written)

    def tell(self, text: str) -> None:
        """Add a message for the user that is about several keys."""
        self._told.append(text)

    def copy_renamed(self) -> None:
        """Set what the table alone translates, except for ignored keys."""
        for key, rule in self.published.keys.items():
            if isinstance(rule, Renamed) and key not in self._ignored:
                self.copy(key, rule.to)
