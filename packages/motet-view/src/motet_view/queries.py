"""Questions to the index: lists of games, filtered and paged."""

import re
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from motet.errors import ConfigError

Order = Literal["newest", "oldest", "best", "worst", "longest"]
MOST_OF_A_PAGE = 200
_ORDERS: Mapping[Order, str] = {
    "newest": "games.step DESC, games.id DESC",
    "oldest": "games.step, games.id",
    "best": "shown DESC, games.id",
    "worst": "shown, games.id",
    "longest": "games.tokens DESC, games.id",
}
_COLUMNS = (
    "games.id, kind, step, task, excerpt, success, turns, tokens, faults, causes, completions, cut"
)


@dataclass(frozen=True)
class GameFilter:
    """Which games to list. None: any."""

    kind: str | None = None
    """train, evaluate or pairs."""
    first_step: int | None = None
    last_step: int | None = None
    success: bool | None = None
    """Whether the success is 1. Games without success count as failed."""
    lowest: float | None = None
    highest: float | None = None
    """Bounds of the reward: that of `agent`, or the mean over agents."""
    fault: str | None = None
    """`any`, `none`, or a cause such as reward/Timeout."""
    cut: bool | None = None
    """Whether a completion was cut off."""
    agent: str | None = None
    """The agent whose reward is shown and whose texts are searched."""
    task: str | None = None
    text: str | None = None
    """Words that the task and the texts of all agents, or those of `agent`, contain together. The
    last may be the beginning of a word."""
    order: Order = "newest"
    start: int = 0
    count: int = 50


def list_games(database: sqlite3.Connection, wanted: GameFilter) -> dict[str, Any]:
    """Return a page of games and the number of all that match. Raises: ConfigError."""
    if wanted.order not in get_args(Order):
        raise ConfigError(
            f"got the order {wanted.order!r}; expected one of {', '.join(get_args(Order))}"
        )
    count, start = min(max(wanted.count, 1), MOST_OF_A_PAGE), max(wanted.start, 0)
    tables, conditions, values = _conditions(wanted)
    shown = "games.reward" if wanted.agent is None else "shown_agent.reward"
    where = f"FROM games {tables}" + (f" WHERE {' AND '.join(conditions)}" if conditions else "")
    order = _ORDERS[wanted.order]
    if wanted.order in ("best", "worst"):
        order = f"shown IS NULL, {order}"
    rows = database.execute(
        f"SELECT {_COLUMNS}, {shown} AS shown {where} ORDER BY {order} LIMIT ? OFFSET ?",
        (*values, count, start),
    ).fetchall()
    (total,) = database.execute(f"SELECT count(*) {where}", values).fetchone()
    return {"total": total, "start": start, "games": [_row(row) for row in rows]}


def choices(database: sqlite3.Connection) -> dict[str, Any]:
    """Return what the filters offer: kinds with their steps, agents, and causes of faults."""
    kinds = database.execute(
        "SELECT kind, min(step), max(step), count(*) FROM games GROUP BY kind ORDER BY kind DESC"
    ).fetchall()
    agents = database.execute(
        "SELECT DISTINCT agent FROM agents WHERE game IN "
        "(SELECT max(agents.game) FROM agents JOIN games ON games.id = agents.game "
        "WHERE agent != '' GROUP BY kind) AND agent != '' ORDER BY id"
    ).fetchall()
    causes = database.execute("SELECT DISTINCT causes FROM games WHERE faults > 0").fetchall()
    return {
        "kinds": [
            {"kind": kind, "first": first, "last": last, "games": games}
            for kind, first, last, games in kinds
        ],
        "agents": [agent for (agent,) in agents],
        "causes": sorted({cause for (line,) in causes for cause in line.split()}),
    }


def games_of_task(database: sqlite3.Connection, task: str, most: int = 400) -> list[dict[str, Any]]:
    """Return the games of a task in the order of training. At most `most`, spread evenly."""
    rows = database.execute(
        f"SELECT {_COLUMNS}, reward AS shown FROM games WHERE task = ? ORDER BY step, id", (task,)
    ).fetchall()
    every = -(-len(rows) // most) or 1
    return [_row(row) for row in rows[::every]]


def neighbours(database: sqlite3.Connection, game: int) -> dict[str, int | None]:
    """Return the games before and after one in its run."""

    def one(order: str, relation: str) -> int | None:
        row = database.execute(
            f"SELECT id FROM games WHERE id {relation} ? ORDER BY id {order} LIMIT 1", (game,)
        ).fetchone()
        return None if row is None else int(row[0])

    return {"previous": one("DESC", "<"), "next": one("ASC", ">")}


def place_of_game(database: sqlite3.Connection, game: int) -> tuple[str, int, int] | None:
    """Return the file name, offset and length of the line of a game."""
    row = database.execute(
        "SELECT files.name, games.offset, games.length FROM games JOIN files "
        "ON files.id = games.file WHERE games.id = ?",
        (game,),
    ).fetchone()
    return None if row is None else (row[0], row[1], row[2])


def _conditions(wanted: GameFilter) -> tuple[str, list[str], list[Any]]:
    tables, values = "", list[Any]()
    if wanted.agent is not None:
        tables = (
            "JOIN agents AS shown_agent ON shown_agent.game = games.id AND shown_agent.agent = ?"
        )
        values.append(wanted.agent)
    shown = "games.reward" if wanted.agent is None else "shown_agent.reward"
    tests: list[tuple[str, Any]] = [
        ("games.kind = ?", wanted.kind),
        ("games.step >= ?", wanted.first_step),
        ("games.step <= ?", wanted.last_step),
        (f"{shown} >= ?", wanted.lowest),
        (f"{shown} <= ?", wanted.highest),
        ("games.task = ?", wanted.task),
    ]
    conditions = [test for test, value in tests if value is not None]
    values += [value for _, value in tests if value is not None]
    if wanted.success is not None:
        conditions.append(
            "games.success = 1" if wanted.success else "coalesce(games.success, 0) < 1"
        )
    if wanted.cut is not None:
        conditions.append("games.cut > 0" if wanted.cut else "games.cut = 0")
    if wanted.fault in ("any", "none"):
        conditions.append("games.faults > 0" if wanted.fault == "any" else "games.faults = 0")
    elif wanted.fault is not None:
        conditions.append("' ' || games.causes || ' ' LIKE ? ESCAPE '!'")
        escaped = re.sub(r"([!%_])", r"!\1", wanted.fault)
        values.append(f"% {escaped} %")
    words = _words(wanted.text or "")
    for word in words:  # each may be in the text of another agent
        conditions.append(
            "games.id IN (SELECT agents.game FROM words JOIN agents ON agents.id = words.rowid "
            "WHERE words MATCH ?" + (" AND agents.agent = ?)" if wanted.agent is not None else ")")
        )
        values += [word] if wanted.agent is None else [word, wanted.agent]
    if not words and wanted.text and wanted.text.strip():
        conditions.append("0")  # only punctuation, which the search does not know
    return tables, conditions, values


def _words(text: str) -> list[str]:
    """Return a query of the text search for each word, in quotes, so that none is an operator."""
    quoted = [f'"{word}"' for word in re.findall(r"\w+", text.replace("\0", " "))]
    if quoted and text[-1:].isalnum():
        quoted[-1] += "*"
    return quoted


def _row(row: sqlite3.Row) -> dict[str, Any]:
    found = dict(row)
    found["reward"] = found.pop("shown")
    return found
