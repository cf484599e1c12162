"""The metrics of a run, a JSON object per line, and the mirrors that get them too."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, Self
from uuid import uuid4

from motet.errors import ConfigError, MotetError
from motet.reading import ROWS, read_bytes
from motet.trainer.run_folder import write_whole, writing

STAGES = ("play", "credit", "pack", "learn", "evaluate", "warmup", "time", "run")
_NAME = re.compile(rf"({'|'.join(STAGES)})/[a-z][a-z0-9_]*(/[^/]+)*")


class Mirror(Protocol):
    """Another place that metrics go to."""

    def write(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class Metrics:
    """metrics.jsonl: one object per write, `step` first, then names in order; the same run writes the same bytes but for time/.

    A name is `stage/name`, or `stage/name/WHO` for one agent or policy. Figures of the clock stand under `time/` only. What has
    no value is left out. Steps of the warm-up are step 0 and say their own number as `warmup/step`.
    """

    def __init__(self, path: Path, mirrors: Sequence[Mirror] = (), keep: int = 0) -> None:
        """`keep`: lines of an interrupted run that count; what it wrote after them is dropped.

        Raises: ConfigError as `kept_lines`, unless there is no file any more.
        """
        kept = kept_lines(path, keep) if path.exists() else ""
        self.path = path
        write_whole(path, kept)
        self.lines = kept.count("\n")
        self._digest = hashlib.sha256(kept.encode())
        self._file = path.open("a", encoding="utf-8")
        self._mirrors = mirrors

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Raises: MotetError for a name outside the grammar, or a value that is not a finite number."""
        for name, value in values.items():
            if not _NAME.fullmatch(name):
                raise MotetError(
                    f"metric {name!r}: expected stage/name or stage/name/WHO, with a stage of {', '.join(STAGES)}"
                )
            if not isfinite(value):
                raise MotetError(
                    f"metric {name} is {value} at step {step}; expected a finite number: leave out what has no value"
                )
        line = _line({"step": step, **{name: values[name] for name in sorted(values)}})
        with writing(self.path):
            self._file.write(line)
            self._file.flush()
        self._digest.update(line.encode())
        self.lines += 1
        for mirror in self._mirrors:
            mirror.write(int(values["warmup/step"]) if "warmup/step" in values else step, values)

    @property
    def digest(self) -> str:
        """Of all lines so far: what a checkpoint says of them, so that a resumed run notices if they are others."""
        return self._digest.hexdigest()

    def close(self) -> None:
        with writing(self.path):  # what a full disk did not take is tried once more
            self._file.close()
        for mirror in self._mirrors:
            mirror.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Every whole line, in order; a last line that was cut short by a kill is not there.

    Raises: ConfigError naming a line that is none of ours.
    """
    return [_row(line, f"{path}, line {number}") for number, line in enumerate(_whole_lines(path), start=1)]


def kept_lines(path: Path, keep: int, digest: str | None = None) -> str:
    """The first `keep` lines, as they stand. Raises: ConfigError where there are fewer, or they are not those of `digest`.

    To go on without them would leave a gap in the record that nobody sees.
    """
    lines = _whole_lines(path)[:keep]
    if len(lines) < keep:
        raise ConfigError(
            f"{path} has {len(lines)} whole lines, expected the {keep} that the checkpoint counted: {_MEND}"
        )
    for number, line in enumerate(lines, start=1):
        _row(line, f"{path}, line {number}")
    kept = b"".join(lines)
    if digest is not None and hashlib.sha256(kept).hexdigest() != digest:
        raise ConfigError(f"{path}: its first {keep} lines are not those that the checkpoint counted: {_MEND}")
    return kept.decode()


_MEND = "put the file back as it was, or move it away to go on without"


def _whole_lines(path: Path) -> list[bytes]:
    """Only a line feed ends one: names may hold other characters that end lines elsewhere."""
    try:
        return [line + b"\n" for line in read_bytes(path, ROWS).split(b"\n")[:-1]]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; {_MEND}") from error


def _row(line: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or "step" not in row:
        raise ConfigError(f"{where}: got {line[:60]!r}; expected one JSON object with a `step`: {_MEND}")
    return row


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n"


class TensorBoard:
    """Metrics as scalars for `tensorboard --logdir runs`."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # a second of imports, for those who want it

        purge = None if resumed_at is None else resumed_at + 1
        self._writer: Any = SummaryWriter(log_dir=str(folder), purge_step=purge)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class Wandb:
    """Metrics at Weights & Biases. Raises: ConfigError where the extra is not installed."""

    def __init__(
        self, folder: Path, name: str, project: str, entity: str | None, tags: Sequence[str], config: Mapping[str, Any]
    ) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ConfigError('report.wandb is set, but wandb is not installed: pip install "motet[wandb]"') from error
        kept = folder / "wandb_id"  # a resumed run goes on there too
        if not kept.is_file():
            write_whole(kept, uuid4().hex[:8])
        self._run: Any = wandb.init(
            id=kept.read_text(encoding="utf-8"),
            dir=str(folder),
            name=name,
            project=project,
            entity=entity,
            tags=list(tags),
            config=dict(config),
            resume="allow",
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        # Its own step counter refuses to go back, as an evaluation beside a step or a resumed run does.
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()
