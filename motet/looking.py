"""Looking at a run runs nothing of it.

A run folder may come from a stranger, and its config can name Python files. Whatever only reads a
run (`view`, `episodes`, `compare`, `show`, `load_run`, `runs`, `plan`, `doctor`) runs inside
`looking()`, where no reference of a config is loaded. `config.recorded` is the config that these
read.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from motet.errors import ConfigError, shortened

_LOOKING: ContextVar[bool] = ContextVar("looking", default=False)


@contextmanager
def looking() -> Iterator[None]:
    """Load nothing that a config names, while the body runs. Also a decorator of functions."""
    before = _LOOKING.set(True)
    try:
        yield
    finally:
        _LOOKING.reset(before)


def only_looks() -> bool:
    """Return whether the caller runs inside `looking()`."""
    return _LOOKING.get()


def refuse_code(reference: str) -> None:
    """Raise ConfigError inside `looking()`: `reference` names code."""
    if only_looks():
        raise ConfigError(
            f"{shortened(repr(reference))} is code, which is not loaded here: whoever only looks "
            "at a run or a config may not trust it; expected a name of Motet, as from an override"
        )
