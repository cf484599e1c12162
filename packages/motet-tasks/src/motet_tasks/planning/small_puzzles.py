"""The tasks of the small games: puzzles that are all different, some of them held out."""

import random
from collections.abc import Callable, Sequence

from motet.core import Task
from motet.environments.splits import part_of
from motet.errors import ConfigError

TRIES = 20
"""For each puzzle that is wanted, so many are drawn at most."""


def different_tasks(
    name: str,
    draw: Callable[[random.Random], Sequence[str]],
    *,
    train: int,
    held_out: int,
    split: str,
) -> list[Task]:
    """Return the puzzles of `train` or `eval`, always the same ones. No puzzle is in both.

    Args:
        name: of the game. It is the seed.
        draw: draws the rows of a puzzle.

    Raises: ConfigError for another split, and if there are fewer puzzles than are wanted.
    """
    part_of(name, {"eval": held_out, "train": train}, split)
    wanted, source, found = held_out + train, random.Random(name), dict[str, Task]()
    for _ in range(TRIES * wanted):
        rows = draw(source)
        found.setdefault("/".join(rows), Task("/".join(rows), {"rows": rows}))
        if len(found) == wanted:
            tasks = list(found.values())
            return tasks[:held_out] if split == "eval" else tasks[held_out:]
    raise ConfigError(
        f"{name} has {len(found)} different puzzles with these options; expected {wanted}: set "
        "environment.train_tasks and environment.eval_tasks to fewer in all, or change the options"
    )
