import random

import pytest

from motet_tasks.planning.digits import candidates, draw_digits, read_digits, solve

RIGHT = [[1, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 1]]
OTHER = [[4, 3, 2, 1], [2, 1, 4, 3], [3, 4, 1, 2], [1, 2, 3, 4]]
ALMOST = read_digits(["12.4", "3412", "2143", "4321"])


def test_a_solution_is_paid_two_and_half_more_if_it_took_few_actions():
    solved, reward = ALMOST.played(RIGHT)
    assert solved.solved
    assert reward == pytest.approx(-0.01 + 2.0 + 0.5)
    tried, _ = ALMOST.played([[0, 2, 1]])
    assert tried.steps == 2, "one for the step, one for the action"
    assert tried.played(RIGHT)[1] == pytest.approx(-0.01 + 2.0)


def test_the_last_cell_as_a_step_is_paid_for_the_step_and_the_solution():
    solved, reward = ALMOST.played([[0, 2, 3]])
    assert solved.solved
    step = -0.01 + 0.2 + 0.5 / 16 + 3 * 0.02 + 0.1
    assert reward == pytest.approx(step + 2.0 + 0.5)


def test_a_step_with_two_candidates_of_an_empty_grid():
    empty = read_digits(["12..", "....", "....", "...."])
    made, reward = empty.played([[0, 2, 3]])
    assert made.cells[0] == (1, 2, 3, 0)
    assert reward == pytest.approx(-0.01 + 0.1 + 0.5 / 16 + 0.02 + 0.1 * 3 / 16 + 0.05)


@pytest.mark.parametrize("step", [[0, 2, 1], [0, 0, 1], [0, 2, 5], [9, 0, 1], [-1, 2, 3]])
def test_a_step_that_cannot_be_costs_three_tenths(step):
    made, reward = ALMOST.played([step])
    assert made.cells == ALMOST.cells
    assert reward == pytest.approx(-0.3)


def test_a_wrong_grid_loses_its_constraints_and_half():
    wrong, reward = ALMOST.played([[1, 2, 1, 4], *RIGHT[1:]])
    assert not wrong.solved
    assert reward == pytest.approx(-0.01 + 0.5 / 16 - 6 * 0.02 - 0.5)
    assert wrong.played(RIGHT)[0].solved, "a grid replaces the one before"


def test_what_is_neither_a_grid_nor_steps_costs_one_and_nothing_is_free():
    letter, five = [["a", 2, 3, 4], *RIGHT[1:]], [[1, 2, 5, 4], *RIGHT[1:]]
    for action in ([[1, 2], [3]], [1, 2, 3], letter, five):
        assert ALMOST.played(action) == (ALMOST, -1.0)
    made, reward = ALMOST.played([])
    assert (made.cells, made.steps, reward) == (ALMOST.cells, 1, 0.0)
    assert ALMOST.played([["a", 0, 0]])[1] == 0.0, "a step of something else is passed over"


def test_a_grid_must_keep_the_givens_unless_they_are_free():
    assert ALMOST.played(OTHER) == (ALMOST, -1.0)
    free = read_digits(ALMOST.rows(), free_givens=True)
    assert free.played(OTHER)[0].solved


def test_the_solver_keeps_givens_and_knows_what_cannot_be():
    assert [list(row) for row in solve(ALMOST.givens)] == RIGHT
    assert solve(read_digits(["11..", "....", "....", "...."]).givens) is None
    assert solve(read_digits(["123.", "...4", "....", "...."]).givens) is None
    assert candidates(ALMOST.givens, 0, 2) == {3}
    nine = read_digits(["53..7....", "6..195...", ".98....6.", "8...6...3", "4..8.3..1",
                        "7...2...6", ".6....28.", "...419..5", "....8..79"])  # fmt: skip
    assert nine.solution()[0] == [5, 3, 4, 6, 7, 8, 9, 1, 2]


def test_drawn_grids_have_a_solution_and_are_read_again():
    for seed in range(20):
        puzzle = draw_digits(random.Random(seed), 4)
        assert 0 < sum(row.count(0) for row in puzzle.givens) < 13
        assert puzzle.played(puzzle.solution())[0].solved
        assert read_digits(puzzle.rows()) == puzzle


@pytest.mark.parametrize("rows", [[], ["1234"] * 3, ["12345"] * 4, ["123"] * 4, ["....."] * 5])
def test_rows_that_are_no_sudoku_are_refused(rows):
    with pytest.raises(ValueError, match="4 rows"):
        read_digits(rows)
