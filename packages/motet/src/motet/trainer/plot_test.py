import struct

from motet.core import Drawing
from motet.trainer.plot import (
    drawn_grids,
    learning_curve,
    moving_average,
)


def size_of(path):
    """Return width and height from the header of a PNG."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


def test_a_moving_average_takes_fewer_values_at_the_ends():
    assert moving_average([0.0, 3.0, 6.0, 9.0], 3) == [1.5, 3.0, 6.0, 7.5]
    assert moving_average([1.0, 2.0], 1) == [1.0, 2.0]
    assert moving_average([], 3) == []


def test_a_learning_curve_is_drawn_with_held_out_points_or_without_any_rows(tmp_path):
    rows = [
        {"step": step, "play/success": step / 30, "play/reward": step / 10} for step in range(1, 31)
    ]
    rows.append({"step": 15, "evaluate/success": 0.5})
    heldout = {"before": {"success": 0.25}, "after": {"success": 0.94}}
    learning_curve(rows, {"name": "full", "heldout": heldout}, tmp_path / "full.png")
    learning_curve([], {"name": "empty"}, tmp_path / "empty.png")
    assert size_of(tmp_path / "full.png") == size_of(tmp_path / "empty.png") == (1200, 840)
    assert (tmp_path / "full.png").stat().st_size > (tmp_path / "empty.png").stat().st_size


def test_grids_are_drawn_beside_and_below_each_other(tmp_path):
    grid = [["stone", "", "$x$"], ["", "dirt", "stone"]]
    drawn_grids(Drawing([{"one": grid}]), "a task", tmp_path / "one.png")
    both = {"one": grid, "two": grid * 9}
    drawn_grids(Drawing([both, {"three": grid}]), "a task", tmp_path / "three.png")
    drawn_grids(Drawing([{"empty": [["", ""]]}]), "", tmp_path / "empty.png")
    (width, height), (wider, higher) = (size_of(tmp_path / f"{n}.png") for n in ("one", "three"))
    assert wider >= width
    assert higher > height
    assert size_of(tmp_path / "empty.png")
