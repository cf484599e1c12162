"""The form of a checkpoint's state, which is checked before a run resumes from it.

A manifest has hashes of the files of its checkpoint. So a checkpoint that somebody wrote anew, or
that another version wrote, has right hashes and may still hold anything.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from motet.errors import CannotResume, shortened

_MEND = "restore it, or delete that checkpoint to resume from an earlier one"
_UNFIT = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What restoring raises for values of another run. The errors of Motet are not among them."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Figures(_Part):
    success: float | None
    reward: float | None
    faults: int


class _Profile(_Part):
    model_config = ConfigDict(extra="forbid")

    steps: NonNegativeInt = 0
    seconds: dict[str, float] = {}


class _Highlight(_Part):
    rank: float


class _Weights(_Part):
    versions: dict[str, int]
    optimizers: dict[str, dict[str, Any]]


class _Pending(_Part):
    sha256: str
    seconds: dict[str, float]


class _Machine(_Part):
    threads: int


class _State(_Part):
    """The keys without a default are those that every checkpoint of this schema has."""

    machine: _Machine
    tasks: dict[str, str]
    metrics_lines: NonNegativeInt
    metrics_digest: str
    weights: _Weights
    averages: dict[str, tuple[float, float]]
    kl_coefficients: dict[str, float]
    evaluated: bool
    heldout: dict[str, _Figures] = {}
    best: float | None = None
    profile: _Profile = _Profile()
    notable: dict[str, _Highlight] | None = None
    watch: dict[str, int] | None = None
    alarms: list[dict[str, Any]] = []
    tokens: NonNegativeInt = 0
    step_seconds: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    pending: _Pending | None = None


def check_state(state: Any, path: Path) -> None:
    """Check the state of a checkpoint. Raises: CannotResume with the file and the first key."""
    try:
        _State.model_validate(state, strict=False)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"])) or "the whole"
        raise CannotResume(
            f"{path}: {shortened(key)}: {first['msg']}; expected the state of a run: {_MEND}"
        ) from error


@contextmanager
def restoring(path: Path) -> Iterator[None]:
    """Name the checkpoint if what it holds does not fit the run. Raises: CannotResume."""
    try:
        yield
    except _UNFIT as error:
        if type(error).__name__ == "OutOfMemoryError":
            raise
        said = shortened(f"{type(error).__name__}: {error}")
        raise CannotResume(f"{path} does not fit this run: {said}: {_MEND}") from error
