"""The answers of policies behind endpoints, by what was asked: `answers.jsonl` of a run.

A run that goes on after a kill, and a replay, ask the same again. They find the answers here, so
they need no server and pay nothing. One line per answer, as JSON. A line that a kill cut off is not
an answer, and the next one takes its place.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from motet.clients.endpoint import ChatAnswer
from motet.core import StopReason, ToolCall, Usage
from motet.core.records import as_json
from motet.errors import ConfigError
from motet.safety.reading import LINE, ROWS, open_regular, read_lines


class KeptAnswer(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(strict=True, extra="forbid")

    key: str
    text: str
    stop: StopReason
    prompt_tokens: NonNegativeInt | None
    completion_tokens: NonNegativeInt | None
    calls: tuple[ToolCall, ...] = ()
    unread: str = ""


def key_of(request: Mapping[str, Any], sampling_key: int) -> str:
    """Return the name of an answer: a hash of its request, which has the model, the messages and
    all parameters but neither address nor key of the server, and of the completion's own key."""
    asked = json.dumps([request, sampling_key], sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()


class AnswerFile:
    """Finds and keeps answers. Only their places are in memory.

    One thread at a time may use it, and one process at a time may write.
    """

    def __init__(self, path: Path, *, writes: bool = False) -> None:
        """Read which answers there are. Without `writes`, `keep` does nothing.

        Raises: ConfigError that names a broken line.
        """
        self._path, self.writes = path, writes
        self._places: dict[str, int] = {}
        """Name of an answer -> where its line begins, in bytes."""
        self._end = 0
        lines = read_lines(path, ROWS) if path.exists() else ()
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n"):  # only the last line can have none
                self._places[_read(line, f"{path}, line {number}").key] = self._end
                self._end += len(line)

    def find(self, key: str) -> ChatAnswer | None:
        """Return an answer, or None if it is not there. Raises: ConfigError; OSError."""
        if key not in self._places:
            return None
        with open_regular(self._path, ROWS) as file:
            file.seek(self._places[key])
            found = _read(file.readline(LINE), f"{self._path}, at byte {file.tell()}")
        usage = Usage(found.prompt_tokens, found.completion_tokens)
        return ChatAnswer(found.text, found.stop, usage, found.calls, found.unread)

    def keep(self, key: str, answer: ChatAnswer) -> None:
        """Append an answer. A kill leaves the whole line or a part that is not read.

        Raises: OSError.
        """
        if not self.writes:
            return
        said: dict[str, Any] = {
            "key": key,
            "text": answer.text,
            "stop": answer.stop,
            "prompt_tokens": answer.usage.prompt_tokens,
            "completion_tokens": answer.usage.completion_tokens,
        }
        if answer.calls:
            said["calls"] = as_json(answer.calls)
        if answer.unread:
            said["unread"] = answer.unread
        line = json.dumps(said).encode() + b"\n"
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
            with os.fdopen(handle, "wb") as file:
                file.truncate(self._end)
                file.seek(self._end)
                file.write(line)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error
        self._places[key] = self._end
        self._end += len(line)


def _read(line: bytes, where: str) -> KeptAnswer:
    try:
        return KeptAnswer.model_validate_json(line)
    except ValidationError as error:
        raise ConfigError(
            f"{where}: got {line[:60]!r}; expected an answer that Motet wrote: delete the line, so "
            "that its question is asked again"
        ) from error
