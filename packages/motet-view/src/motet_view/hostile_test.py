"""Folders of strangers, and harmed ones: each run fails alone, and no answer is an error 500."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from motet.errors import ConfigError
from motet_view import server
from motet_view.app import create_viewer
from motet_view.export import UNFINISHED, export_viewer
from motet_view.index import GameIndex
from motet_view.pages import Pages, as_json
from motet_view.queries import GameFilter
from motet_view.shelf import find_runs
from tests.fixtures.messages import facts, says
from tests.fixtures.recorded_runs import game, make_run, write_games
from tests.fixtures.wide import widely

ODD: list[Any] = [
    None, True, "text", "\ud800", [], {}, [[]], {"a": 1}, [1, "2", None], float("nan"),
    float("inf"), -1, 10**18, 10**30, {"success": {}}, {"before": []}, {"step": [], "id": {}},
]  # fmt: skip
"""Values that no summary, config or evaluation has at most of its places."""
KEYS = (
    "name", "steps", "finished", "warnings", "heldout", "alarms", "highlights", "wall_seconds",
)  # fmt: skip


def every_answer(pages: Pages, name: str) -> list[Any]:
    """Ask for everything about a run. A question about one game may be refused."""
    pages.update()
    found = [pages.runs(), pages.overview(name), pages.curves(name, None), pages.team(name)]
    found.append(pages.configs([name]))
    asks: list[Callable[[], Any]] = [lambda: pages.games(name, GameFilter(count=5))]
    for number in (1, 2, -1, 10**30):
        asks.append(lambda number=number: pages.game(name, number))  # type: ignore[misc]
        asks.append(lambda number=number: pages.advantages(name, number))  # type: ignore[misc]
    asks.append(lambda: pages.task(name, "sum 1"))
    for ask in asks:
        try:
            found.append(ask())
        except ConfigError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("value", widely(ODD, keep=ODD[::2]), ids=repr)
def test_a_summary_a_config_or_an_evaluation_may_hold_anything(tmp_path: Path, value: Any) -> None:
    run = make_run(tmp_path, steps=1)
    summary = json.loads((run / "summary.json").read_text())
    (run / "evaluations").mkdir()
    (pages_run,) = find_runs([run])
    pages = Pages([pages_run], "0")
    every_answer(pages, "plain")
    for at, key in enumerate(KEYS):
        (run / "summary.json").write_text(json.dumps({**summary, key: value}) + " " * at)
        _check(pages)
    for at, inner in enumerate((*summary["heldout"]["after"], "messages", "interval")):
        after = {**summary["heldout"]["after"], inner: value}
        held = {"before": value, "after": after}
        (run / "summary.json").write_text(json.dumps({**summary, "heldout": held}) + " " * at)
        (run / "evaluations" / "x.json").write_text(json.dumps({**after, "about": value}))
        rows = {"tasks": value, "rows": [{"protocol": value, "success": value, "reward": value}]}
        (run / "evaluations" / "y.json").write_text(json.dumps(rows))
        cross = {"runs": [value], "success": [[value]], "agents": value}
        (run / "evaluations" / "z.json").write_text(json.dumps(cross))
        _check(pages)
    config = {"name": value, "seed": value, "train": value, "models": value, "policies": value}
    (run / "config.yaml").write_text(json.dumps(config))
    _check(pages)


def _check(pages: Pages) -> None:
    """Check that the answers have the form that the page's script expects."""
    (row,) = pages.runs()["runs"]
    assert all(_is_number(row[key]) for key in ("step", "steps")), row
    assert all(_is_number(one) for one in row["heldout"].values())
    overview = pages.overview("plain")
    assert all(isinstance(one, str) for one in overview["warnings"])
    assert all(isinstance(one["step"], int) for one in overview["alarms"])
    team = pages.team("plain")
    for one in team["evaluations"]:
        assert all(_is_number(one[key]) for key in ("success", "reward", "episodes", "faults"))
        assert one["influence"] is None or one["influence"]["turns"]
        assert all(isinstance(labels, dict) for labels in one["conventions"].values())
    for one in team["crossplays"]:
        assert one["agents"], "the script reads the first agent"
    json.dumps([row, overview, team], allow_nan=False)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _deep(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


HARMS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 9),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:-20]),
    "a list": lambda path: path.write_text("[1, 2]\n"),
    "a number": lambda path: path.write_text("1\n"),
    "NaN": lambda path: path.write_text("NaN\n"),
    "deep": lambda path: path.write_text(_deep(50_000) + "\n"),
    "huge numbers": lambda path: path.write_text('{"step": ' + "9" * 9000 + "}\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("gone")),
    "a link to itself": lambda path: (path.unlink(), path.symlink_to(path.name)),
    "a link to a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
    "forbidden": lambda path: path.chmod(0),
}
FILES = (
    "config.yaml", "summary.json", "metrics.jsonl", "episodes/train-000001.jsonl",
)  # fmt: skip


@pytest.mark.parametrize("file", widely(FILES, [FILES[3]]))
def test_a_harmed_run_is_shown_as_far_as_it_goes_and_the_others_are_whole(
    tmp_path: Path, file: str
) -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx2")
    from starlette.testclient import TestClient

    make_run(tmp_path, "whole", steps=1)
    for harm, harmed in HARMS.items():
        harmed(make_run(tmp_path, f"harmed by {harm}", steps=1) / file)
    pages = Pages(find_runs([tmp_path]), "0")
    pages.update()
    client = TestClient(create_viewer(pages, "0", everywhere=True))
    listed = client.get("/api/runs").json()["runs"]
    assert {one["name"]: one["games"] for one in listed}["whole"] == 7
    for row in listed:
        for path in ("overview", "curves", "team", "games", "configs"):
            assert client.get(f"/api/{path}", params={"run": row["name"]}).status_code == 200
        for path in ("game", "advantages"):
            for number in (1, 2, 10**30):
                asked = {"run": row["name"], "id": number}
                assert client.get(f"/api/{path}", params=asked).status_code in (200, 404, 422)
    written = export_viewer(pages, tmp_path / "out", 10)
    assert written["whole"] == 7


def test_a_game_that_cannot_be_shown_is_left_out_of_an_export(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", steps=1)
    file = run / "episodes" / "train-000001.jsonl"
    line = json.loads(file.read_text().splitlines()[0])
    deep = '{"a":' * 600 + "1" + "}" * 600
    for schema, fields in ((1, deep), (1.1, deep), (1.1, '{"$":"tuple","value":[' * 200 + "1")):
        line["schema"], line["task"]["fields"] = schema, {"deep": 0}
        fields += "]}" * fields.count("[")
        with file.open("a") as more:
            more.write(json.dumps(line).replace('{"deep": 0}', f'{{"deep": {fields}}}') + "\n")
    write_games(run, "train", 1, [game("nan", 1, ["x"], [float("1e308")])])
    pages = Pages(find_runs([run]), "0")
    assert export_viewer(pages, tmp_path / "out", 100)["plain"] == 8
    (note,) = pages.runs()["runs"][0]["notes"]
    assert says(note, "3 broken … task.fields … deeper than 302")


def test_an_error_in_one_run_is_the_note_of_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        make_run(tmp_path, name, steps=1)
    one, two = find_runs([tmp_path])
    monkeypatch.setattr(one.index, "update", _raise)
    monkeypatch.setattr(one.index, "state", _raise)
    pages = Pages([one, two], "0")
    pages.update()
    first, second = pages.runs()["runs"]
    assert any("RuntimeError: never seen before" in note for note in first["notes"])
    assert (first["games"], second["games"], second["notes"]) == (0, 7, [])


def _raise(*_: object) -> None:
    raise RuntimeError("never seen before")


def test_the_thread_that_reads_the_runs_says_an_error_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    over, lines, calls = threading.Event(), list[str](), list[int]()

    class Failing:
        def update(self, progress: object) -> None:
            calls.append(1)
            if len(calls) == 3:
                over.set()
            raise RuntimeError("the disk is gone")

    monkeypatch.setattr(server, "REFRESH_SECONDS", 0.0)
    server._watch(Failing(), lambda *_: None, over, lines.append)  # type: ignore[arg-type]
    (line,) = lines
    assert says(line, "runs … RuntimeError: the disk is gone")
    assert len(calls) == 3


def test_an_export_that_was_killed_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out = make_run(tmp_path / "runs", steps=1), tmp_path / "out"
    pages = Pages(find_runs([run]), "0")
    monkeypatch.setattr(pages, "configs", _raise)
    with pytest.raises(RuntimeError):
        export_viewer(pages, out, 10)
    assert (out / UNFINISHED).is_file()
    assert not (out / "index.html").exists(), "no page of half a run can be opened"
    monkeypatch.undo()
    assert export_viewer(pages, out, 10) == {"plain": 7}
    assert (out / "index.html").is_file()
    assert not (out / UNFINISHED).exists()
    with pytest.raises(ConfigError, match=facts("new … empty folder")):
        export_viewer(pages, out, 10)


def test_a_link_out_of_the_run_is_named_and_not_read(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs", steps=1)
    secret = tmp_path / "private.yaml"
    secret.write_text("users: [{name: me}]\n")
    (run / "config.yaml").unlink()
    (run / "config.yaml").symlink_to(secret)
    pages = Pages(find_runs([run]), "0")
    assert pages.overview("plain")["config"] == {}
    (row,) = pages.runs()["runs"]
    assert any(says(note, "config.yaml … link … leaves the run") for note in row["notes"])


def test_no_file_of_the_user_comes_out_of_a_strangers_config_or_episodes(tmp_path: Path) -> None:
    """The advantages of a game are computed from files of the run alone."""
    token = tmp_path / "token"
    token.write_text("machine example.org password hunter2hunter2\n")
    config = json.loads((make_run(tmp_path / "plain") / "config.yaml").read_text())

    def stranger(name: str, harm: Callable[[Path], object]) -> str:
        run = make_run(tmp_path / name, steps=1)
        harm(run)
        pages = Pages(find_runs([run]), "0")
        pages.update()
        (row,) = pages.games("plain", GameFilter(kind="train", count=1))["games"]
        why: str = pages.advantages("plain", row["id"])["why"]
        said = as_json([pages.runs(), pages.overview("plain"), why])
        assert "hunter2" not in said
        assert str(token) not in why
        return why

    def linked(run: Path) -> None:
        (run / "config.yaml").unlink()
        (run / "config.yaml").symlink_to(token)

    def extended(run: Path) -> None:
        (run / "config.yaml").write_text(json.dumps({**config, "extends": str(token)}))

    def second(run: Path) -> None:
        for name in ("train-1.jsonl", "train-01.jsonl"):
            (run / "episodes" / name).symlink_to(token)

    for name, harm in {"linked": linked, "extended": extended}.items():
        assert "link that leaves the run, or extends another file" in stranger(name, harm)
    stranger("second", second)


def test_what_could_not_be_shown_once_is_not_said_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = Pages(find_runs([make_run(tmp_path, steps=1)]), "0")
    pages.update()

    def full(self: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(GameIndex, "state", full)
        (row,) = pages.runs()["runs"]
        assert any("No space left" in note for note in row["notes"])
    (row,) = pages.runs()["runs"]
    assert not any("No space left" in note for note in row["notes"])
