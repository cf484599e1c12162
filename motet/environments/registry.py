"""Environments by name: from what a config says to a class, and from a class to an instance with its options and services."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.core import Environment
from motet.errors import ConfigError
from motet.plugins import is_reference, load_object, nearest
from motet.settings import Settings

ENVIRONMENTS: dict[str, str] = {
    "quickstart": "motet.environments.quickstart:Quickstart",
    "relay": "motet.environments.relay:Relay",
    "debate": "motet.environments.debate.game:Debate",
    "debate_tiny": "motet.environments.debate_tiny:TinyDebate",
    "bug_fix": "motet.environments.coding.bug_fix:BugFix",
    "bug_fix_tiny": "motet.environments.coding.bug_fix_tiny:TinyBugFix",
    "code_completion": "motet.environments.coding.completion:CodeCompletion",
    "code_generation": "motet.environments.coding.generation:CodeGeneration",
    "writing": "motet.environments.writing:Writing",
}
"""Registered names, as references so that only the one in use is imported."""
_METHODS = ("start", "observe", "step", "close")


def resolve(name: str, where: str = "environment.name", base_folder: Path = Path()) -> type[Environment[Any]]:
    """The class called `name`: a registered name, `package.module:Class`, or `./file.py:Class` under `base_folder`.

    Raises: ConfigError naming `where` for a name nobody defines, and for what is no environment.
    """
    if name not in ENVIRONMENTS and not is_reference(name):
        raise ConfigError(
            f"{where} is {name!r}{nearest(name, ENVIRONMENTS)}; expected one of {', '.join(ENVIRONMENTS)}, "
            f"package.module:Class or ./file.py:Class"
        )
    try:
        found = load_object(ENVIRONMENTS.get(name, name), base_folder)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    if not isinstance(found, type):
        raise ConfigError(f"{where} is {name!r}, an object of type {type(found).__name__}; expected a class")
    missing = [method for method in _METHODS if not callable(getattr(found, method, None))]
    if missing:
        raise ConfigError(
            f"{where} is {name!r}, a class without {', '.join(missing)}; expected motet.core.Environment's methods"
        )
    kind: type[Environment[Any]] = found
    return kind


def options_of(kind: type) -> type[Settings] | None:
    """The class's inner `Options`, or None where it has no options."""
    return kind.Options if hasattr(kind, "Options") else None


def create(
    kind: type, options: Mapping[str, Any], services: Mapping[str, Any], where: str = "environment"
) -> Environment[Any]:
    """An instance of `kind`, whose constructor is `__init__(self, options: Options, *, service, ...)`.

    `options` become its `Options`; a class without them takes none. It gets those of `services` that it names as keyword-only
    parameters, and must do without the others.

    Raises: ConfigError for options nobody reads and services nobody provides; pydantic's ValidationError for wrong options.
    """
    schema = options_of(kind)
    if schema is None and options:
        raise ConfigError(
            f"{where} sets {', '.join(options)}, but {kind.__name__} has no options: give it an inner class Options"
        )
    chosen = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if name in services:
            chosen[name] = services[name]
        elif parameter.default is inspect.Parameter.empty:
            raise ConfigError(
                f"{where}: {kind.__name__} asks for service {name!r}{nearest(name, services)}; services are {', '.join(services)}"
            )
    instance: Environment[Any] = kind(**chosen) if schema is None else kind(schema(**options), **chosen)
    return instance
