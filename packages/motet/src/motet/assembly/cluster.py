"""The package that runs models in processes of their own, as Motet calls it: motet-cluster.

Motet itself reads and plans a `cluster` section; `homes.py` says which process trains what.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from motet.assembly.task_setup import TaskSetup
from motet.config.schema import RunConfig
from motet.core import Sampler
from motet.trainer.components import Models
from motet.user_code.installed import load


class Cluster(Protocol):
    """What the package registers in `motet.clusters`."""

    def check_training(self, config: RunConfig) -> None:
        """Refuse what cannot be computed, before any model is loaded. Raises: ConfigError."""
        ...

    def open_models(
        self,
        setup: TaskSetup,
        bases: Mapping[str, str | Path],
        endpoints: Mapping[str, Sampler],
    ) -> AbstractContextManager[Models]:
        """Load all models of a training run in processes, which end at the end.

        Args:
            bases: model name -> where to load it from.
            endpoints: policy behind an endpoint -> its sampler.

        Raises: ConfigError, also if there is no place for a process.
        """
        ...

    def check_engines(self, temperature: float | None) -> None:
        """Check that engines can be started, and sample at this temperature.

        Raises: ConfigError.
        """
        ...

    def open_engines(
        self, setup: TaskSetup, bases: Mapping[str, str | Path], trained: Mapping[str, Path]
    ) -> AbstractContextManager[Sampler]:
        """Load a team that answers in engines, which end at the end.

        `trained`: policy -> the folder it was saved in; a policy that is not there is as the config
        starts it.

        Raises: ConfigError, also if there is no place for an engine.
        """
        ...


def cluster() -> Cluster:
    """Raises: ConfigError if the package is not installed."""
    found: Cluster = load("clusters", "cluster")
    return found
