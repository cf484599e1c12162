import json
import os
import sqlite3
from pathlib import Path

import pytest

from motet.viewer.index import NAME, GameIndex
from motet.viewer.queries import GameFilter, list_games
from tests.fixtures.recorded_runs import HOSTILE, game, make_run, write_games


def _games(index: GameIndex, **wanted) -> list[dict]:
    with index.reading() as database:
        return list_games(database, GameFilter(order="oldest", count=200, **wanted))["games"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path)


def test_every_recorded_game_is_in_the_index_with_its_figures(run: Path) -> None:
    index = GameIndex(run)
    assert index.update()
    state = index.state()
    assert (state.games, state.broken, state.foreign_lines, state.unfinished) == (16, 0, 0, 0)
    assert state.bytes_read == state.bytes_there > 0
    (first, *_) = _games(index, kind="train")
    # joint action 0 (0.1) goes on to 0.1 and 1.0; joint action 1 (1.0) is pruned, so joint action 0
    # carries the weight of both: (0.1 + 1.0) / 2 + (0.1 + 1.0) / 2
    assert first["reward"] == pytest.approx(1.1)
    assert (first["success"], first["turns"], first["completions"]) == (0.5, 2.0, 8)
    assert first["excerpt"] == "What is sum 1?"


def test_a_second_look_reads_nothing_and_a_new_step_only_itself(run: Path) -> None:
    index = GameIndex(run)
    index.update()
    assert not index.update()
    write_games(run, "train", 5, [game("sum 9", 5, ["new"], [1.0])])
    seen: list[tuple[int, int]] = []
    assert index.update(lambda done, total: seen.append((done, total)))
    size = (run / "episodes/train-000005.jsonl").stat().st_size
    assert seen[-1] == (size, size)
    assert index.state().games == 17


def test_the_index_is_kept_beside_the_episodes(run: Path) -> None:
    GameIndex(run).update()
    assert not GameIndex(run).update()
    assert (run / ".view" / NAME).is_file()


def test_a_half_written_line_waits_for_its_end(run: Path) -> None:
    index = GameIndex(run)
    index.update()
    path = write_games(run, "train", 5, [game("sum 9", 5, ["new"], [1.0])])
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    index.update()
    assert (index.state().games, index.state().unfinished) == (16, 1)
    path.write_bytes(whole)
    index.update()
    assert (index.state().games, index.state().unfinished, index.state().broken) == (17, 0, 0)


@pytest.mark.parametrize(
    "line", ["{", "[]", "null", "[" * 100_000, '{"schema": 1, "id": 3}', "\udcff", '{"schema": 1}']
)
def test_a_broken_line_is_counted_and_the_next_one_is_read(run: Path, line: str) -> None:
    path = run / "episodes/train-000001.jsonl"
    with path.open("a", errors="surrogateescape") as file:
        file.write(line + "\n")
    write_games(run, "train", 1, [game("after", 1, ["x"], [1.0])])
    index = GameIndex(run)
    index.update()
    state = index.state()
    assert (state.games, state.broken) == (17, 1)
    assert any("train-000001.jsonl" in said or "utf-8" in said for said in state.said)
    assert [one["task"] for one in _games(index, task="after")] == ["after"]


def test_lines_of_another_version_are_counted_apart(run: Path) -> None:
    path = run / "episodes/train-000001.jsonl"
    line = json.loads(path.read_text().splitlines()[0]) | {"schema": 99}
    path.write_text(json.dumps(line) + "\n")
    index = GameIndex(run)
    index.update()
    state = index.state()
    assert (state.games, state.broken, state.foreign_lines) == (13, 0, 1)
    assert "this version of Motet reads schema 1" in state.said[0]


def test_a_file_that_is_written_again_replaces_its_games(run: Path) -> None:
    index = GameIndex(run)
    index.update()
    path = run / "episodes/train-000002.jsonl"
    path.unlink()
    index.update()
    assert index.state().games == 13
    write_games(run, "train", 2, [game("again", 2, ["x"], [1.0])])
    index.update()
    assert [one["task"] for one in _games(index, first_step=2, last_step=2)] == ["again"]
    assert _games(index, text="zebra", first_step=2, last_step=2) == []


@pytest.mark.parametrize("content", [b"no database", b""])
def test_a_broken_index_is_built_again(run: Path, content: bytes) -> None:
    GameIndex(run).update()
    (run / ".view" / NAME).write_bytes(content)
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16


def test_an_index_of_another_version_is_built_again(run: Path) -> None:
    index = GameIndex(run)
    index.update()
    with sqlite3.connect(run / ".view" / NAME) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    assert index.update()
    assert index.state().games == 16


def test_a_run_that_starts_again_in_its_folder_is_indexed_anew(run: Path, tmp_path: Path) -> None:
    index = GameIndex(run)
    index.update()
    run.rename(tmp_path / "old")
    make_run(tmp_path, steps=1)
    index.update()
    assert index.state().games == 7


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_run_that_cannot_be_written_is_indexed_elsewhere(run: Path) -> None:
    run.chmod(0o555)
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16
    assert not (run / ".view").exists()


def test_where_the_index_has_no_place_in_the_run_it_is_temporary(run: Path) -> None:
    (run / ".view").write_text("a file in the way")
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16


@pytest.mark.parametrize("name", HOSTILE)
def test_texts_of_any_kind_are_indexed(run: Path, name: str) -> None:
    said = HOSTILE[name]
    write_games(run, "train", 7, [game(said[:300], 7, [said], [1.0], fields={said[:50]: said})])
    index = GameIndex(run)
    index.update()
    assert (index.state().games, index.state().broken) == (17, 0)


def test_a_pipe_among_the_episodes_is_passed_over(run: Path) -> None:
    os.mkfifo(run / "episodes/train-000009.jsonl")
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16


def test_no_episodes_are_an_empty_index(tmp_path: Path) -> None:
    index = GameIndex(tmp_path)
    assert not index.update()
    assert index.state().games == 0


def test_an_excerpt_ends_with_a_whole_word(run: Path) -> None:
    text = "the key is " + "word " * 28 + "sk-0123456789abcdefghij and more"
    write_games(run, "train", 7, [game("keys", 7, ["x"], [1.0], fields={"question": text})])
    index = GameIndex(run)
    index.update()
    (one,) = _games(index, task="keys")
    assert one["excerpt"].endswith("word …")
