"""Write the viewer as plain files that open from disk, without a server.

A browser lets a page from disk load scripts but no data. So every answer is a script that calls
`motetData` with the answer as a JSON string.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.errors import ConfigError
from motet.trainer.run_folder import writing
from motet_view.app import STATIC
from motet_view.pages import Pages, as_json
from motet_view.queries import MOST_OF_A_PAGE, GameFilter

FIRST_PAGE = "index.html"
UNFINISHED = ".unfinished-motet-export"
"""Stands in the folder while it is written. The page that is opened is written last."""
SEARCHED = 4000
"""The text search of an export knows this many characters of an agent in a game."""


def export_viewer(
    pages: Pages,
    folder: Path,
    most_games: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, int]:
    """Write the page and the answers about all runs to a new folder.

    At most `most_games` games of each run are written: the best and the worst of the training, and
    others spread evenly over the run. `progress` gets the games written and in all. Returns run ->
    number of games. A folder that an export left unfinished is written anew.

    Raises: ConfigError if the folder is not empty; OSError with the file.
    """
    if folder.is_dir() and (folder / UNFINISHED).is_file():
        _clear(folder)
    if os.path.lexists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists; expected a new or an empty folder for the export")
    above = next((one for one in folder.parents if one.exists() and not one.is_dir()), None)
    if above is not None:
        raise ConfigError(f"{folder} cannot be created: {above} is a file; expected a folder")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / UNFINISHED).touch()
        found = _export(pages, folder, most_games, progress)
        shutil.copy(STATIC / FIRST_PAGE, folder)
        (folder / UNFINISHED).unlink()
    return found


def _clear(folder: Path) -> None:
    """Remove what an unfinished export wrote: the folder was empty before it."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _export(
    pages: Pages, folder: Path, most_games: int, progress: Callable[[int, int], None]
) -> dict[str, int]:
    pages.update()
    shutil.copytree(STATIC, folder, ignore=shutil.ignore_patterns(FIRST_PAGE), dirs_exist_ok=True)
    data = folder / "data"
    data.mkdir()
    listed = pages.runs()
    names = [row["name"] for row in listed["runs"]]
    rows = {name: _chosen(pages, name, most_games) for name in names}
    total, done = sum(map(len, rows.values())), 0
    for number, name in enumerate(names):
        _write(data, f"overview-{number}", pages.overview(name))
        _write(data, f"curves-{number}", pages.curves(name, None))
        _write(data, f"team-{number}", pages.team(name))
        written = []
        for row, game in _readable(pages, name, rows[name]):
            _write(data, f"game-{number}-{row['id']}", game)
            written.append(row)
            row["written"] = _written(game["tree"])
            row["agent_rewards"] = game["agent_rewards"]
            done += 1
            progress(done, total)
        rows[name] = written
        _write(data, f"games-{number}", {"games": written, "choices": _choices(pages, name)})
    _write(data, "configs", pages.configs(names))
    for row in listed["runs"]:
        row["left_out"] = row["games"] - len(rows[row["name"]])
        row["state"] = "finished" if row["state"] == "finished" else "stopped"
        row["silent_seconds"] = None
    text = f"window.motetExport = JSON.parse({json.dumps(as_json(listed))});\n"
    with writing(folder / "export.js"):
        (folder / "export.js").write_text(text, encoding="ascii")
    return {name: len(found) for name, found in rows.items()}


def _readable(
    pages: Pages, name: str, rows: Sequence[dict[str, Any]]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the rows with their games, each with those before and after it.

    A game that cannot be shown is left out.
    """
    held: tuple[dict[str, Any], dict[str, Any]] | None = None
    for row in rows:
        try:
            game = pages.game(name, row["id"])
            game["credit"] = pages.advantages(name, row["id"])
        except ConfigError:
            continue
        game["previous"] = None if held is None else held[0]["id"]
        if held is not None:
            held[1]["next"] = row["id"]
            yield held
        held = (row, game)
    if held is not None:
        held[1]["next"] = None
        yield held


def _choices(pages: Pages, name: str) -> dict[str, Any]:
    """Return what the filters offer, or nothing if the games cannot be listed."""
    try:
        found: dict[str, Any] = pages.games(name, GameFilter(count=1))["choices"]
    except ConfigError:
        return {"kinds": [], "agents": [], "causes": []}
    return found


def _chosen(pages: Pages, name: str, most: int) -> list[dict[str, Any]]:
    """Return the rows of the games to write, in the order of the run."""
    rows: list[dict[str, Any]] = []
    while True:
        wanted = GameFilter(order="oldest", start=len(rows), count=MOST_OF_A_PAGE)
        try:
            page = pages.games(name, wanted)
        except ConfigError:  # the row of the run says what is wrong
            break
        rows += page["games"]
        if not page["games"]:
            break
    kept = [one["id"] for one in pages.overview(name)["highlights"]][:most]
    others = [row for row in rows if row["id"] not in kept]
    few = min(most - len(kept), len(others))
    even = {others[place * len(others) // few]["id"] for place in range(few)}
    chosen = [row for row in rows if row["id"] in even or row["id"] in kept]
    return sorted(chosen, key=lambda row: int(row["id"]))


def _written(tree: Mapping[str, Any] | None) -> dict[str, str]:
    """Return agent -> what it wrote in the game, for the text search."""
    found: dict[str, str] = {}
    todo = [tree] if tree is not None else []
    while todo:
        round_ = todo.pop(0)
        for agent, group in round_["samples"].items():
            found[agent] = " ".join([found.get(agent, ""), *(one["text"] for one in group)])
        todo += [one["next"] for one in round_["outcomes"] if one["next"] is not None]
    return {agent: text[:SEARCHED] for agent, text in found.items()}


def _write(data: Path, name: str, answer: Any) -> None:
    text = f"motetData({json.dumps(name)}, {json.dumps(as_json(answer))});\n"
    with writing(data / f"{name}.js"):
        (data / f"{name}.js").write_text(text, encoding="ascii")
