import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from motet.core import Episode, Fault, Task
from motet.errors import ConfigError
from motet_view import index as module
from motet_view.index import GameIndex, _beginning, cache_folder
from motet_view.queries import GameFilter, choices, list_games
from tests.fixtures.messages import says
from tests.fixtures.recorded_runs import HOSTILE, game, make_run, write_games


def _games(index: GameIndex, **wanted) -> list[dict]:
    with index.reading() as database:
        return list_games(database, GameFilter(order="oldest", count=200, **wanted))["games"]


_real_cache_folder = cache_folder


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


def test_the_index_is_kept_in_the_cache_and_nothing_is_written_into_the_run(
    run: Path, own_cache: Path
) -> None:
    before = sorted(run.rglob("*"))
    index = GameIndex(run)
    assert index.update()
    assert not GameIndex(run).update()
    assert index.path.parent == own_cache
    assert sorted(run.rglob("*")) == before
    assert own_cache.stat().st_mode & 0o777 == 0o700


def test_the_cache_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HOME", str(tmp_path))
    for said, base in ((str(tmp_path / "x"), "x"), ("relative", ".cache"), ("", ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", said)
        assert _real_cache_folder() == tmp_path / base / "motet" / "view"


def test_a_database_in_the_run_is_neither_read_nor_replaced(run: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.sqlite"
    for place in (run / ".view" / "games.sqlite", mine):
        place.parent.mkdir(exist_ok=True)
        with sqlite3.connect(place) as database:
            database.execute("PRAGMA user_version = 1")
            database.execute(
                "CREATE VIEW games AS WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 "
                "FROM x) SELECT n AS id FROM x"
            )
        database.close()
    before = mine.read_bytes()
    (run / ".view" / "games.sqlite").unlink()
    (run / ".view" / "games.sqlite").symlink_to(mine)
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16
    assert mine.read_bytes() == before


def test_files_behind_links_that_leave_the_run_are_not_read(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.jsonl"
    (run / "episodes" / "train-000001.jsonl").rename(outside)
    (run / "episodes" / "train-000001.jsonl").symlink_to(outside)
    index = GameIndex(run)
    index.update()
    assert index.state().games == 13
    (run / "episodes").rename(tmp_path / "elsewhere")
    (run / "episodes").symlink_to(tmp_path / "elsewhere")
    index.update()
    assert index.state().games == 0


def test_an_index_that_was_not_opened_for_long_is_removed(run: Path, own_cache: Path) -> None:
    own_cache.mkdir(mode=0o700, exist_ok=True)
    old, recent = own_cache / "old.sqlite", own_cache / "recent.sqlite"
    for path in (old, recent):
        path.touch()
    os.utime(old, (0, 0))
    GameIndex(run).update()
    assert (old.exists(), recent.exists()) == (False, True)


def test_a_step_that_no_database_can_hold_is_no_file_of_a_run(run: Path) -> None:
    (run / "episodes" / f"train-{'9' * 40}.jsonl").write_text("")
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16


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
    assert says(state.said[0], "Motet reads schema 1")


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
    index = GameIndex(run)
    index.path.write_bytes(content)
    index.update()
    assert index.state().games == 16


def test_an_index_of_another_version_is_built_again(run: Path) -> None:
    index = GameIndex(run)
    index.update()
    with sqlite3.connect(index.path) as database:
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


def test_without_a_cache_of_this_user_the_index_is_temporary(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for place in ("file", "open"):
        monkeypatch.setattr(module, "cache_folder", lambda place=place: tmp_path / place)
        index = GameIndex(run)
        index.update()
        assert index.state().games == 16
        assert index.path.parent.name.startswith("motet-view-")


def test_an_index_that_another_user_may_have_written_is_not_opened(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "open"
    monkeypatch.setattr(module, "cache_folder", lambda: place)
    first = GameIndex(run)
    first.update()
    with sqlite3.connect(first.path) as database:
        database.execute("DELETE FROM games")
    database.close()
    place.chmod(0o777)
    assert GameIndex(run).state().games == 0
    second = GameIndex(run)
    second.update()
    assert second.state().games == 16
    assert second.path.parent != place


def test_a_cache_that_cannot_be_written_any_more_is_left(
    run: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    GameIndex(run).update()

    def refuse(path: Path) -> None:
        if path.parent == own_cache:
            raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(module.os, "utime", refuse)
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16
    assert index.path.parent.name.startswith("motet-view-")


def test_a_user_without_a_home_has_a_temporary_index(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(module, "cache_folder", refuse)
    index = GameIndex(run)
    index.update()
    assert index.state().games == 16


def test_two_viewers_add_every_game_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = GameIndex(run), GameIndex(run)
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.001)
    add, waits, begun = module._add, threading.Event(), threading.Event()

    def slow(database: sqlite3.Connection, *args: Any) -> None:
        begun.set()
        waits.wait(60)
        add(database, *args)

    def seen(seconds: float) -> None:
        waits.set()

    monkeypatch.setattr(module, "_add", slow)
    monkeypatch.setattr(module, "sleep", seen)
    other = threading.Thread(target=second.update)
    other.start()
    assert begun.wait(60)
    first.update()  # it waits for the other one, which the first wait lets go on
    other.join(60)
    assert (first.state().games, second.state().games) == (16, 16)
    assert len(_games(first)) == 16


def test_a_viewer_that_hangs_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = GameIndex(run)
    index.update()
    write_games(run, "train", 7, [game("late", 7, ["x"], [1.0])])
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(module, "sleep", lambda seconds: None)
    with module._alone(index.path), pytest.raises(ConfigError, match="without progress"):
        index.update()


def test_a_journal_that_a_killed_viewer_left_does_not_harm_a_new_index(run: Path) -> None:
    index = GameIndex(run)
    index.update()
    journal = index.path.with_name(f"{index.path.name}-journal")
    journal.write_bytes(b"left")
    index.path.write_bytes(b"no database")
    index.update()
    assert not journal.exists()
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


def test_no_half_of_a_word_is_in_an_excerpt(run: Path) -> None:
    """A key that is cut could not be recognised."""
    assert "sk-" not in _beginning(f"{' ' * 1255}the key is sk-abcdefghij0123456789")
    assert _beginning("a  b\nc") == "a b c"


def test_the_agents_are_those_of_games_that_were_played(run: Path) -> None:
    broken = Episode("9:t", Task("t", {}), None, fault=Fault("environment", "Bad", "no start"))
    write_games(run, "train", 9, [broken])
    index = GameIndex(run)
    index.update()
    with index.reading() as database:
        assert choices(database)["agents"] == ["ann", "bob"]


def test_a_temporary_index_of_a_killed_viewer_is_removed_by_the_next(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    program = (
        "import sys, os, signal\n"
        "from pathlib import Path\n"
        "import motet_view.index as module\n"
        f"module.cache_folder = lambda: Path({str(tmp_path / 'file')!r})\n"
        f"index = module.GameIndex(Path({str(run)!r}))\n"
        "index.update()\n"
        "print(index.path.parent, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    assert left.name.startswith("motet-view-")
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "file")
    index = GameIndex(run)
    index.update()
    assert not left.exists()
    own = index.path.parent
    assert own.is_dir()
    del index
    assert not own.exists()
