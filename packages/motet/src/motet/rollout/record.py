"""Write episodes as JSON lines and read them back unchanged.

Numbers keep every bit, and strings keep every code point. The records are used by `replay`, by
reports, and to compute credit again.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from pydantic import TypeAdapter, ValidationError

from motet.core import Episode, Round, walk
from motet.core.row_values import check_depth, decoded, encoded, has_marks
from motet.errors import ConfigError
from motet.safety.reading import ROWS, read_lines

SCHEMA = 1
"""Increased if an older reader could misread a line."""
MARKED = 1.1
"""The schema of a line whose task has values that JSON does not have (`core.row_values`)."""
_EPISODE = TypeAdapter(Episode)


@dataclass(frozen=True)
class Recorded:
    """The episodes of a file.

    `torn`: the last line is incomplete, as after a killed run, and is left out.
    """

    episodes: tuple[Episode, ...]
    torn: bool


def write_episode(file: TextIO, episode: Episode) -> None:
    """Append one line, or nothing.

    Raises: ConfigError if `task.fields` holds a value that `row_values.kept` does not return.
    """
    try:
        fields = encoded(dict(episode.task.fields))
        schema = MARKED if has_marks(fields) else SCHEMA
        plain = replace(episode, task=replace(episode.task, fields=fields))
        line = json.dumps({"schema": schema, **_EPISODE.dump_python(plain)}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"episode {episode.id} cannot be recorded: {error}; expected values of a row in "
            "task.fields"
        ) from error
    file.write(line + "\n")


def read_episodes(path: Path) -> Recorded:
    """Return all episodes of a file.

    Raises: ConfigError with file and line if a line is broken or has a newer schema.
    """
    episodes: list[Episode] = []
    for number, line in enumerate(read_lines(path, ROWS), start=1):
        where = f"{path}, line {number}"
        if not line.endswith(b"\n") and not _is_json(line):
            return Recorded(tuple(episodes), torn=True)
        try:
            text = line.removesuffix(b"\n").decode()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{where} is not UTF-8: {error}; expected one episode") from error
        episodes.append(episode_of(text, where))
    return Recorded(tuple(episodes), torn=False)


def episode_of(line: str, where: str) -> Episode:
    """Return the episode of a line. Raises: ConfigError that begins with `where`."""
    try:
        fields: Any = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or "schema" not in fields:
        raise ConfigError(
            f"{where}: got {len(line)} characters of something else; expected one episode as a "
            "JSON object with a `schema`"
        )
    schema = fields.pop("schema")
    if schema not in (SCHEMA, MARKED):
        raise ConfigError(
            f"{where}: got schema {schema}; this version of Motet reads schema {SCHEMA}: use the "
            "version that wrote the file"
        )
    try:
        episode = _EPISODE.validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(
            f"{where}: {place}: {first['msg']}; expected an episode of schema {schema}"
        ) from error
    try:
        if schema == SCHEMA:
            check_depth(episode.task.fields)
            return episode
        there = decoded(dict(episode.task.fields))
    except ConfigError as error:
        raise ConfigError(f"{where}: task.fields: {error}") from error
    if not isinstance(there, dict):
        raise ConfigError(f"{where}: task.fields is {there!r}; expected a mapping")
    return replace(episode, task=replace(episode.task, fields=there))


def check_rounds(episode: Episode, where: str) -> None:
    """Raise ConfigError that begins with `where` if the parts of an episode do not fit together, as
    in one that no run wrote."""
    rewarded: set[str] | None = None
    for root in (episode.root, episode.greedy):
        for path, round_ in walk(root) if root is not None else ():
            at = f"{where}: Round {'.'.join(map(str, path)) or 'one'}"
            _check_agents(round_, at)
            for outcome in (*round_.outcomes, *round_.without):
                if outcome.fault is not None:
                    continue
                rewarded = set(outcome.rewards) if rewarded is None else rewarded
                if not outcome.rewards or set(outcome.rewards) != rewarded:
                    raise ConfigError(
                        f"{at}: an outcome rewards {', '.join(outcome.rewards) or 'nobody'}; "
                        "expected the agents that every other one rewards"
                    )


def _check_agents(round_: Round, at: str) -> None:
    if round_.prompts.keys() != round_.samples.keys():
        raise ConfigError(
            f"{at}: prompts are of {', '.join(round_.prompts) or 'nobody'}, samples of "
            f"{', '.join(round_.samples) or 'nobody'}; expected the same agents"
        )
    for outcome in (*round_.outcomes, *round_.without):
        for agent, pick in outcome.picks.items():
            count = len(round_.samples.get(agent, ()))
            if not 0 <= pick < count:
                raise ConfigError(
                    f"{at}: an outcome picks sample {pick} of {agent}; expected one of {count}"
                )


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
