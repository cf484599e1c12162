"""The answers of the viewer, as plain JSON. The server sends them, and the export writes them."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from motet.errors import ConfigError
from motet.reading import check_regular
from motet.rollout.record import episode_of
from motet.viewer.game import game_tree, pieces_of
from motet.viewer.index import IndexState
from motet.viewer.lines import line_at
from motet.viewer.queries import (
    GameFilter,
    choices,
    games_of_task,
    list_games,
    neighbours,
    place_of_game,
)
from motet.viewer.secrets import shown_config, without_secrets
from motet.viewer.shelf import ShelfRun
from motet.viewer.team import team_figures

STEP_FOR_CREDIT = 64 << 20
"""Largest size in bytes of the episodes of a step whose advantages are computed."""
MARKED = ("run/alarms", "play/faults", "evaluate/faults")


class Pages:
    """Answers about a list of runs. Every answer is plain JSON without secrets."""

    def __init__(self, runs: Sequence[ShelfRun], version: str) -> None:
        self._runs = {run.name: run for run in runs}
        self._version = version
        self._indexing: dict[str, float] = {}
        self._trouble: dict[str, str] = {}

    # ------------------------------------------------------------------------------------- updating

    def update(
        self, progress: Callable[[str, int, int], None] = lambda run, done, total: None
    ) -> None:
        """Read what is new in all runs. `progress` gets the run, and the bytes done and in all."""
        for name, run in self._runs.items():
            run.curves.update()

            def say(done: int, total: int, name: str = name) -> None:
                self._indexing[name] = done / max(total, 1)
                progress(name, done, total)

            self._trouble.pop(name, None)
            try:
                run.index.update(say)
            except (OSError, sqlite3.Error) as error:  # such as a full disk; it is tried again
                self._trouble[name] = f"the games cannot be indexed: {error}"
            finally:
                self._indexing.pop(name, None)

    # -------------------------------------------------------------------------------------- answers

    def runs(self) -> dict[str, Any]:
        """All runs: state, steps, number of games, held-out success, and what is wrong."""
        return {
            "version": self._version,
            "runs": [self._clean(run, self._run_row(run)) for run in self._runs.values()],
        }

    def overview(self, name: str) -> dict[str, Any]:
        """The names of the metrics, alarms, steps with faults, and the most interesting games."""
        run = self._run(name)
        summary = run.summary
        points = {metric: run.curves.points(metric) for metric in MARKED}
        alarms = summary.get("alarms")
        if not isinstance(alarms, list):
            alarms = _alarms_of(points["run/alarms"])
        return self._clean(
            run,
            {
                "name": name,
                "metrics": run.curves.names,
                "alarms": alarms,
                "faults": [
                    {"step": step, "count": int(count), "where": metric.split("/")[0]}
                    for metric in MARKED[1:]
                    for step, count in points[metric]
                    if count
                ],
                "highlights": self._highlights(run, summary.get("highlights")),
                "warnings": summary.get("warnings") or [],
                "wall_seconds": summary.get("wall_seconds"),
                "config": shown_config(run.config),
            },
        )

    def curves(self, name: str, metrics: Sequence[str] | None) -> dict[str, Any]:
        """The curves of these metrics, or of all."""
        run = self._run(name)
        wanted = run.curves.names if metrics is None else metrics
        return self._clean(run, {metric: run.curves.curve(metric) for metric in wanted})

    def games(self, name: str, wanted: GameFilter) -> dict[str, Any]:
        """A page of the games that match, and what the filters offer."""
        run = self._run(name)
        with run.index.reading() as database:
            found = list_games(database, wanted) | {"choices": choices(database)}
        return self._clean(run, found)

    def game(self, name: str, game: int) -> dict[str, Any]:
        """One game as a tree, and the games before and after it."""
        run = self._run(name)
        path, offset, length, step, kind = self._place(run, game)
        line = line_at(path, offset, length)
        try:
            episode = episode_of(line.decode(), f"game {game} of {name}")
        except (ConfigError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"game {game} of {name} is not where it was: its file was written again; open the "
                "list of games again"
            ) from error
        with run.index.reading() as database:
            near = neighbours(database, game)
        tree = game_tree(episode, pieces_of(run.path, run.config))
        about = {"run": name, "id": game, "step": step, "kind": kind}
        return self._clean(run, {**about, **near, **tree})

    def advantages(self, name: str, game: int) -> dict[str, Any]:
        """The advantage of every completion of a training game, or why there is none.

        `advantages` is a list of (path of the Round, agent, index of the completion, value).
        """
        run = self._run(name)
        path, offset, length, step, kind = self._place(run, game)
        if kind != "train":
            return {"advantages": [], "why": "Only training games have advantages."}
        if path.stat().st_size > STEP_FOR_CREDIT:
            why = f"The games of step {step} have more than {STEP_FOR_CREDIT >> 20} MiB together."
            return {"advantages": [], "why": why}
        episode = episode_of(line_at(path, offset, length).decode(), f"game {game}")
        try:
            found = _advantages(run.path, step, path.stat().st_mtime_ns)
        except (ConfigError, ValueError, KeyError) as error:
            said = str(error).replace(str(run.path), name)
            return self._clean(run, {"advantages": [], "why": f"They cannot be computed: {said}"})
        own = [(one[1:]) for one in found if one[0] == episode.id]
        why = (
            ""
            if own
            else (
                "The algorithm needs more than the recorded rewards: a critic, a penalty in the "
                "reward, a moving average, a learned reward, pairs, or a credit function of your "
                "own. motet episodes calls that function."
            )
        )
        return self._clean(run, {"advantages": own, "why": why})

    def task(self, name: str, task: str) -> dict[str, Any]:
        """The games of a task in the order of training."""
        run = self._run(name)
        with run.index.reading() as database:
            found = games_of_task(database, task)
        return self._clean(run, {"run": name, "task": task, "games": found})

    def team(self, name: str) -> dict[str, Any]:
        """Controls, who persuades whom, conventions, baselines and cross-play, as evaluations have
        recorded them."""
        run = self._run(name)
        return self._clean(run, team_figures(run.path, run.summary))

    def configs(self, names: Sequence[str]) -> dict[str, Any]:
        """The keys in which the configs of these runs differ, with the value of each run."""
        configs = {
            name: self._clean(run, shown_config(run.config))
            for name in names
            for run in [self._run(name)]
        }
        keys = dict.fromkeys(key for config in configs.values() for key in config)
        rows = [
            {"key": key, "values": [config.get(key) for config in configs.values()]}
            for key in keys
            if len({repr(config.get(key)) for config in configs.values()}) > 1
        ]
        return {"runs": list(names), "rows": rows}

    # ------------------------------------------------------------------------------------ internals

    def _run(self, name: str) -> ShelfRun:
        if name not in self._runs:
            raise ConfigError(f"there is no run {name!r}; the viewer has {', '.join(self._runs)}")
        return self._runs[name]

    def _place(self, run: ShelfRun, game: int) -> tuple[Path, int, int, int, str]:
        with run.index.reading() as database:
            found = place_of_game(database, game)
        if found is None:
            raise ConfigError(f"{run.name} has no game {game}; open the list of games again")
        name, offset, length = found
        path = run.path / "episodes" / name
        kind, _, step = name.removesuffix(".jsonl").rpartition("-")
        try:
            check_regular(path, 1 << 40)
        except OSError as error:
            raise ConfigError(f"{name} of {run.name} was removed") from error
        return path, offset, length, int(step), kind

    def _run_row(self, run: ShelfRun) -> dict[str, Any]:
        config, summary, indexed = run.config, run.summary, run.index.state()
        train = config.get("train")
        heldout = summary.get("heldout")
        held = heldout if isinstance(heldout, Mapping) else {}
        return {
            "name": run.name,
            **run.state(),
            "step": run.curves.last_step,
            "steps": train.get("steps") if isinstance(train, Mapping) else None,
            "seed": config.get("seed"),
            "games": indexed.games,
            "indexing": self._indexing.get(run.name),
            "stamp": f"{run.curves.stamp}-{indexed.bytes_read}-{bool(summary)}-{run.evaluated_ns}",
            "heldout": {
                when: figures.get("success") if isinstance(figures, Mapping) else None
                for when, figures in held.items()
            },
            "notes": [*self._trouble_of(run), *_notes(indexed), *_notes_on_files(run)],
        }

    def _trouble_of(self, run: ShelfRun) -> list[str]:
        return [self._trouble[run.name]] if run.name in self._trouble else []

    def _highlights(self, run: ShelfRun, kept: Any) -> list[dict[str, Any]]:
        """The best, the worst and the most divergent game, with their numbers in the index."""
        found = []
        with run.index.reading() as database:
            for title, one in kept.items() if isinstance(kept, Mapping) else ():
                row = database.execute(
                    "SELECT id, reward FROM games "
                    "WHERE kind = 'train' AND step = ? AND episode = ?",
                    (one.get("step"), one.get("id")),
                ).fetchone()
                if row is not None:
                    found.append(
                        {"title": title, "step": one["step"], "id": row[0], "reward": row[1]}
                    )
        return found

    def _clean(self, run: ShelfRun, answer: dict[str, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = without_secrets(answer, run.secrets)
        return cleaned


def _alarms_of(counts: Sequence[tuple[int, float]]) -> list[dict[str, Any]]:
    """The steps at which alarms began, while there is no summary that names them."""
    before, found = 0.0, []
    for step, active in counts:
        if active > before:
            found.append({"step": step, "metric": None, "value": None, "bound": None})
        before = active
    return found


def _notes(indexed: IndexState) -> list[str]:
    """One line for each kind of thing that cannot be shown."""
    state = asdict(indexed)
    first = f" ({indexed.said[0]})" if indexed.said else ""
    texts = {
        "broken": "broken line(s) in the episode files are left out",
        "foreign_lines": "line(s) were written by another version of Motet and are left out",
        "unfinished": "episode file(s) end in the middle of a line, which is left out until it is "
        "whole",
    }
    return [
        f"{state[kind]:,} {text}{'' if kind == 'unfinished' else first}"
        for kind, text in texts.items()
        if state[kind]
    ]


def _notes_on_files(run: ShelfRun) -> list[str]:
    found = []
    if run.curves.broken:
        found.append(f"{run.curves.broken:,} broken line(s) in metrics.jsonl are left out")
    if run.folder.config.is_file() and not run.config:
        found.append("config.yaml cannot be read, so no setting is shown")
    if run.folder.summary.is_file() and not run.summary:
        found.append("summary.json cannot be read, so no result is shown")
    return found


@lru_cache(maxsize=4)
def _advantages(
    run: Path, step: int, changed_ns: int
) -> list[tuple[str, list[int], str, int, float]]:
    """Return episode, path, agent, index and advantage of every completion of a step."""
    from motet.api.recorded import advantages_of_step

    return [
        (id.episode, list(id.path), id.agent, id.index, value)
        for id, value in advantages_of_step(run, step).items()
    ]
