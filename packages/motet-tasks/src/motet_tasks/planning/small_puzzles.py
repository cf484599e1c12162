"""The tasks of the small games: puzzles that are all different, some of them held out."""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from motet.core import Task
from motet.environments.splits import part_of
from motet.errors import ConfigError

TRIES = 20
"""For each puzzle that is wanted, so many are drawn at most."""
KEPT = 4
"""The puzzles of so many games are kept: drawing them takes seconds, and a run asks for each split
several times."""
_kept: dict[tuple[str, int, str], list[Task]] = {}


class PuzzleCounts(Protocol):
    """The options of a small game, which say how many puzzles are wanted."""

    @property
    def train_tasks(self) -> int: ...

    @property
    def eval_tasks(self) -> int: ...

    def model_dump_json(self) -> str: ...


def different_tasks(
    name: str, draw: Callable[[random.Random], Sequence[str]], options: PuzzleCounts, split: str
) -> list[Task]:
    """Return the puzzles of `train` or `eval`, always the same ones. No puzzle is in both.

    Args:
        name: of the game. It is the seed.
        draw: draws the rows of a puzzle, by the options.

    Raises: ConfigError for another split, and if there are fewer puzzles than are wanted.
    """
    held_out, train = options.eval_tasks, options.train_tasks
    part_of(name, {"eval": held_out, "train": train}, split)
    # Those that are held out are drawn first, so they are there at once.
    wanted = held_out + (train if split == "train" else 0)
    key = name, wanted, options.model_dump_json()
    if key not in _kept:
        while len(_kept) >= KEPT:
            del _kept[next(iter(_kept))]
        _kept[key] = _drawn(name, draw, wanted)
    return _kept[key][:held_out] if split == "eval" else _kept[key][held_out:]


def _drawn(name: str, draw: Callable[[random.Random], Sequence[str]], wanted: int) -> list[Task]:
    source, found = random.Random(name), dict[str, Task]()
    for _ in range(TRIES * wanted):
        rows = draw(source)
        found.setdefault("/".join(rows), Task("/".join(rows), {"rows": rows}))
        if len(found) == wanted:
            return list(found.values())
    raise ConfigError(
        f"{name} has {len(found)} different puzzles with these options; expected {wanted}: set "
        "environment.train_tasks and environment.eval_tasks to fewer in all, or change the options"
    )
