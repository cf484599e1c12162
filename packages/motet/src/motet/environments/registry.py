"""Environments by name: find the class, and create an instance with its options and services."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from motet.core import Environment
from motet.errors import ConfigError
from motet.user_code.named_parts import find_part
from motet.user_code.plugins import nearest


def resolve(
    name: str, where: str = "environment.name", base_folder: Path = Path()
) -> type[Environment[Any]]:
    """Return the environment class called `name`, as in `find_part`.

    Raises: ConfigError naming `where` if the name is unknown or the class is not an environment.
    """
    found = find_part("environments", name, where, base_folder)
    if not isinstance(found, type):
        raise ConfigError(
            f"{where} is {name!r}, an object of type {type(found).__name__}; expected a class, an "
            "instance of one, or a function"
        )
    if not issubclass(found, Environment):
        raise ConfigError(_no_environment(f"{where} is {name!r}: got", found))
    missing = sorted(found.__abstractmethods__)
    if missing:
        raise ConfigError(
            f"{where} is {name!r}, a class without {', '.join(missing)}; expected all of start, "
            "observe and step: define what is missing"
        )
    return found


def check_is_environment(given: object, where: str) -> None:
    """Check an environment that a program passes.

    Raises: ConfigError if it is not an instance of a subclass of `motet.Environment`.
    """
    if not isinstance(given, Environment):
        raise ConfigError(_no_environment(f"{where}: got an instance of", type(given)))


def _no_environment(got: str, kind: type) -> str:
    name = kind.__name__
    return (
        f"{got} class {name}, expected a subclass of motet.Environment: write "
        f"class {name}(motet.Environment)"
    )


def create(
    kind: type[Environment[Any]],
    options: Mapping[str, Any],
    services: Mapping[str, Any],
    where: str = "environment",
) -> Environment[Any]:
    """Create an instance of `kind` with the constructor `__init__(self, options, *, service, ...)`.

    `options` are validated by the class's inner `Options`. A class without `Options` accepts no
    options. The constructor receives those `services` that it names as keyword-only parameters,
    and no others.

    Raises: ConfigError if a class without `Options` gets options, or asks for an unknown service;
    pydantic's ValidationError for invalid options.
    """
    schema = kind.Options
    if schema is None and options:
        raise ConfigError(
            f"{where} sets {', '.join(options)}, but {kind.__name__} has no options: give it an "
            "inner class Options"
        )
    chosen = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            continue
        if name in services:
            chosen[name] = services[name]
        elif parameter.default is inspect.Parameter.empty:
            raise ConfigError(
                f"{where}: {kind.__name__} needs the service {name!r}{nearest(name, services)}; "
                f"services are {', '.join(services)}"
            )
    build: Callable[..., Environment[Any]] = kind  # the base class has no constructor
    return build(**chosen) if schema is None else build(schema(**options), **chosen)
