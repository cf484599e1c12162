"""Write the viewer as plain files that open from disk, without a server.

A browser lets a page from disk load scripts but no data. So every answer is a script that calls
`motetData` with the answer as a JSON string.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from motet.errors import ConfigError
from motet.viewer.app import STATIC, as_json
from motet.viewer.pages import Pages
from motet.viewer.queries import MOST_OF_A_PAGE, GameFilter

SEARCHED = 4000
"""The text search of an export knows this many characters of an agent in a game."""


def export_viewer(
    pages: Pages,
    folder: Path,
    most_games: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, int]:
    """Write the page and the answers about all runs to a new folder.

    At most `most_games` games of each run are written: those with the best, worst and most
    different rewards, and others spread evenly over the run. `progress` gets the games written and
    in all. Returns run -> number of games. Raises: ConfigError if the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} exists; expected a new or an empty folder for the export")
    pages.update()
    shutil.copytree(STATIC, folder, dirs_exist_ok=True)
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
        for place, row in enumerate(rows[name]):
            game = pages.game(name, row["id"]) | {
                "previous": rows[name][place - 1]["id"] if place else None,
                "next": rows[name][place + 1]["id"] if place + 1 < len(rows[name]) else None,
            }
            game["credit"] = pages.advantages(name, row["id"])
            _write(data, f"game-{number}-{row['id']}", game)
            row["written"] = _written(game["tree"])
            row["agent_rewards"] = _agent_rewards(game["tree"])
            done += 1
            progress(done, total)
        offered = pages.games(name, GameFilter(count=1))
        _write(data, f"games-{number}", {"games": rows[name], "choices": offered["choices"]})
    _write(data, "configs", pages.configs(names))
    for row in listed["runs"]:
        row["left_out"] = row["games"] - len(rows[row["name"]])
        row["state"] = "finished" if row["state"] == "finished" else "stopped"
        row["silent_seconds"] = None
    text = f"window.motetExport = JSON.parse({json.dumps(as_json(listed))});\n"
    (folder / "export.js").write_text(text, encoding="ascii")
    return {name: len(found) for name, found in rows.items()}


def _chosen(pages: Pages, name: str, most: int) -> list[dict[str, Any]]:
    """Return the rows of the games to write, in the order of the run."""
    rows: list[dict[str, Any]] = []
    while True:
        wanted = GameFilter(order="oldest", start=len(rows), count=MOST_OF_A_PAGE)
        page = pages.games(name, wanted)
        rows += page["games"]
        if not page["games"]:
            break
    kept = {one["id"] for one in pages.overview(name)["highlights"]}
    every = max(len(rows) / max(most - len(kept), 1), 1.0)
    even = {int(place * every) for place in range(int(len(rows) / every) + 1)}
    chosen = [row for place, row in enumerate(rows) if place in even or row["id"] in kept]
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


def _agent_rewards(tree: Mapping[str, Any] | None) -> dict[str, float]:
    """Return agent -> its reward: the sum over turns of the mean over joint actions."""
    if tree is None:
        return {}
    valid: Sequence[Mapping[str, Any]] = [one for one in tree["outcomes"] if one["fault"] is None]
    found: dict[str, float] = {}
    for outcome in valid:
        below = _agent_rewards(outcome["next"])
        for agent, reward in outcome["rewards"].items():
            found[agent] = found.get(agent, 0.0) + (reward + below.get(agent, 0.0)) / len(valid)
    return found


def _write(data: Path, name: str, answer: Any) -> None:
    text = f"motetData({json.dumps(name)}, {json.dumps(as_json(answer))});\n"
    (data / f"{name}.js").write_text(text, encoding="ascii")
