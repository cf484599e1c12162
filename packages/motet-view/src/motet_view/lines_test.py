import os
from pathlib import Path

import pytest

from motet_view import lines
from motet_view.lines import ReadPosition, after, continued, is_unchanged, line_at, lines_from


def _read(path: Path, before: ReadPosition) -> tuple[list[bytes | None], ReadPosition]:
    position = continued(path, before)
    found = []
    for line in lines_from(path, position.offset):
        found.append(line.text)
        position = after(position, line)
    return found, position


def test_only_new_whole_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"one\ntwo\nhal")
    found, position = _read(path, ReadPosition())
    assert found == [b"one\n", b"two\n"]
    assert is_unchanged(path, position)
    with path.open("ab") as file:
        file.write(b"f\nthree\n")
    assert not is_unchanged(path, position)
    assert _read(path, position)[0] == [b"half\n", b"three\n"]


def test_a_rewritten_file_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"one\ntwo\n")
    _, position = _read(path, ReadPosition())
    path.write_bytes(b"ONE\nTWO\nTHREE\n")
    assert _read(path, position)[0] == [b"ONE\n", b"TWO\n", b"THREE\n"]
    path.write_bytes(b"x\n")
    assert _read(path, position)[0] == [b"x\n"]


def test_a_line_that_is_too_long_ends_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 8)
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"one\n" + b"x" * 100 + b"\ntwo\n" + b"y" * 20)
    found, position = _read(path, ReadPosition())
    assert found == [b"one\n", None]
    assert position.offset == 4 + 101 + 4 + 20
    assert _read(path, position) == ([], position)


def test_a_sparse_file_as_large_as_a_disk_is_left_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST", 1 << 20)
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"one\n")
    os.truncate(path, 1 << 39)
    found, position = _read(path, ReadPosition())
    assert found == [b"one\n", None]
    assert position.offset == 1 << 39


def test_a_line_is_found_again_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b"one\ntwo\nthree\n")
    second = list(lines_from(path, 0))[1]
    assert line_at(path, second.offset, second.length) == b"two\n"
