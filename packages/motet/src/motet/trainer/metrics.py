"""Write the metrics of a run as JSON lines, and pass them to trackers."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Self

from motet.errors import ConfigError, MotetError
from motet.safety.reading import ROWS, read_lines
from motet.trainer.run_folder import write_whole, writing
from motet.trainer.trackers import Tracker

STAGES = (
    "play",
    "tasks",
    "fit",
    "score",
    "credit",
    "pack",
    "learn",
    "publish",
    "evaluate",
    "warmup",
    "time",
    "run",
)
_NAME = re.compile(rf"({'|'.join(STAGES)})/[a-z][a-z0-9_]*(/[^/]+)*")


class MetricsWriter:
    """Writes metrics.jsonl, one object per line: `step` first, then the names in order.

    Names have the form `stage/name`, or `stage/name/WHO` for one agent or policy. Only `time/`
    metrics depend on the clock; all others are the same bytes in every repetition of a run. Metrics
    without a value are left out. The warm-up has a file of its own, and its own steps.
    """

    def __init__(self, path: Path, trackers: Sequence[Tracker] = (), keep: int = 0) -> None:
        """Open the file. Keep the first `keep` lines of an interrupted run and drop the rest.

        Raises: ConfigError like `kept_lines`, unless the file does not exist any more.
        """
        kept = kept_lines(path, keep) if path.exists() else ""
        self.path = path
        write_whole(path, kept)
        self.lines = kept.count("\n")
        self._digest = hashlib.sha256(kept.encode())
        self._file = path.open("a", encoding="utf-8")
        self._trackers = trackers

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write one line.

        Raises: MotetError if a name has the wrong form, or a value is not finite.
        """
        for name, value in values.items():
            if not _NAME.fullmatch(name):
                raise MotetError(
                    f"metric {name!r}: expected stage/name or stage/name/WHO, with a stage of "
                    f"{', '.join(STAGES)}"
                )
            if not isfinite(value):
                raise MotetError(
                    f"metric {name} is {value} at step {step}; expected a finite number: omit a "
                    "metric without a value"
                )
        line = _line({"step": step, **{name: values[name] for name in sorted(values)}})
        with writing(self.path):
            self._file.write(line)
            self._file.flush()
        self._digest.update(line.encode())
        self.lines += 1
        for tracker in self._trackers:
            tracker.write(step, values)

    @property
    def digest(self) -> str:
        """The hash of all lines so far. Checkpoints store it, to detect changed lines."""
        return self._digest.hexdigest()

    def close(self) -> None:
        with writing(self.path):  # retries what a full disk did not accept
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return all complete lines in order. A last line that was cut off by a kill is left out.

    Raises: ConfigError that names a line which is not valid.
    """
    return [
        _row(line, f"{path}, line {number}")
        for number, line in enumerate(_whole_lines(path), start=1)
    ]


def kept_lines(path: Path, keep: int, digest: str | None = None) -> str:
    """Return the first `keep` lines unchanged.

    Without them, the record would have a gap that nobody notices.

    Raises: ConfigError if there are fewer lines, or if their hash is not `digest`.
    """
    lines = _whole_lines(path)[:keep]
    if len(lines) < keep:
        raise ConfigError(
            f"{path} has {len(lines)} complete lines, expected the {keep} that the checkpoint "
            f"recorded: {_MEND}"
        )
    for number, line in enumerate(lines, start=1):
        _row(line, f"{path}, line {number}")
    kept = b"".join(lines)
    if digest is not None and hashlib.sha256(kept).hexdigest() != digest:
        raise ConfigError(
            f"{path}: its first {keep} lines differ from those that the checkpoint recorded: "
            f"{_MEND}"
        )
    return kept.decode()


_MEND = "restore the file, or move it away to continue without it"


def _whole_lines(path: Path) -> list[bytes]:
    """Split at line feeds only: names may contain other characters that end lines elsewhere."""
    try:
        return [line for line in read_lines(path, ROWS) if line.endswith(b"\n")]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; {_MEND}") from error


def _row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        raise ConfigError(
            f"{where}: got {line[:60]!r}; expected one JSON object with a `step`: {_MEND}"
        )
    return row


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"
