"""What a seed decides in a game of another package: which task it is, and what it draws."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy
from pydantic import Field

from motet.core import Task
from motet.environments.splits import part_of
from motet.settings import Settings

HELD_OUT = 1_000_000
"""The first seed of the held-out tasks."""


class SeededTasks(Settings):
    """Options of a game whose tasks are seeds: each seed starts another game."""

    tasks: int = Field(256, ge=1, le=HELD_OUT)
    """Tasks of the split train: the seeds from 0 on."""
    held_out: int = Field(32, ge=1)
    """Tasks of the split eval: the seeds from 1,000,000 on."""

    def of_split(self, environment: str, split: str) -> list[Task]:
        """Return the tasks of a split. Raises: ConfigError for an unknown one."""
        parts = {"train": range(self.tasks), "eval": range(HELD_OUT, HELD_OUT + self.held_out)}
        seeds = part_of(environment, parts, split)
        return [Task(f"{environment} {seed}", {"seed": seed}) for seed in seeds]


@contextmanager
def luck(seed: int) -> Iterator[None]:
    """Seed the global generators of `random` and NumPy, and afterwards give them back their state.

    Many games draw from them. Without this, a draw would depend on which games are played at the
    same time. The block must not await.
    """
    before, arrays_before = random.getstate(), numpy.random.get_state()
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(before)
        numpy.random.set_state(arrays_before)
