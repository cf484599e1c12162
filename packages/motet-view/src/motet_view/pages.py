"""The answers of the viewer, as plain JSON. The server sends them, and the export writes them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from motet.errors import ConfigError, shortened
from motet.rollout.record import episode_of
from motet.rollout.summary import episode_stats
from motet.safety.reading import check_regular
from motet.safety.secret_values import shown_config
from motet_view import plain
from motet_view.game import game_tree, pieces_of
from motet_view.index import IndexState
from motet_view.lines import line_at
from motet_view.links import run_holds
from motet_view.queries import (
    GameFilter,
    Order,
    choices,
    games_of_task,
    list_games,
    neighbours,
    place_of_game,
)
from motet_view.secrets import without_secrets
from motet_view.shelf import ShelfRun
from motet_view.team import team_figures

STEP_FOR_CREDIT = 64 << 20
"""Largest size in bytes of the episodes of a step whose advantages are computed."""
MARKED = ("run/alarms", "play/faults", "evaluate/faults")


def as_json(answer: Any) -> str:
    """Return JSON in ASCII, so that lone surrogates in a text do no harm."""
    return json.dumps(answer, allow_nan=False, separators=(",", ":"))


class Pages:
    """Answers about a list of runs. Every answer is plain JSON without secrets."""

    def __init__(self, runs: Sequence[ShelfRun], version: str) -> None:
        self._runs = {run.name: run for run in runs}
        self._version = version
        self._indexing: dict[str, float] = {}
        self._trouble: dict[str, str] = {}
        self._harm: dict[tuple[str, str], str] = {}

    # ------------------------------------------------------------------------------------- updating

    def update(
        self, progress: Callable[[str, int, int], None] = lambda run, done, total: None
    ) -> None:
        """Read what is new in all runs. `progress` gets the run, and the bytes done and in all."""
        for name, run in self._runs.items():

            def say(done: int, total: int, name: str = name) -> None:
                self._indexing[name] = done / max(total, 1)
                progress(name, done, total)

            try:
                run.curves.update()
                run.index.update(say)
            except Exception as error:  # noqa: BLE001  such as a full disk; it is tried again
                self._trouble[name] = f"the games cannot be indexed: {_said(error)}"
            else:
                self._trouble.pop(name, None)
            finally:
                self._indexing.pop(name, None)

    # -------------------------------------------------------------------------------- one run alone

    def _alone(
        self,
        run: ShelfRun,
        what: str,
        answer: Callable[[], Mapping[str, Any]],
        instead: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return an answer without secrets, or `instead` if the files of the run do not allow it.
        `what` is the kind of answer.

        The files may be harmed, or made by a stranger. Whatever is in them, the other runs are
        shown, and the row of this run says what is wrong.
        """
        try:
            found = self._clean(run, answer())
            as_json(found)
        except Exception as error:  # noqa: BLE001  the note of the run says it
            self._harm[run.name, what] = f"a part of this run cannot be shown: {_said(error)}"
            return dict(instead)
        self._harm.pop((run.name, what), None)
        return found

    def _or_refused(
        self, run: ShelfRun, what: str, answer: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return an answer without secrets. Raises: ConfigError if the files do not allow it."""
        try:
            found = self._clean(run, answer())
            as_json(found)
        except ConfigError as error:
            raise ConfigError(without_secrets(str(error), run.secrets)) from error
        except RecursionError as error:
            raise ConfigError(f"{what} of {run.name} is nested too deeply to be shown") from error
        except Exception as error:
            said = without_secrets(_said(error), run.secrets)
            raise ConfigError(f"{what} of {run.name} cannot be shown: {said}") from error
        return found

    # -------------------------------------------------------------------------------------- answers

    def runs(self) -> dict[str, Any]:
        """All runs: state, steps, number of games, held-out success, and what is wrong."""
        return {
            "version": self._version,
            "runs": [self._row_of(run) for run in self._runs.values()],
        }

    def overview(self, name: str) -> dict[str, Any]:
        """The names of the metrics, alarms, steps with faults, and the most interesting games."""
        run = self._run(name)
        nothing: dict[str, Any] = {"name": name, "metrics": [], "alarms": [], "faults": []}
        nothing |= {"highlights": [], "warnings": [], "wall_seconds": None, "config": {}}
        return self._alone(run, "overview", lambda: self._overview(run), nothing)

    def _overview(self, run: ShelfRun) -> dict[str, Any]:
        summary = run.summary
        points = {metric: run.curves.points(metric) for metric in MARKED}
        alarms = summary.get("alarms")
        return {
            "name": run.name,
            "metrics": run.curves.names,
            "alarms": plain.alarms(alarms)
            if isinstance(alarms, list)
            else _alarms_of(points["run/alarms"]),
            "faults": [
                {"step": step, "count": int(count), "where": metric.split("/")[0]}
                for metric in MARKED[1:]
                for step, count in points[metric]
                if count
            ],
            "highlights": self._highlights(run),
            "warnings": plain.texts(summary.get("warnings")),
            "wall_seconds": plain.number(summary.get("wall_seconds")),
            "config": shown_config(run.config),
        }

    def curves(self, name: str, metrics: Sequence[str] | None) -> dict[str, Any]:
        """The curves of these metrics, or of all."""
        run = self._run(name)
        wanted = run.curves.names if metrics is None else metrics
        empty = {metric: {"steps": [], "values": [], "mean_of": 1} for metric in wanted}
        return self._alone(
            run, "curves", lambda: {one: run.curves.curve(one) for one in wanted}, empty
        )

    def games(self, name: str, wanted: GameFilter) -> dict[str, Any]:
        """A page of the games that match, and what the filters offer."""
        run = self._run(name)

        def found() -> dict[str, Any]:
            with run.index.reading() as database:
                return list_games(database, wanted) | {"choices": choices(database)}

        return self._or_refused(run, "the list of games", found)

    def game(self, name: str, game: int) -> dict[str, Any]:
        """One game as a tree, and the games before and after it."""
        run = self._run(name)
        return self._or_refused(run, f"game {game}", lambda: self._game(run, game))

    def _game(self, run: ShelfRun, game: int) -> dict[str, Any]:
        name = run.name
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
        return {**about, **near, **tree, "agent_rewards": episode_stats(episode).agent_rewards}

    def advantages(self, name: str, game: int) -> dict[str, Any]:
        """The advantage of every completion of a training game, or why there is none.

        `advantages` is a list of (path of the Round, agent, index of the completion, value).
        """
        run = self._run(name)
        what = f"the credit of game {game}"
        return self._or_refused(run, what, lambda: self._credit(run, game))

    def _credit(self, run: ShelfRun, game: int) -> dict[str, Any]:
        name = run.name
        path, offset, length, step, kind = self._place(run, game)
        if kind != "train":
            return {"advantages": [], "why": "Only training games have advantages."}
        if path.stat().st_size > STEP_FOR_CREDIT:
            why = f"The games of step {step} have more than {STEP_FOR_CREDIT >> 20} MiB together."
            return {"advantages": [], "why": why}
        episode = episode_of(line_at(path, offset, length).decode(), f"game {game}")
        if not run_holds(run.path, run.folder.config) or "extends" in run.config:
            why = "The config is a link that leaves the run, or extends another file."
            return {"advantages": [], "why": why}
        try:
            found = _advantages(run.path, path, path.stat().st_mtime_ns)
        except (ConfigError, ValueError, KeyError) as error:
            said = str(error).replace(str(run.path), name)
            return {"advantages": [], "why": f"They cannot be computed: {said}"}
        own = [(one[1:]) for one in found if one[0] == episode.id]
        why = (
            ""
            if own
            else (
                "The algorithm needs more than the recorded rewards: a critic, a penalty in the "
                "reward, a moving average, a learned reward, pairs, or code that the config "
                "names, which the viewer does not load."
            )
        )
        return {"advantages": own, "why": why}

    def task(self, name: str, task: str) -> dict[str, Any]:
        """The games of a task in the order of training."""
        run = self._run(name)

        def found() -> dict[str, Any]:
            with run.index.reading() as database:
                return {"run": name, "task": task, "games": games_of_task(database, task)}

        return self._or_refused(run, "the games of a task", found)

    def team(self, name: str) -> dict[str, Any]:
        """Controls, who persuades whom, conventions, baselines, diagnoses and cross-play, as
        evaluations have recorded them."""
        run = self._run(name)
        kinds = ("evaluations", "baselines", "diagnoses", "crossplays", "unreadable")
        nothing = dict.fromkeys(kinds, ())
        figures = self._alone(run, "team", lambda: team_figures(run.path, run.summary), nothing)
        samples = plain.mapping(run.config.get("rollout")).get("samples")
        return {**figures, "turns": len(samples) if isinstance(samples, list) else 1}

    def configs(self, names: Sequence[str]) -> dict[str, Any]:
        """The keys in which the configs of these runs differ, with the value of each run."""
        configs = {
            name: self._alone(run, "config", partial(_config_of, run), {})
            for name in dict.fromkeys(names)
            for run in [self._run(name)]
        }
        keys = dict.fromkeys(key for config in configs.values() for key in config)
        rows = [
            {"key": key, "values": [config.get(key) for config in configs.values()]}
            for key in keys
            if len({repr(config.get(key)) for config in configs.values()}) > 1
        ]
        return {"runs": list(configs), "rows": rows}

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
        if not run_holds(run.path, path):
            raise ConfigError(f"{name} of {run.name} is a link that leaves the run")
        try:
            check_regular(path, 1 << 40)
        except OSError as error:
            raise ConfigError(f"{name} of {run.name} was removed") from error
        return path, offset, length, int(step), kind

    def _row_of(self, run: ShelfRun) -> dict[str, Any]:
        nothing: dict[str, Any] = {"name": run.name, "state": "stopped", "silent_seconds": None}
        nothing |= {"step": None, "steps": None, "seed": None, "games": 0, "indexing": None}
        nothing |= {"stamp": "", "heldout": {}}
        found = self._alone(run, "row", lambda: self._run_row(run), nothing)
        notes = [*found.get("notes", ()), *self._trouble_of(run)]
        return {**found, "notes": without_secrets(notes, run.secrets)}

    def _run_row(self, run: ShelfRun) -> dict[str, Any]:
        config, summary, indexed = run.config, run.summary, run.index.state()
        train = plain.mapping(config.get("train"))
        held, seed = plain.mapping(summary.get("heldout")), config.get("seed")
        return {
            "name": run.name,
            **run.state(),
            "step": run.curves.last_step,
            "steps": plain.number(train.get("steps")),
            "seed": plain.number(seed) if not isinstance(seed, str) else seed,
            "games": indexed.games,
            "indexing": self._indexing.get(run.name),
            "stamp": f"{run.curves.stamp}-{indexed.bytes_read}-{bool(summary)}-{run.evaluated_ns}",
            "heldout": {
                when: plain.number(plain.mapping(held[when]).get("success"))
                for when in ("before", "after")
                if when in held
            },
            "notes": [*_notes(indexed), *_notes_on_files(run)],
        }

    def _trouble_of(self, run: ShelfRun) -> list[str]:
        harm = [said for (name, _), said in self._harm.items() if name == run.name]
        indexing = [self._trouble[run.name]] if run.name in self._trouble else []
        return list(dict.fromkeys([*indexing, *harm]))

    def _highlights(self, run: ShelfRun) -> list[dict[str, Any]]:
        """The best and the worst game of the training."""
        orders: tuple[Order, ...] = ("best", "worst")
        found = []
        with run.index.reading() as database:
            for order in orders:
                wanted = GameFilter(kind="train", order=order, count=1)
                for row in list_games(database, wanted)["games"]:
                    if row["reward"] is not None:
                        about = {key: row[key] for key in ("id", "step", "reward")}
                        found.append({"title": order, **about})
        return found

    def _clean(self, run: ShelfRun, answer: Mapping[str, Any]) -> dict[str, Any]:
        cleaned: dict[str, Any] = without_secrets(answer, run.secrets)
        return cleaned


def _config_of(run: ShelfRun) -> dict[str, Any]:
    return shown_config(run.config)


def _said(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}")


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


def _files_of(run: ShelfRun) -> list[Path]:
    return [run.folder.config, run.folder.summary, run.folder.metrics, run.path / "episodes"]


def _notes_on_files(run: ShelfRun) -> list[str]:
    links = [
        path.name for path in _files_of(run) if path.is_symlink() and not run_holds(run.path, path)
    ]
    found = [f"{name} is a link that leaves the run, and is not read" for name in links]
    if run.curves.broken:
        found.append(f"{run.curves.broken:,} broken line(s) in metrics.jsonl are left out")
    if run.folder.config.is_file() and not run.config:
        found.append("config.yaml cannot be read, so no setting is shown")
    if run.folder.summary.is_file() and not run.summary:
        found.append("summary.json cannot be read, so no result is shown")
    return found


@lru_cache(maxsize=4)
def _advantages(
    run: Path, file: Path, changed_ns: int
) -> list[tuple[str, list[int], str, int, float]]:
    """Return episode, path, agent, index and advantage of every completion in a file."""
    from motet_view.recorded import advantages_in

    return [
        (id.episode, list(id.path), id.agent, id.index, value)
        for id, value in advantages_in(run, file).items()
    ]
