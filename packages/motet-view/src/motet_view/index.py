"""An index of the recorded games of a run: a SQLite file in the user's cache.

It holds the figures of every game, the words of every agent for the search, and where the line of
the game begins in its file. It can be deleted at any time: the next `update` builds it again.

Nothing is written into the run, and no database in the run is opened: the run may be a stranger's.
"""

import fcntl
import hashlib
import os
import re
import sqlite3
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic, sleep, time
from typing import TextIO

from motet.core import Episode, walk
from motet.core.row_values import readable
from motet.errors import ConfigError
from motet.rollout.record import episode_of
from motet.rollout.summary import episode_stats
from motet.safety import temporary
from motet_view.lines import Line, ReadPosition, after, continued, is_unchanged, lines_from
from motet_view.links import run_holds

VERSION = 2
"""Increased if the tables change. An index of another version is built again."""
_KEPT_SECONDS = 90 * 24 * 3600.0
"""An index that was not opened for this long is removed."""
SEARCHED = 200_000
"""The text search knows this many characters of what an agent wrote in a game."""
EXCERPT = 160
_SECONDS_PER_COMMIT = 0.5
_PATIENCE_SECONDS, _WAIT_SECONDS = 30.0, 0.1
_FILE = re.compile(r"(train|evaluate|pairs)-([0-9]{1,15})\.jsonl")
_TABLES = """
CREATE TABLE files (
    id INTEGER PRIMARY KEY, name TEXT UNIQUE, kind TEXT, step INTEGER,
    inode INTEGER, size INTEGER, changed INTEGER, offset INTEGER, tail BLOB,
    broken INTEGER, foreign_lines INTEGER, said TEXT);
CREATE TABLE games (
    id INTEGER PRIMARY KEY AUTOINCREMENT, file INTEGER, offset INTEGER, length INTEGER,
    kind TEXT, step INTEGER, episode TEXT, task TEXT, excerpt TEXT, reward REAL, success REAL,
    turns REAL, tokens INTEGER, faults INTEGER, causes TEXT, completions INTEGER, cut INTEGER);
CREATE TABLE agents (
    id INTEGER PRIMARY KEY AUTOINCREMENT, game INTEGER, agent TEXT, reward REAL);
CREATE INDEX games_kind ON games (kind, step, id);
CREATE INDEX games_step ON games (step, id);
CREATE INDEX games_faults ON games (causes) WHERE faults > 0;
CREATE INDEX games_task ON games (task, step);
CREATE INDEX games_file ON games (file);
CREATE INDEX agents_game ON agents (game, agent);
CREATE VIRTUAL TABLE words USING fts5 (said, content='');
"""


@dataclass(frozen=True)
class IndexState:
    """How complete the index is."""

    games: int
    bytes_read: int
    bytes_there: int
    broken: int
    """Lines that are no episode. They are skipped."""
    foreign_lines: int
    """Lines of another version of Motet, which this one cannot read. They are skipped."""
    unfinished: int
    """Files whose last line has no end yet: it is being written, or its writer was killed."""
    said: list[str]
    """What was wrong, with file and place: the first line of each file, of five files at most."""


class GameIndex:
    """The index of one run. It may be read by several threads and updated by one at a time."""

    def __init__(self, run: Path) -> None:
        self._folder = run / "episodes"
        self._lock = Lock()
        self._scratch = ExitStack()
        weakref.finalize(self, self._scratch.close)
        self._run = run
        self._name = f"{_digest(run)}.sqlite"
        self._there = 0
        try:
            self._path = cache_folder() / self._name
        except RuntimeError:  # this user has no home
            self._path = self._temporary()

    @property
    def path(self) -> Path:
        """The file of the index."""
        return self._path

    # -------------------------------------------------------------------------------------- reading

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for queries. An index that does not exist yet is empty."""
        with self._lock:
            self._ready()
        with closing(_connect(self._path)) as database:
            database.row_factory = sqlite3.Row
            yield database

    def state(self) -> IndexState:
        with self.reading() as database:
            (games,) = database.execute("SELECT count(*) FROM games").fetchone()
            totals = database.execute(
                "SELECT coalesce(sum(offset), 0), coalesce(sum(size), 0), "
                "coalesce(sum(broken), 0), coalesce(sum(foreign_lines), 0), "
                "coalesce(sum(offset < size), 0) FROM files"
            ).fetchone()
            said = database.execute("SELECT said FROM files WHERE said != '' LIMIT 5").fetchall()
        read, there, broken, foreign, unfinished = totals
        return IndexState(
            games,
            read,
            max(there, self._there),
            broken,
            foreign,
            unfinished,
            [one[0] for one in said],
        )

    # ------------------------------------------------------------------------------------- updating

    def update(self, progress: Callable[[int, int], None] = lambda done, total: None) -> bool:
        """Read what is new in the episode files. Return whether anything was.

        `progress` gets the bytes that are read and those that are to be read. If another viewer
        reads them, this waits for it. Raises: ConfigError if that one makes no progress.
        """
        with self._lock:
            self._ready()
        with _alone(self._path):
            try:
                return self._updated(progress)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):
                    raise  # such as a full disk
                with self._lock:  # damaged, such as after a power failure
                    self._path.unlink(missing_ok=True)
                    self._ready()
                return self._updated(progress)

    def _updated(self, progress: Callable[[int, int], None]) -> bool:
        with closing(_connect(self._path)) as database:
            known = {row[1]: row for row in database.execute("SELECT * FROM files")}
            found = self._files()
            gone = [row[0] for name, row in known.items() if name not in found]
            for file in gone:
                _forget(database, file)
                database.execute("DELETE FROM files WHERE id = ?", (file,))
            database.commit()
            todo: list[tuple[Path, ReadPosition]] = []
            self._there = 0
            for name, path in found.items():
                before = _position(known[name]) if name in known else ReadPosition()
                try:
                    self._there += path.stat().st_size
                    if not is_unchanged(path, before):
                        todo.append((path, continued(path, before)))
                except (OSError, ConfigError):
                    continue  # removed since it was listed
            total = sum(position.size - position.offset for _, position in todo)
            done = 0
            for path, position in todo:

                def read(to: int, before: int = done - position.offset) -> None:
                    progress(before + to, total)

                self._read(database, path, position, read)
                done += position.size - position.offset
            return bool(todo or gone)

    def _files(self) -> dict[str, Path]:
        if not self._folder.is_dir() or not run_holds(self._run, self._folder):
            return {}
        found = [path for path in self._folder.iterdir() if _FILE.fullmatch(path.name)]
        return {
            path.name: path
            for path in sorted(found)
            if path.is_file() and (not path.is_symlink() or run_holds(self._run, path))
        }

    def _read(
        self,
        database: sqlite3.Connection,
        path: Path,
        position: ReadPosition,
        progress: Callable[[int], None],
    ) -> None:
        matched = _FILE.fullmatch(path.name)
        assert matched is not None
        kind, step = matched[1], int(matched[2])
        row = database.execute("SELECT id FROM files WHERE name = ?", (path.name,)).fetchone()
        if row is None:
            row = database.execute(
                "INSERT INTO files VALUES (NULL, ?, ?, ?, 0, 0, 0, 0, x'', 0, 0, '') RETURNING id",
                (path.name, kind, step),
            ).fetchone()
        file = row[0]
        if position.offset == 0:
            _forget(database, file)
        said, saved = monotonic(), 0
        try:
            for line in lines_from(path, position.offset):
                _add(database, file, (kind, step), line, path.name)
                position = after(position, line)
                saved += 1
                if monotonic() - said > _SECONDS_PER_COMMIT:
                    _save(database, file, position)
                    said = monotonic()
                    progress(position.offset)
        except (OSError, ConfigError):
            pass  # removed or replaced while it was read: the next update forgets it
        _save(database, file, position)
        progress(position.size)

    # ------------------------------------------------------------------------------------- the file

    def _ready(self) -> None:
        """Create the file if it does not exist, is broken, or has other tables."""
        try:
            _own_folder(self._path.parent)
            if not _is_index(self._path):
                _create(self._path)
        except (OSError, sqlite3.OperationalError):
            # There is no cache that this user can write.
            self._path = self._temporary()
            _create(self._path)

    def _temporary(self) -> Path:
        self._scratch.close()
        return self._scratch.enter_context(temporary.folder("motet-view-")) / self._name


# -------------------------------------------------------------------------------------- the cache


def cache_folder() -> Path:
    """Return the folder of all indexes: motet/view in the user's cache (XDG_CACHE_HOME)."""
    said = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(said) if said.startswith("/") else Path("~/.cache").expanduser()
    return base / "motet" / "view"


def _digest(run: Path) -> str:
    """Return the name of the index of a run: a hash of the run's real path."""
    return hashlib.sha256(os.fsencode(os.path.realpath(run))).hexdigest()[:32]


def _own_folder(folder: Path) -> None:
    """Make the folder for this user alone, and remove what was not used for long.

    Raises: PermissionError if another user could write there; OSError.
    """
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by other users")


def _remove_unused(folder: Path) -> None:
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # another viewer was faster
            if time() - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()


@contextmanager
def _alone(index: Path) -> Iterator[None]:
    """Wait until no other process updates the index: both would add the same games.

    Raises: ConfigError if the other one makes no progress.
    """
    with index.with_suffix(".lock").open("w") as lock:
        begun, seen = monotonic(), -1
        while not _locked(lock):
            with suppress(FileNotFoundError):
                now = index.stat().st_mtime_ns
                begun, seen = (monotonic(), now) if now != seen else (begun, seen)
            if monotonic() - begun > _PATIENCE_SECONDS:
                raise ConfigError(
                    f"another viewer has read the games of {index} for {_PATIENCE_SECONDS:.0f} "
                    "seconds without progress; expected one that runs: end it"
                )
            sleep(_WAIT_SECONDS)
        yield


def _locked(lock: TextIO) -> bool:
    """Lock a file until it is closed. Return whether that was possible."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


# ------------------------------------------------------------------------------------------- SQLite


def _is_index(path: Path) -> bool:
    """Return whether a file is an index of this version, and note that it was used.

    Raises: OSError, OperationalError.
    """
    if not path.is_file():
        return False
    try:
        with closing(_connect(path)) as database:
            if database.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                return False
    except sqlite3.OperationalError:
        raise  # it cannot be opened, or another process locks it
    except sqlite3.DatabaseError:
        return False  # such as after a power failure
    os.utime(path)
    return True


def _create(path: Path) -> None:
    """Write an empty index whole, so that no other viewer finds half of one. Raises: OSError,
    OperationalError."""
    _remove_unused(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
    os.close(handle)
    beside = Path(name)
    try:
        with closing(_connect(beside)) as database:
            database.executescript(_TABLES)
            database.execute(f"PRAGMA user_version = {VERSION}")
        # SQLite would write the journal of a viewer that was killed into the new file.
        path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=30.0)
    database.execute("PRAGMA synchronous = OFF")  # the index can be built again
    return database


def _position(row: tuple[object, ...]) -> ReadPosition:
    inode, size, changed, offset, tail = row[4:9]
    assert isinstance(inode, int)
    assert isinstance(size, int)
    assert isinstance(changed, int)
    assert isinstance(offset, int)
    assert isinstance(tail, bytes)
    return ReadPosition(inode, size, changed, offset, tail)


def _save(database: sqlite3.Connection, file: int, position: ReadPosition) -> None:
    database.execute(
        "UPDATE files SET inode = ?, size = ?, changed = ?, offset = ?, tail = ? WHERE id = ?",
        (position.inode, position.size, position.changed_ns, position.offset, position.tail, file),
    )
    database.commit()


def _forget(database: sqlite3.Connection, file: int) -> None:
    """Remove the games of a file. Their words stay in the search, where nothing names them."""
    database.execute(
        "DELETE FROM agents WHERE game IN (SELECT id FROM games WHERE file = ?)", (file,)
    )
    database.execute("DELETE FROM games WHERE file = ?", (file,))
    database.execute(
        "UPDATE files SET broken = 0, foreign_lines = 0, said = '' WHERE id = ?", (file,)
    )


# ------------------------------------------------------------------------------------------- a game


def _add(
    database: sqlite3.Connection, file: int, of: tuple[str, int], line: Line, name: str
) -> None:
    """Add the game of a line, or count the line as broken."""
    try:
        if line.text is None:
            raise ConfigError(f"{name}, byte {line.offset}: the line has {line.length:,} bytes")
        episode = episode_of(line.text.decode(), f"{name}, byte {line.offset}")
        _insert(database, (file, line.offset, line.length, *of), episode)
    except (
        ConfigError,
        ArithmeticError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        foreign = "got schema" in str(error)
        said = visible_to_sqlite(str(error))
        column = "foreign_lines" if foreign else "broken"
        database.execute(
            f"UPDATE files SET {column} = {column} + 1, "
            "said = CASE said WHEN '' THEN ? ELSE said END WHERE id = ?",
            (said, file),
        )


def _insert(
    database: sqlite3.Connection, where: tuple[int, int, int, str, int], episode: Episode
) -> None:
    stats = episode_stats(episode)
    rounds = [round_ for _, round_ in walk(episode.root)] if episode.root is not None else []
    written: dict[str, list[str]] = {}
    completions = [one for round_ in rounds for group in round_.samples.values() for one in group]
    for round_ in rounds:
        for agent, group in round_.samples.items():
            written.setdefault(agent, []).extend(one.text for one in group)
    causes = sorted({f"{fault.where}/{fault.cause}" for fault in stats.faults})
    fields = " · ".join(str(value) for value in readable(episode.task.fields).values())
    excerpt = _beginning(fields)
    game = database.execute(
        "INSERT INTO games VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *where,
            *map(visible_to_sqlite, (episode.id, episode.task.id, excerpt)),
            stats.reward,
            stats.success,
            stats.turns,
            stats.tokens,
            len(stats.faults),
            visible_to_sqlite(" ".join(causes)),
            len(completions),
            sum(one.stop == "length" for one in completions),
        ),
    ).lastrowid
    words = {"": fields, **{agent: "\n".join(texts) for agent, texts in written.items()}}
    for agent, said in words.items():
        reward = stats.agent_rewards.get(agent)
        row = database.execute(
            "INSERT INTO agents VALUES (NULL, ?, ?, ?)", (game, visible_to_sqlite(agent), reward)
        ).lastrowid
        database.execute(
            "INSERT INTO words (rowid, said) VALUES (?, ?)",
            (row, visible_to_sqlite(said[:SEARCHED])),
        )


def _beginning(text: str) -> str:
    """Return the first words on one line. No word is cut: half a key could not be recognised."""
    words = text[: 8 * EXCERPT].split()
    if len(text) > 8 * EXCERPT:
        words = [*words[:-1], "…"]
    whole = " ".join(words)
    if len(whole) <= EXCERPT:
        return whole
    return f"{whole[:EXCERPT].rsplit(' ', 1)[0]} …"


def visible_to_sqlite(text: str) -> str:
    """Return the text with lone surrogates replaced, which SQLite cannot store."""
    return text.encode("utf-8", "replace").decode()
