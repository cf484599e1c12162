"""Looking at a run runs nothing of it.

A run folder may come from a stranger, and its config can name Python files. Whatever only reads a
run (`view`, `episodes`, `compare`, `show`, `load_run`, `runs`, `plan`, `doctor`) runs inside
`looking()`, where no reference of a config is loaded. `RecordedConfig` is the config that these
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


_IMPORTING: ContextVar[str] = ContextVar("importing", default="")


@contextmanager
def only_imports(file: str) -> Iterator[None]:
    """Let no command run, while the body imports a user's file for its functions.

    The file may be the script that trained the run.
    """
    before = _IMPORTING.set(file)
    try:
        yield
    finally:
        _IMPORTING.reset(before)


def refuse_command(name: str) -> None:
    """Raise ConfigError inside `only_imports`: a command would run."""
    file = _IMPORTING.get()
    if file:
        raise ConfigError(
            f"{file} is loaded for its functions, but it calls motet.{name} while it is imported; "
            f'expected the call under `if __name__ == "__main__":`, or the functions in a file of '
            "their own"
        )


def refuse_code(reference: str) -> None:
    """Raise ConfigError inside `looking()`: `reference` names code."""
    if only_looks():
        raise ConfigError(
            f"{shortened(repr(reference))} is code, which is not loaded here: whoever only looks "
            "at a run or a config may not trust it; expected a name of Motet, as from an override"
        )
