"""The mixture of a config: several environments, each with its options and its own data."""

from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, Field, PositiveFloat

from motet.assembly.tasks import Tasks
from motet.config.schema import RunConfig
from motet.config.sections import DataConfig, Named
from motet.config.validation import validate_options
from motet.config.yaml import KeyPath
from motet.core import Environment
from motet.environments.mixture import Mixture
from motet.errors import ConfigError
from motet.settings import Settings


class MixedEnvironment(Named):
    """An environment of a mixture: its name and its options, as in the section `environment`."""

    data: DataConfig = DataConfig()
    """The source of its tasks, as in the section `data`."""


class MixtureOptions(Settings):
    """The options of a mixture."""

    of: dict[
        str,
        Annotated[
            MixedEnvironment,
            BeforeValidator(lambda said: {"name": said} if isinstance(said, str) else said),
        ],
    ] = Field(min_length=1)
    """The environments, by names of your choice."""
    weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """Name -> its weight: each environment has its share of the tasks of every training step. By
    default the tasks of all environments are drawn alike."""


Make: TypeAlias = Callable[[RunConfig, KeyPath], Environment[Any]]
"""Makes the environment of a config that is set at a key."""


def mixture_of(config: RunConfig, make: Make) -> Mixture:
    """Return the mixture that a config describes. Raises: ConfigError."""
    if config.data.train is not None or config.data.eval is not None:
        raise ConfigError(
            "data is set, but the environments of a mixture have data of their own: move it to "
            "environment.of.NAME.data"
        )
    options = validate_options(
        MixtureOptions, config.environment.options, config.places, ("environment",)
    )
    made: dict[str, Environment[Any]] = {}
    tasks: dict[str, Tasks] = {}
    for name, entry in options.of.items():
        own = config.model_copy(
            update={
                "environment": Named(name=entry.name, **entry.options),
                "data": entry.data,
                "evaluation": config.evaluation.model_copy(update={"tasks": None}),
            }
        )
        made[name] = make(own, ("environment", "of", name))
        tasks[name] = Tasks(own, made[name], f"environment.of.{name}.data")
    return Mixture(made, options.weights, tasks)
