"""The run config: the keys of `run_keys`, and the checks between them."""

from typing import Self

from pydantic import model_validator

from motet.algorithms import check_plan
from motet.config.checks import complaints_of
from motet.config.run_keys import RunKeys, validation_error
from motet.errors import ConfigError


class RunConfig(RunKeys):
    """The complete config of a run."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        complaints = complaints_of(self)
        if complaints:
            raise validation_error(complaints)
        return self


def check_trainable(config: RunConfig) -> None:
    """Check that the config can be trained. Evaluation does not need this.

    Raises: ConfigError if no policy is trained, or if the algorithm has nothing to compare under
    this plan.
    """
    if config.frozen == set(config.policies):
        raise ConfigError(
            f"every policy is frozen ({', '.join(config.policies)}); expected at least one with "
            "train: full or lora: set it, or use motet evaluate"
        )
    check_plan(config.algorithm, config.rollout, len(config.team))
    tasks = config.train.tasks_per_step
    played = 2 if tasks == "all" else tasks * config.rollout.samples[0]
    if config.algorithm.whiten and played < 2:
        raise ConfigError(
            "algorithm.whiten needs at least 2 advantages per step, but train.tasks_per_step "
            f"{config.train.tasks_per_step} with rollout.samples {list(config.rollout.samples)} "
            f"gives {played} at turn 1: raise one of them, or set whiten: false"
        )
