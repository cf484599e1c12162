import struct

import pytest

from motet.evaluation.intervals import Estimate
from motet_verifier.candidates import Candidate, JudgedPools, Pool
from motet_verifier.choosing import (
    LINES,
    METHODS,
    SUBSETS,
    SelectionRow,
    selection_curves,
    selection_table,
)
from tests.fixtures.finished_games import TASK, saying

RIGHT, WRONG = Candidate(0.9, "7", True), Candidate(0.1, "1", False)
JUDGED = {"7": RIGHT, "77": RIGHT, "1": WRONG, "11": WRONG}
"""Agent a says each text once and agent b twice, so both agents of a game give the same answer."""


def pool(*texts):
    return Pool(TASK, tuple(saying(*texts)), JUDGED, 0, ())


def test_rows_by_hand():
    found = selection_table(JudgedPools((pool("7", "1", "7"), pool("1")), scored=4), [2, 1, 2], 0)
    assert (found.scored, found.left_out, found.causes) == (4, 0, {})
    ((one, two),) = found.turns
    assert (one.k, one.tasks, one.tokens_per_task, one.all_subsets) == (1, 2, 3.0, True)
    assert (two.k, two.tasks, two.tokens_per_task, two.all_subsets) == (2, 1, 6.0, True)
    # k = 1: two of three games are right in the first task, none in the second.
    assert {method: found.mean for method, found in one.accuracy.items()} == dict.fromkeys(
        one.accuracy, pytest.approx(1 / 3)
    )
    # k = 2: of three pairs two are ties of votes, and all contain a right answer.
    assert {method: found.mean for method, found in two.accuracy.items()} == {
        "single": pytest.approx(2 / 3),
        "majority": pytest.approx(1 / 3),
        "weighted": 1.0,
        "best": 1.0,
        "any": 1.0,
    }


def test_a_k_that_no_task_has_gives_no_figures():
    ((row,),) = selection_table(JudgedPools((pool("7"),), scored=2), [2], 0).turns
    assert (row.tasks, row.tokens_per_task) == (0, None)
    assert set(row.accuracy.values()) == {None}


def test_a_row_says_whether_votes_cover_all_subsets():
    many = pool(*"71717171")
    four, eight = selection_table(JudgedPools((many,), scored=4), [4, 8], 0).turns[0]
    assert SUBSETS < 70  # C(8, 4)
    assert (four.all_subsets, eight.all_subsets) == (False, True)


def test_without_a_judged_game_there_are_no_rows():
    assert selection_table(JudgedPools((), scored=0), [1], 0).turns == []


def size_of(path):
    """Return width and height from the header of a PNG."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_every_way_of_choosing_has_a_line():
    assert list(LINES) == list(METHODS)


def test_a_selection_has_a_panel_per_turn_and_can_be_empty(tmp_path):
    def row(k, tokens):
        accuracy = {method: Estimate(k / 10, 0.0, 1.0) for method in METHODS}
        return SelectionRow(k, 3, tokens, True, accuracy)

    nobody = SelectionRow(4, 0, None, True, dict.fromkeys(METHODS))
    turns = [[row(1, 6.0), row(2, 12.0), nobody], [row(1, 12.5), row(2, 25.0), nobody]]
    selection_curves(turns, tmp_path / "two.png")
    selection_curves(turns[:1], tmp_path / "one.png")
    selection_curves([[row(1, 0.0), row(2, 0.0)]], tmp_path / "uncounted.png")
    selection_curves([], tmp_path / "empty.png")
    assert size_of(tmp_path / "one.png")[0] < size_of(tmp_path / "two.png")[0]
    assert (
        size_of(tmp_path / "one.png")
        == size_of(tmp_path / "empty.png")
        == size_of(tmp_path / "uncounted.png")
    )
    assert (tmp_path / "one.png").stat().st_size > (tmp_path / "empty.png").stat().st_size
