import random

import pytest

from motet_tasks.planning.warehouse import draw_warehouse, read_warehouse

ROOM = read_warehouse(["######", "#    #", "#@$. #", "######"])
TWO = read_warehouse(["######", "#@*  #", "#    #", "# $. #", "######"])


def test_a_box_pushed_onto_the_last_goal_wins():
    won, reward = ROOM.played(["R", "R"])
    assert (won.solved, won.over, won.steps) == (True, True, 1)
    assert reward == pytest.approx(-0.01 + 0.1 * (0.99 * 0 + 1) + 1.0 + 10.0)


def test_a_move_is_paid_the_step_and_a_tenth_of_the_shaping():
    assert ROOM.played(["U"])[1] == pytest.approx(-0.01 + 0.1 * (-0.99 + 1))
    for move in ("L", "D", "X"):
        room, reward = ROOM.played([move])
        assert (room.player, room.steps) == ((2, 1), 1)
        assert reward == pytest.approx(-0.05 + 0.1 * (-0.99 + 1))


def test_a_box_pushed_off_a_goal_costs_half():
    room, reward = TWO.played(["R"])
    assert room.boxes == {(1, 3), (3, 2)}
    assert reward == pytest.approx(-0.01 - 0.5 + 0.1 * (-0.99 * 2 + 1))


def test_a_box_does_not_move_into_a_wall_or_another_box():
    stuck = read_warehouse(["######", "#@$$.#", "#   .#", "######"])
    assert stuck.played(["R"])[0].boxes == stuck.boxes
    cornered = read_warehouse(["#####", "# @$#", "#.  #", "#####"])
    assert cornered.played(["R"])[0].player == (1, 2)
    assert cornered.solution() is None


def test_the_two_hundredth_move_fails_and_does_not_solve():
    room, reward = ROOM.played(["L"] * 300)
    assert (room.steps, room.over, room.solved) == (200, True, False)
    assert reward == pytest.approx(200 * -0.049 - 5.0)


def test_no_moves_pay_nothing_and_a_list_of_something_else_costs_one():
    assert ROOM.played([]) == (ROOM, 0.0)
    assert ROOM.played([["R"]]) == (ROOM, -1.0)


def test_the_solution_has_the_fewest_moves():
    around = read_warehouse(["######", "#    #", "#.$@ #", "#    #", "######"])
    assert around.solution() == ["L"]
    behind = read_warehouse(["######", "#    #", "# @$ #", "#.   #", "######"])
    assert behind.solution() == ["U", "R", "D", "R", "D", "L", "L"], "the box goes down, then left"


def test_drawn_rooms_can_be_solved_and_their_boxes_are_away_from_goals():
    for seed in range(10):
        room = draw_warehouse(random.Random(seed), 6, 1, 0.8)
        ((box,), (goal,)) = room.boxes, room.goals
        assert abs(box[0] - goal[0]) + abs(box[1] - goal[1]) >= 2
        assert room.played(room.solution())[0].solved
        assert read_warehouse(room.rows()) == room
        assert room.rows()[0] == room.rows()[-1] == "######"
    assert len(draw_warehouse(random.Random(0), 7, 2, 0.8).boxes) == 2


@pytest.mark.parametrize("rows", [[], ["@$"], ["@$.", "#"], ["@@$."], ["@ $x."], ["#."]])
def test_rows_that_are_no_warehouse_are_refused(rows):
    with pytest.raises(ValueError, match="one player"):
        read_warehouse(rows)
