"""Tasks are seeds, and a game's draws depend on nothing but its seed."""

import random

import numpy
import pytest

from motet.errors import ConfigError
from motet_foreign.seeds import SeededTasks, luck


def test_the_splits_are_seeds_and_share_none():
    options = SeededTasks(tasks=2, held_out=1)
    assert [task.fields for task in options.of_split("nim", "train")] == [{"seed": 0}, {"seed": 1}]
    (held_out,) = options.of_split("nim", "eval")
    assert (held_out.id, held_out.fields) == ("nim 1000000", {"seed": 1_000_000})
    with pytest.raises(ConfigError, match="nim has no split 'test'; expected one of train, eval"):
        options.of_split("nim", "test")


def test_a_draw_depends_on_the_seed_alone_and_leaves_no_trace():
    random.seed(5)
    numpy.random.seed(5)
    expected = random.random(), numpy.random.random()
    random.seed(5)
    numpy.random.seed(5)
    drawn = []
    for seed in (2**40 + 1, 1, 2**40 + 1):
        with luck(seed):
            drawn.append((random.random(), numpy.random.random()))
    assert drawn[0] == drawn[2] != drawn[1]
    assert (random.random(), numpy.random.random()) == expected
