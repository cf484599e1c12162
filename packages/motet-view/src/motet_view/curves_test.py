import json
from pathlib import Path

import pytest

from motet_view import curves
from motet_view.curves import RunCurves


def _write(path: Path, *rows: object, how: str = "a") -> None:
    with path.open(how) as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def test_curves_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    found = RunCurves(path)
    found.update()
    assert (found.names, found.last_step) == ([], None)
    _write(path, {"step": 1, "play/reward": 0.5}, {"step": 1, "evaluate/reward": 0.25})
    found.update()
    _write(path, {"step": 2, "play/reward": 1})
    found.update()
    assert found.names == ["evaluate/reward", "play/reward"]
    assert found.curve("play/reward") == {"steps": [1, 2], "values": [0.5, 1.0], "mean_of": 1}
    assert found.curve("nothing") == {"steps": [], "values": [], "mean_of": 1}
    assert found.last_step == 2


def test_a_run_that_starts_again_replaces_the_curves(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    _write(path, {"step": 1, "play/reward": 0.5}, {"step": 2, "play/reward": 0.5})
    found = RunCurves(path)
    found.update()
    path.unlink()
    _write(path, {"step": 1, "play/turns": 3})
    found.update()
    assert found.names == ["play/turns"]


def test_broken_lines_are_counted_and_a_half_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    _write(path, {"step": 1, "play/reward": 1}, [], {"play/reward": 1}, {"step": "x"}, None)
    _write(path, {"step": 2, "play/reward": "much", "play/turns": float("nan"), "play/x": 10**400})
    with path.open("a") as file:
        file.write('{"step": 3, "play/re')
    found = RunCurves(path)
    found.update()
    assert found.broken == 5
    assert found.points("play/reward") == [(1, 1.0)]


def test_a_long_curve_is_sent_as_means(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST_POINTS", 3)
    path = tmp_path / "metrics.jsonl"
    _write(path, *({"step": step, "play/reward": float(step)} for step in range(1, 8)))
    found = RunCurves(path)
    found.update()
    assert found.curve("play/reward") == {
        "steps": [3, 6, 7], "values": [2.0, 5.0, 7.0], "mean_of": 3,
    }  # fmt: skip
