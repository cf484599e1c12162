import random

import pytest

from motet_tasks.planning.maze import Maze, draw_maze, read_maze

MAZE = read_maze(["S.G", ".#."])


def test_a_move_is_paid_the_step_and_the_way_that_it_saves():
    maze, reward = MAZE.played(["R"])
    assert maze.at == (0, 1)
    assert reward == pytest.approx(-0.01 - 0.99 * 1 + 2)
    assert MAZE.played(["D"])[1] == pytest.approx(-0.01 - 0.99 * 3 + 2)


@pytest.mark.parametrize("move", ["U", "L", "X", "RR", ""])
def test_a_move_that_leads_nowhere_costs_a_tenth_and_counts(move):
    maze, reward = MAZE.played([move])
    assert (maze.at, maze.steps) == ((0, 0), 1)
    assert reward == pytest.approx(-0.10 - 0.99 * 2 + 2)


def test_a_wall_is_no_way():
    assert MAZE.played(["R", "D"])[0].at == (0, 1)


def test_the_goal_is_paid_and_half_more_for_the_fewest_moves_since_the_start():
    maze, reward = MAZE.played(["R", "R", "L"])
    assert (maze.solved, maze.over, maze.steps) == (True, True, 2)
    assert reward == pytest.approx(1.0 + 0.99 + 1.0 + 0.5)
    detour, reward = MAZE.played(["D", "U", "R", "R"])
    assert detour.solved
    assert reward == pytest.approx(-0.98 + 1.01 + 1.0 + 0.99 + 1.0)
    halfway, _ = MAZE.played(["R"])
    assert halfway.played(["R"])[1] == pytest.approx(0.99 + 1.0 + 0.5), "both turns count"


def test_no_moves_pay_nothing_and_a_list_of_something_else_costs_one():
    assert MAZE.played([]) == (MAZE, 0.0)
    assert MAZE.played(["R", 3]) == (MAZE, -1.0)
    solved, _ = MAZE.played(["R", "R"])
    assert solved.played(["L"]) == (solved, 0.0)


def test_too_many_moves_are_a_failure():
    late = Maze(MAZE.grid, MAZE.start, MAZE.goal, MAZE.at, steps=9_999)
    over, reward = late.played(["D", "U"])
    assert (over.over, over.solved, over.at) == (True, False, (1, 0))
    assert reward == pytest.approx(-0.98 - 1.0)


def test_the_solution_is_a_shortest_way_around_walls():
    maze = read_maze(["S#G", ".#.", "..."])
    assert maze.solution() == ["D", "D", "R", "R", "U", "U"]
    assert read_maze(["S#G"]).solution() is None


def test_drawn_mazes_can_be_solved_and_are_read_again():
    for seed in range(20):
        maze = draw_maze(random.Random(seed), 6, 0.22)
        assert maze.played(maze.solution())[0].solved
        assert read_maze(maze.rows()) == maze
    walls = sum(
        row.count("#")
        for seed in range(50)
        for row in draw_maze(random.Random(seed), 10, 0.22).grid
    )
    assert 0.19 < walls / 5000 < 0.25


@pytest.mark.parametrize("rows", [[], ["S."], ["SG", "."], ["SSG"], ["SxG"]])
def test_rows_that_are_no_maze_are_refused(rows):
    with pytest.raises(ValueError, match="one S and one G"):
        read_maze(rows)
