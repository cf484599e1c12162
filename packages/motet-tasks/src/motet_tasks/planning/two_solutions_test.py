import asyncio
import random
from collections import Counter

import pytest

from motet.core import Reply
from motet.environments.check import check_environment
from motet.errors import ConfigError
from motet_tasks.planning.digits import solutions
from motet_tasks.planning.two_solutions import (
    CONVENTIONS,
    TinySudoku,
    draw_halves,
    grids,
    read_halves,
)

GAME = TinySudoku(TinySudoku.Options(train_tasks=40, eval_tasks=10))
ONE = "123./34.2/.14./43.."
TWO = ".2.4/.4.2/2143/4321"
"""1 and 3 are missing in both upper rows: 1234/3412 or 3214/1432."""


def played(left, right, text=TWO):
    state = asyncio.run(GAME.start(GAME.chat_task(text), 0))
    replies = {"left": Reply(left), "right": Reply(right)}
    return asyncio.run(GAME.step(state, replies, 0))


def test_it_keeps_the_rules_of_environments():
    check_environment(GAME, GAME.tasks("train")[:3])


def test_no_puzzle_is_held_out_and_trained_on():
    train, held_out = ({task.id for task in GAME.tasks(name)} for name in ("train", "eval"))
    assert (len(train), len(held_out)) == (40, 10)
    assert not train & held_out
    with pytest.raises(ConfigError, match="train"):
        GAME.tasks("test")


def test_both_see_the_grid_and_fill_their_own_half():
    state = asyncio.run(GAME.start(GAME.chat_task(TWO), 0))
    rows = TWO.replace("/", "\n")
    assert GAME.observe(state) == {"left": f"{rows}\nleft ", "right": f"{rows}\nright "}
    assert [state.written(agent, way) for agent in ("left", "right") for way in (0, 1)] == [
        "13", "31", "31", "13",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("left", "right", "success", "reward"),
    [
        ("13", "31", 1.0, -0.01 + 2.0 + 0.5),
        ("31", "13", 1.0, -0.01 + 2.0 + 0.5),
        # 4 of 16 cells are new, and digits are there twice. Constraints met: 24 before; 6 in rows
        # (two of them double), 12 in columns and 12 in boxes after.
        ("13", "13", 0.0, -0.01 + 0.5 * 4 / 16 + 0.02 * 6 - 0.5),
        ("1", "31", 0.0, -1.0),
        ("15", "31", 0.0, -1.0),
        ("", "", 0.0, -1.0),
    ],
)
def test_a_grid_is_paid_as_published_and_only_one_solution_of_both_succeeds(
    left, right, success, reward
):
    found = played(left, right)
    assert found.success == success
    assert found.done
    assert found.rewards == pytest.approx(dict.fromkeys(("left", "right"), reward))
    assert set(found.metrics) == {"fits/left", "fits/right"}


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_puzzle_has_two_solutions_that_differ_on_both_sides(seed):
    rows = draw_halves(random.Random(seed), 2)
    state = read_halves(rows)
    assert len(solutions(state.puzzle.givens, 9)) == 2
    assert sum(row.count(".") for row in rows) == 8
    for agent in ("left", "right"):
        assert len(state.cells(agent)) == 4
        assert state.written(agent, 0) != state.written(agent, 1)
    with_both = zip(*state.solutions, strict=True)
    (smaller, larger), *_ = [
        (a, b) for one, other in with_both for a, b in zip(one, other, strict=True) if a != b
    ]
    assert smaller < larger


def test_all_288_grids_have_every_digit_once_in_each_row_column_and_box():
    assert len(set(grids())) == len(grids()) == 288
    for grid in grids():
        boxes = [
            [grid[r + y][c + x] for y in (0, 1) for x in (0, 1)] for r in (0, 2) for c in (0, 2)
        ]
        for group in (*grid, *zip(*grid, strict=True), *boxes):
            assert sorted(group) == [1, 2, 3, 4]


def test_demonstrations_mix_sides_and_ways_the_first_twice_as_often():
    task = GAME.chat_task(TWO)
    shown = [GAME.demonstrate(task, seed) for seed in range(900)]
    ways = Counter((one.agent, GAME.convention(task, one.agent, one.text)) for one in shown)
    assert len(ways) == 4
    for agent in ("left", "right"):
        first, second = (ways[agent, name] for name in CONVENTIONS)
        assert 1.5 < first / second < 2.7


def test_an_answer_has_a_way_and_a_broken_one_is_other():
    task = GAME.chat_task(TWO)
    assert GAME.convention(task, "left", " 13") == CONVENTIONS[0]
    assert GAME.convention(task, "right", "13") == CONVENTIONS[1]
    assert GAME.convention(task, "left", "11") == "other"


@pytest.mark.parametrize("text", ["", "12", ONE, "1234/3412/2143/4321", "..../..../..../...."])
def test_a_puzzle_with_another_number_of_solutions_is_refused(text):
    with pytest.raises(ConfigError, match="two solutions"):
        GAME.chat_task(text)


def test_a_person_reads_the_filled_grid():
    task = GAME.chat_task(TWO)
    assert GAME.chat_answer(task, {"left": "13", "right": "31"}) == "1234\n3412\n2143\n4321"
    assert GAME.chat_answer(task, {"left": "13"}) == "12.4\n34.2\n2143\n4321"


@pytest.mark.parametrize("empty", [0, 4])
def test_puzzles_with_few_and_with_many_empty_cells_are_drawn(empty):
    game = TinySudoku(TinySudoku.Options(empty=empty, train_tasks=8, eval_tasks=2))
    assert all(task.fields["rows"] for task in game.tasks("train"))
    assert sum(row.count(".") for row in game.tasks("eval")[0].fields["rows"]) == 4 + 2 * empty


def test_more_puzzles_than_there_are_is_an_error_that_says_how_many_there_are(monkeypatch):
    monkeypatch.setattr("motet_tasks.planning.small_puzzles.TRIES", 3)
    game = TinySudoku(TinySudoku.Options(empty=0, train_tasks=900))
    with pytest.raises(ConfigError, match=r"sudoku_tiny has \d+ different puzzles.*expected 1100"):
        game.tasks("train")
