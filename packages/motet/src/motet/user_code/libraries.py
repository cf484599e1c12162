"""Libraries that the core runs without. They are imported where they are used, after `need`."""

from collections.abc import Mapping
from importlib.util import find_spec

from motet.errors import ConfigError

EXTRA_OF: Mapping[str, str] = {
    "matplotlib": "plots",
    "tensorboard": "tensorboard",
    "pandas": "pandas",
    "datasets": "datasets",
    "pyarrow": "datasets",
    "wandb": "wandb",
    "trackio": "trackio",
}
"""Library -> the extra of Motet that installs it."""


def is_there(library: str) -> bool:
    """Return whether a library can be imported. Nothing is imported."""
    try:
        return find_spec(library) is not None
    except ValueError:  # a module without a spec, or None in its place
        return False


def install(library: str) -> str:
    """Return the command that installs a library."""
    return f'pip install "motet[{EXTRA_OF[library]}]"'


def need(library: str, purpose: str) -> None:
    """Check that a library is there, before it is imported.

    `purpose`: what needs it, as the start of the error. Raises: ConfigError that says what to
    install.
    """
    if not is_there(library):
        raise ConfigError(f"{purpose} needs {library}, which is not installed: {install(library)}")
