"""The boundary to another package: it is imported late, and its errors become faults that name it.

A fault is counted by the package and the class of the error, such as `textarena.IndexError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from motet.errors import ConfigError, EnvironmentFault, MotetError


class PackageFault(EnvironmentFault):
    """Another package raised an error in an episode."""

    def __init__(self, package: str, error: Exception) -> None:
        super().__init__(said(package, error))
        self.cause = f"{package}.{type(error).__name__}"
        self.may_pass = isinstance(error, ConnectionError | TimeoutError)


def said(package: str, error: Exception) -> str:
    """Return what a package raised, as the beginning of a message."""
    return f"{package} raised {type(error).__name__}: {error}"


@contextmanager
def inside(package: str) -> Iterator[None]:
    """Make a fault of every error of this block that is not Motet's own. Raises: PackageFault."""
    try:
        yield
    except MotetError:
        raise
    except Exception as error:
        raise PackageFault(package, error) from error


def needed(package: str) -> Any:
    """Import the package of the environment of the same name.

    Raises: ConfigError that says what to install.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"the environment {package} needs the package {package}: {error}; "
            f"pip install 'motet-foreign[{package}]'"
        ) from error
