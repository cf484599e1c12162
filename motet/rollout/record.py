"""Episodes as JSON lines, and back: an episode read back is equal to the one written.

Numbers keep every bit, texts every code point. Records are for `replay`, for reports, and for crediting a run again.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pydantic import TypeAdapter, ValidationError

from motet.core import Episode
from motet.errors import ConfigError
from motet.reading import ROWS, read_text

SCHEMA = 1
"""Raised when a line of an older reader's could be misread."""
_EPISODE = TypeAdapter(Episode)


@dataclass(frozen=True)
class Recorded:
    """What a file held. `torn`: its last line was cut short, as a killed run leaves it, and is left out."""

    episodes: tuple[Episode, ...]
    torn: bool


def write_episode(file: TextIO, episode: Episode) -> None:
    """Adds one line, or nothing. Raises: ConfigError where `task.fields` holds what JSON cannot say (a NaN, a date)."""
    try:
        line = json.dumps({"schema": SCHEMA, **_EPISODE.dump_python(episode)}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"episode {episode.id} cannot be recorded: {error}; expected plain JSON values in task.fields"
        ) from error
    file.write(line + "\n")


def read_episodes(path: Path) -> Recorded:
    """All episodes of a file. Raises: ConfigError naming file and line where a line is broken or of a newer schema."""
    lines = read_text(path, ROWS).split("\n")
    tail = lines.pop()
    episodes = [_read(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)]
    if tail and _is_json(tail):
        return Recorded((*episodes, _read(tail, f"{path}, line {len(lines) + 1}")), torn=False)
    return Recorded(tuple(episodes), torn=bool(tail))


def _read(line: str, where: str) -> Episode:
    fields: Any = json.loads(line) if _is_json(line) else None
    if not isinstance(fields, dict) or "schema" not in fields:
        raise ConfigError(f"{where}: got {line[:60]!r}; expected one episode as a JSON object with a `schema`")
    schema = fields.pop("schema")
    if schema != SCHEMA:
        raise ConfigError(
            f"{where}: got schema {schema}; this version reads schema {SCHEMA}: use the version that wrote it"
        )
    try:
        return _EPISODE.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{where}: {place}: {first['msg']}; expected an episode of schema {SCHEMA}") from error


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
