"""Make the environment that a config names: a class, an instance, or a function."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from motet.assembly.services import Services
from motet.assembly.tasks import asking
from motet.config.schema import RunConfig
from motet.config.validation import validate_options
from motet.core import Environment
from motet.environments.registry import check_is_environment, create, find, resolve
from motet.errors import ConfigError
from motet.rollout.freeform import FreeForm
from motet.settings import Settings
from motet.user_code.objects import is_object


class DialogueOptions(Settings):
    """The options of a dialogue that a config names as a function."""

    agents: tuple[str, ...] = ()
    """The names of its agents. The default is the agents of `team`."""


def environment_of(
    config: RunConfig, services: Services, asks: Collection[str]
) -> Environment[Any]:
    """Return the environment of a config.

    Its name may lead to a subclass of Environment, an instance of one, an async function (the
    program of a FreeForm), or a function that returns an environment and gets the options by name.

    Raises: ConfigError.
    """
    name, options = config.environment.name, config.environment.options
    found = find(name)
    if is_object(name) and isinstance(found, Environment):
        _refuse_options(type(found).__name__, options, "an object that was passed")
        return found
    with asking(name):
        if isinstance(found, Environment):
            _refuse_options(name, options, "an instance")
            environment: Environment[Any] = found
        elif inspect.iscoroutinefunction(found):
            environment = FreeForm(found, _agents(config))
        elif inspect.isfunction(found):
            environment = found(**options)
            check_is_environment(environment, f"environment.name is {name!r}, which returned")
        else:
            environment = _of_class(config, services)
    services.check_asked(name, asks)
    return environment


def _of_class(config: RunConfig, services: Services) -> Environment[Any]:
    kind = resolve(config.environment.name)
    options = config.environment.options
    if kind.Options is not None:
        validate_options(kind.Options, options, config.places, ("environment",))
    return create(kind, options, services)


def _agents(config: RunConfig) -> Sequence[str]:
    """Return the agents of a dialogue that is a plain function."""
    options = config.environment.options
    said = validate_options(DialogueOptions, options, config.places, ("environment",)).agents
    if not said and config.centralized is not None:
        raise ConfigError(
            f"environment.name is {config.environment.name!r}, a function, so its agents are those "
            "of team; with centralized, name them: environment.agents=[one,two]"
        )
    return said or tuple(config.team)


def _refuse_options(name: str, options: Mapping[str, Any], what: str) -> None:
    if options:
        raise ConfigError(
            f"environment sets {', '.join(options)}, but {name} is {what}, which is already made: "
            "drop them, or name a class or a function that takes them"
        )
