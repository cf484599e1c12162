"""What a run leaves behind and shows while it goes: the run folder, the metrics and their mirrors, live progress.

runs/NAME/  config.yaml  metrics.jsonl  summary.json  curve.png  episodes/  checkpoints/  models/  team/  best/  tensorboard/
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import Any, Literal, Protocol, Self
from uuid import uuid4

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bar

from motet.errors import ConfigError, MotetError

# ---------------------------------------------------------------------------------------------------- the folder


@dataclass(frozen=True)
class RunFolder:
    """Where everything of one run stands."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved config."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object per line: see `Metrics`."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        return self.path / "summary.json"

    @property
    def curve(self) -> Path:
        return self.path / "curve.png"

    @property
    def checkpoints(self) -> Path:
        """What a killed run goes on from."""
        return self.path / "checkpoints"

    @property
    def models(self) -> Path:
        """Base models made or warmed up by the run."""
        return self.path / "models"

    @property
    def team(self) -> Path:
        """The trained policies, in the hub's folder formats."""
        return self.path / "team"

    @property
    def best(self) -> Path:
        """A run folder with the team as it was when train.keep_best was highest, and best.json about it."""
        return self.path / "best"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def episodes(self, kind: str, step: int) -> Path:
        """The episodes of one step; kind is train or an evaluation's name."""
        return self.path / "episodes" / f"{kind}-{step:06d}.jsonl"


@contextmanager
def claimed(path: Path, *, resume: bool = False, overwrite: bool = False) -> Iterator[RunFolder]:
    """The folder of a run that is about to start, empty unless it resumes: then without what a killed process had begun to write.

    A ConfigError in the body leaves everything as it was: an overwritten run is put back, a new one is gone.
    Raises: as `refuse`, and ConfigError where nothing can be written.
    """
    refuse(path, resume=resume, overwrite=overwrite)
    new, before = path, path.with_name(f".{path.name}.before")
    while not new.parent.exists():
        new = new.parent
    shutil.rmtree(before, ignore_errors=True)
    try:
        if path.exists() and not resume:
            path.rename(before)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be made: {error.strerror}; expected a folder that can be written to"
        ) from error
    for left in (one for folder in (path, path / "models") for one in folder.glob(".*.writing")):
        shutil.rmtree(left) if left.is_dir() else left.unlink()  # begun by a process that was killed
    try:
        yield RunFolder(path)
    except ConfigError:
        if not resume:
            shutil.rmtree(new)
            if before.exists():
                before.rename(path)
        raise
    finally:
        shutil.rmtree(before, ignore_errors=True)


def refuse(path: Path, *, resume: bool, overwrite: bool) -> None:
    """Raises: ConfigError for an existing run without one of the flags, and for what is no run folder; touches nothing."""
    if resume and overwrite:
        raise ConfigError("got --resume and --overwrite, expected at most one of them")
    blocking = next((parent for parent in path.parents if parent.exists() and not parent.is_dir()), None)
    if blocking is not None:
        raise ConfigError(f"{path} cannot be made: {blocking} is a file; expected a folder for runs")
    is_run = any((path / name).exists() for name in ("config.yaml", "metrics.jsonl"))
    if resume and not is_run:
        raise ConfigError(f"{path} holds no run to resume; start it without --resume")
    if resume or not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_run:
        raise ConfigError(f"{path} exists and is no run folder; move it away, or set another name")
    if not overwrite:
        raise ConfigError(f"{path} exists; --resume goes on with that run, --overwrite deletes it and starts anew")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Names `path` in what the disk refuses: a write that fails does not know which file it was for. Raises: OSError."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, text: str) -> None:
    """A reader sees the old file or all of the new one."""
    beside = path.with_name(f".{path.name}.writing")
    with writing(path):
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def write_json(path: Path, value: Any) -> None:
    """Plain values, indented for people."""
    write_whole(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def lost_episodes(folder: RunFolder, steps: int) -> list[str]:
    """A line where the training episodes of one of the first `steps` steps are missing, or cut short. None of them is read."""
    files = [folder.episodes("train", step) for step in range(1, steps + 1)]
    lost = [file for file in files if not _ends(file)]
    more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
    return [f"{lost[0]}{more}: the episodes are missing or cut short; what was learnt from them is not"] if lost else []


def _ends(path: Path) -> bool:
    """Whether there is a last line, and the end of it."""
    if not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


# ---------------------------------------------------------------------------------------------------- metrics

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
        return [line + b"\n" for line in path.read_bytes().split(b"\n")[:-1]]
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


# ---------------------------------------------------------------------------------------------------- live progress


class Progress:
    """One bar per stage on a terminal, aligned lines elsewhere, or nothing. It goes to stderr: stdout is for results.

    with Progress() as progress:
        progress.stage("train", total=60)
        progress.show(1, {"reward": 0.31, "success": 0.25}, tokens=5120)
    """

    def __init__(
        self,
        mode: Literal["auto", "silent"] = "auto",
        *,
        console: Console | None = None,
        every: int = 10,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`every`: steps per line where there is no terminal; more where that would make over half a dozen lines a stage."""
        self._console = Console(stderr=True) if console is None else console
        self._every, self._clock, self._silent = every, clock, mode == "silent"
        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
        )
        self._bar = Bar(*columns, console=self._console, disable=self._silent or not self._console.is_terminal)
        self._tasks: dict[str, TaskID] = {}
        self.stage("", 0)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def stage(self, name: str, total: int, first: int = 0) -> None:
        """What follows counts to `total`; `first` steps of it were done before (by the run this one resumes, or ahead of another
        stage in between)."""
        self._name, self._total, self._first = name, total, first
        self._tokens, self._since = 0, self._clock()
        if name in self._tasks:
            self._bar.update(self._tasks[name], total=total, completed=first)
        else:
            self._tasks[name] = self._bar.add_task(name, total=total, completed=first, figures="", visible=bool(name))
        self._task = self._tasks[name]

    def counter(self, name: str, total: int) -> Callable[[object], None]:
        """Begins a stage; every call of what it returns is one more done."""
        self.stage(name, total)
        done = count(1)
        return lambda _: self.show(next(done), {})

    def show(self, done: int, figures: Mapping[str, float], tokens: int = 0) -> None:
        """`done` steps of the stage are done; `tokens` were sampled or trained since the last call."""
        if self._silent:
            return
        self._tokens += tokens
        seconds = max(self._clock() - self._since, 1e-9)
        parts = [f"{name} {value:6.3f}" for name, value in figures.items()]
        parts += [f"{self._tokens / seconds:7,.0f} tokens/s"] if self._tokens else []
        left = seconds / max(done - self._first, 1) * (self._total - done)
        parts.append(f"left {_clock_face(left)}" if done < self._total else f"took {_clock_face(seconds)}")
        text = "  ".join(parts)
        if self._console.is_terminal:
            self._bar.update(self._task, completed=done, figures=text)
        elif done % max(self._every, self._total // 6) == 0 or done == self._total:
            width = len(str(self._total))
            self._console.print(
                f"{self._name:<9} {done:>{width}}/{self._total}  {text}", highlight=False, soft_wrap=True
            )

    def say(self, text: str) -> None:
        """A line of its own, above the bar where there is one."""
        if not self._silent:
            self._console.print(text, highlight=False, soft_wrap=True)


def _clock_face(seconds: float) -> str:
    """Whole seconds as 0:01:30."""
    return str(timedelta(seconds=round(seconds)))
