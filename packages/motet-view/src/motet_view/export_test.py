import json
from pathlib import Path
from typing import Any

import pytest

from motet.errors import ConfigError
from motet_view.export import export_viewer
from motet_view.pages import Pages
from motet_view.shelf import find_runs
from tests.fixtures.messages import facts
from tests.fixtures.recorded_runs import game, make_hostile_run, make_run, write_games


def _pages(runs: Path) -> Pages:
    return Pages(find_runs([runs]), "1.2.3")


def _answer(folder: Path, name: str) -> Any:
    """Return the answer in a script, which calls motetData(name, json)."""
    text = (folder / "data" / f"{name}.js").read_text("ascii")
    assert text.startswith(f'motetData("{name}", "')
    return json.loads(json.loads(text[text.index(", ") + 2 : text.rindex(")")]))


def test_an_export_has_the_page_and_every_answer(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    folder = tmp_path / "report"
    assert export_viewer(_pages(tmp_path / "runs"), folder, 1000) == {"plain": 16}
    assert (folder / "index.html").is_file()
    assert (folder / "vendor" / "uPlot.LICENSE").is_file()
    listed = _answer(folder, "games-0")
    assert len(listed["games"]) == 16
    row = next(one for one in listed["games"] if one["task"] == "sum 1" and one["step"] == 4)
    assert row["written"]["bob"].startswith(" bob: first answer 4")
    # the mean of 0.4 and 1.0, and then that of the game of joint action 0, for joint action 1 too
    assert row["agent_rewards"]["ann"] == pytest.approx((0.4 + 1.0) / 2 + (0.4 + 1.0) / 2)
    assert row["agent_rewards"]["ann"] == row["reward"], "as the list of games has it"
    game = _answer(folder, f"game-0-{row['id']}")
    assert game["task"]["id"] == "sum 1"
    assert game["credit"]["advantages"] == []
    assert "play/reward" in _answer(folder, "curves-0")
    assert len(_answer(folder, "team-0")["evaluations"]) == 2


def test_a_large_run_is_thinned_and_keeps_its_best_game(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    folder = tmp_path / "report"
    assert export_viewer(_pages(tmp_path / "runs"), folder, 5) == {"plain": 5}
    games = _answer(folder, "games-0")["games"]
    assert {"sum 1"} <= {one["task"] for one in games if one["step"] == 4}
    ids = [one["id"] for one in games]
    assert [_answer(folder, f"game-0-{one}")["next"] for one in ids] == [*ids[1:], None]
    text = (folder / "export.js").read_text()
    runs = json.loads(json.loads(text[text.index("(") + 1 : text.rindex(")")]))
    assert runs["runs"][0]["left_out"] == 16 - len(ids)


def test_an_export_has_no_path_of_the_machine_and_no_code_in_its_data(tmp_path: Path) -> None:
    make_hostile_run(tmp_path / "runs")
    folder = tmp_path / "report"
    export_viewer(_pages(tmp_path / "runs"), folder, 1000)
    for path in [*(folder / "data").iterdir(), folder / "export.js"]:
        text = path.read_text("ascii")
        assert str(tmp_path) not in text
        assert text.count("\n") == 1, "one statement on one line"


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    with pytest.raises(ConfigError, match=facts("runs exists … new … empty folder")):
        export_viewer(_pages(tmp_path / "runs"), tmp_path / "runs", 10)


def test_no_secret_of_the_machine_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hf_0123456789abcdef"
    monkeypatch.setenv("HF_TOKEN", secret)
    run = make_run(tmp_path / "runs")
    write_games(run, "train", 9, [game(f"say {secret}", 9, [f"it is {secret}"], [1.0])])
    folder = tmp_path / "report"
    export_viewer(_pages(tmp_path / "runs"), folder, 1000)
    texts = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert not [path for path, text in texts.items() if secret.encode() in text]
    assert any(b"[hidden]" in text for text in texts.values())


@pytest.mark.parametrize("most", [1, 2, 16])
def test_no_more_games_are_written_than_were_asked_for(tmp_path: Path, most: int) -> None:
    make_run(tmp_path / "runs")
    assert export_viewer(_pages(tmp_path / "runs"), tmp_path / "report", most) == {"plain": most}


def test_an_export_below_a_file_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "runs")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is a file; expected a folder"):
        export_viewer(_pages(tmp_path / "runs"), tmp_path / "file" / "report", 5)
