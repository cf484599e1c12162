"""Make the parts that a config names: the environment, the reward and the comparator."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from motet.assembly.mixtures import mixture_of
from motet.assembly.services import Services
from motet.assembly.tasks import asking
from motet.config.schema import RunConfig
from motet.config.validation import validate_options
from motet.config.yaml import KeyPath, dotted
from motet.core import Environment
from motet.environments.free_form import FreeForm
from motet.environments.mixture import Mixture
from motet.environments.registry import check_is_environment, create, resolve
from motet.errors import ConfigError
from motet.settings import Settings
from motet.trainer.components import Comparator
from motet.user_code.named_parts import find_part
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
    name = config.environment.name
    environment = _made(config, services, ("environment",))
    if not (is_object(name) and isinstance(find_part("environments", name, ""), Environment)):
        services.check_asked(name, asks)
    return environment


def _made(config: RunConfig, services: Services, at: KeyPath) -> Environment[Any]:
    """Return the environment that is set at the key `at`."""
    name, options, where = config.environment.name, config.environment.options, dotted(at)
    found = find_part("environments", name, f"{where}.name")
    if is_object(name) and isinstance(found, Environment):
        _refuse_options(type(found).__name__, options, "an object that was passed", where)
        return found
    with asking(name):
        if found is Mixture:
            return mixture_of(config, lambda own, key: _made(own, services, key))
        if isinstance(found, Environment):
            _refuse_options(name, options, "an instance", where)
            environment: Environment[Any] = found
        elif inspect.iscoroutinefunction(found):
            environment = FreeForm(found, _agents(config, at))
        elif inspect.isfunction(found):
            environment = found(**options)
            check_is_environment(environment, f"{where}.name is {name!r}, which returned")
        else:
            environment = _of_class(config, services, at)
    return environment


def _of_class(config: RunConfig, services: Services, at: KeyPath) -> Environment[Any]:
    kind = resolve(config.environment.name, f"{dotted(at)}.name")
    options = config.environment.options
    if kind.Options is not None:
        validate_options(kind.Options, options, config.places, at)
    return create(kind, options, services, dotted(at))


def _agents(config: RunConfig, at: KeyPath) -> Sequence[str]:
    """Return the agents of a dialogue that is a plain function."""
    options, where = config.environment.options, dotted(at)
    said = validate_options(DialogueOptions, options, config.places, at).agents
    if not said and config.centralized is not None:
        raise ConfigError(
            f"{where}.name is {config.environment.name!r}, a function, so its agents are those "
            f"of team; with centralized, name them: {where}.agents=[one,two]"
        )
    return said or tuple(config.team)


def _refuse_options(name: str, options: Mapping[str, Any], what: str, where: str) -> None:
    if options:
        raise ConfigError(
            f"{where} sets {', '.join(options)}, but {name} is {what}, which is already made: "
            "drop them, or name a class or a function that takes them"
        )


def reward_of(config: RunConfig) -> Any:
    """Return the reward of a config: a function, or an instance of a class. Raises: ConfigError."""
    assert config.reward is not None
    name, options = config.reward.name, config.reward.options
    found = find_part("rewards", name, "reward.name")
    if not callable(getattr(found, "score", None)) and (
        isinstance(found, type) or not callable(found)
    ):
        raise ConfigError(
            f"reward.name is {name!r}, which is not a reward; expected a function, or a class "
            "with a method score"
        )
    if isinstance(found, type):
        schema = found.Options if hasattr(found, "Options") else None
        if schema is None and options:
            raise ConfigError(
                f"reward sets {', '.join(options)}, but {config.reward.name} has no options: "
                "define an inner class Options"
            )
        return (
            found()
            if schema is None
            else found(validate_options(schema, options, config.places, ("reward",)))
        )
    if options:
        raise ConfigError(
            f"reward sets {', '.join(options)}, but {config.reward.name} is a function, which has "
            "no options: drop them, or use a class"
        )
    return found


def comparator_of(config: RunConfig) -> Comparator | None:
    """Make the comparator of a config, if it has one. Raises: ConfigError."""
    chosen = config.comparator
    if chosen is None:
        return None
    found = find_part("comparators", chosen.name, "comparator.name")
    if not isinstance(found, type) or not hasattr(found, "Options"):
        raise ConfigError(
            f"comparator.name is {chosen.name!r}, which is no comparator; expected a class with an "
            "inner class Options, made with its options and the config"
        )
    options = validate_options(found.Options, chosen.options, config.places, ("comparator",))
    comparator: Comparator = found(options, config)
    return comparator
