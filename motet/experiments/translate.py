"""A published config -> Motet's own: layers are read into one word per key, later layers over earlier ones, then put in place.

Every value that arrives remembers where it was said and under which spelling, so that Motet's own complaints name both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motet.config.yaml import Document, KeyPath, dotted, place_of
from motet.errors import ConfigError
from motet.experiments.aliases import NO_CRITIC
from motet.experiments.rows import Goes, Joins, Refused, Told, spellings_of
from motet.experiments.trainers import TRAINERS, Trainer
from motet.experiments.words import Placed, Said, Words
from motet.plugins import nearest

OWN = "motet"
"""Keys below this are Motet's own, and lie over what is translated."""


@dataclass(frozen=True)
class Translation:
    """Motet's config as plain values with the place of each, overrides over it, the folder of run folders, and what to tell."""

    config: Document
    overrides: tuple[Document, ...]
    runs: Path
    notes: tuple[str, ...]


def translate(layers: Sequence[Document], trainer: Trainer, name: str) -> Translation:
    """What layers of published keys mean, later ones over earlier ones; `name` is the run's.

    Raises: ConfigError naming the place, the key as it was written, and what to do.
    """
    reader = _Reader(trainer)
    for layer in layers:
        reader.read(layer)
    words = Words(reader.said)
    idle = trainer.form.idle(words)
    run = trainer.form.folder(words, name)
    rows = [(row.to, row.spellings[0]) for row in trainer.form.keys if isinstance(row, Goes)]
    alone = [Placed(to, words[word].value, words[word]) for to, word in rows if words.said(word) and word not in idle]
    placed = [Placed("name", run.name), *trainer.form.placed(words, trainer), *alone]
    own = tuple(_document([Placed(said.key.removeprefix(f"{OWN}."), said.value, said)]) for said in reader.own)
    notes = dict.fromkeys([*reader.notes, *idle.values()])
    return Translation(_document(placed), own, run.parent, tuple(notes))


def _document(placed: Sequence[Placed]) -> Document:
    data: dict[str, Any] = {}
    places: dict[KeyPath, str] = {}
    for one in placed:
        *above, last = path = tuple(one.to.split("."))
        inside = data
        for key in above:
            inside = inside.setdefault(key, {})
        inside[last] = one.value
        if one.said is not None:
            places[path] = f"{one.said.place}: {one.said.key}"
            if above:  # whatever is wrong with the section that it makes
                places.setdefault(tuple(above), places[path])
    return Document(data, places)


# ---------------------------------------------------------------------------------------------------- reading


class _Reader:
    """Layers of published keys -> one word per row of the table; what a later layer says lies over what an earlier one said."""

    def __init__(self, trainer: Trainer) -> None:
        self.said: dict[str, Said] = {}
        """The row's first spelling -> what was said last, its value read."""
        self.own: list[Said] = []
        """Motet's own keys, in order."""
        self.notes: list[str] = []
        self._trainer = trainer
        self._rows = {
            spelling: (rank, row)
            for row in trainer.form.keys
            for rank, spelling in enumerate(spellings_of(row, trainer.sections))
        }
        self._sections = {spelling.rpartition(".")[0] for spelling in self._rows}

    def read(self, layer: Document) -> None:
        found: dict[str, list[tuple[int, Said]]] = {}
        for said in self._leaves(layer.data, (), layer.places):
            if said.key.startswith(f"{OWN}."):
                self.own.append(said)
                continue
            if said.key not in self._rows:  # a section that is null takes back all that was said in it
                self.said = {word: one for word, one in self.said.items() if not one.key.startswith(f"{said.key}.")}
                continue
            rank, row = self._rows[said.key]
            if row.critic and not self._trainer.has_critic:
                if _among(said.value, (None, False)):
                    continue
                raise said.complaint(f"{self._trainer.algorithm} {NO_CRITIC}")
            match row:
                case Refused() if not _among(said.value, row.unless):
                    raise said.complaint(row.why)
                case Told() if not _among(said.value, row.quiet):
                    self.notes.append(f"{said.key}: {row.why}")
                case Joins() if said.value is None:
                    self.said.pop(row.spellings[0], None)
                case Goes() | Joins():
                    found.setdefault(row.spellings[0], []).append((rank, _read(said, row)))
        for word, several in found.items():
            self.said[word] = self._first([said for _, said in sorted(several, key=lambda pair: pair[0])])

    def _leaves(self, data: Mapping[str, Any], at: KeyPath, places: Mapping[KeyPath, str]) -> Iterator[Said]:
        for name, value in data.items():
            path = (*at, name)
            said = Said(value, dotted(path), place_of(places, path))
            own = path[0] == OWN
            if isinstance(value, Mapping) and (said.key in self._sections or (own and (value or not at))):
                yield from self._leaves(value, path, places)
            elif said.key in self._rows or (own and len(path) > 1) or (value is None and said.key in self._sections):
                yield said
            else:
                raise self._unknown(said)

    def _unknown(self, said: Said) -> ConfigError:
        section = said.key.partition(".")[0]
        others = [name for name, other in TRAINERS.items() if section in other.sections and other != self._trainer]
        if others:
            mine = "".join(
                f"this trainer reads the section {one}: say it there, or " for one in self._trainer.sections[:1]
            )
            return said.complaint(f"{mine}use train_{others[0]}.py")
        return said.complaint(f"unknown key{nearest(said.key, self._rows)}; Motet's own keys are {OWN}.KEY")

    def _first(self, several: Sequence[Said]) -> Said:
        """Of several spellings in one layer the first of the table, if one is the trainer's own and one is common to all."""
        chosen, *others = several
        for other in others:
            if other.value == chosen.value:
                continue
            if self._is_its_own(other) == self._is_its_own(chosen):
                raise other.complaint(f"is another spelling of {chosen.key}, and says something else: keep one")
            self.notes.append(f"{other.key} gives way to {chosen.key}")
        return chosen

    def _is_its_own(self, said: Said) -> bool:
        return said.key.partition(".")[0] in self._trainer.sections


def _read(said: Said, row: Goes | Joins) -> Said:
    try:
        return replace(said, value=row.read(said.value))
    except ValueError as error:
        raise said.complaint(f"got {said.value!r}, {error}") from error


def _among(value: Any, quiet: tuple[Any, ...]) -> bool:
    """Whether it is one of them, where True is not 1."""
    return any(value == one and type(value) is type(one) for one in quiet)
