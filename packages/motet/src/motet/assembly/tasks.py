"""Get tasks from the environment itself, or from the rows of a dataset."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from motet.config.schema import RunConfig
from motet.config.sections import DataSource
from motet.core import Environment, OwnsTasks, ReadsRows, Task, class_name
from motet.core.row_values import kept
from motet.data.load import check_fields, load_rows
from motet.errors import ConfigError, MotetError, shortened
from motet.user_code.own_code import place_of_error


class Tasks(Mapping[str, list[Task]]):
    """Split -> its tasks.

    A split is read at its first access, because an evaluation may never need the training tasks.
    `section` is the key of the data in the config, for messages.
    """

    def __init__(
        self, config: RunConfig, environment: Environment[Any], section: str = "data"
    ) -> None:
        self._config, self._environment, self._section = config, environment, section
        self._sources = {"train": config.data.train, "eval": config.data.eval}
        own = isinstance(environment, OwnsTasks)
        self._splits = [
            split for split, source in self._sources.items() if own or source is not None
        ]
        self._read: dict[str, list[Task]] = {}
        self.passed_over: dict[str, int] = {}
        """Split -> the number of dataset rows that gave no task. Only for splits that were read and
        have such rows."""
        self.warnings: list[str] = []
        """Warnings about the datasets that were read."""

    def __getitem__(self, split: str) -> list[Task]:
        if split not in self._splits:
            raise KeyError(split)
        if split not in self._read:
            self._read[split] = self._tasks_of(split)
        return self._read[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    @property
    def first(self) -> Task | None:
        """The first task of the first split that was read. None if none was."""
        return next((tasks[0] for tasks in self._read.values()), None)

    @property
    def firsts(self) -> list[Task]:
        """The first task of each environment of a mixture, in that split; else `first` alone."""
        tasks = next(iter(self._read.values()), [])
        return list({task.environment: task for task in reversed(tasks)}.values())

    @property
    def shared(self) -> int:
        """The number of tasks of `eval` that are also tasks of `train`."""
        if len(self) < 2:
            return 0
        trained = {task.id: task for task in self["train"]}
        return sum(task.id in trained and trained[task.id] == task for task in self["eval"])

    def _tasks_of(self, split: str) -> list[Task]:
        config, environment, source = self._config, self._environment, self._sources[split]
        if source is not None:
            where = f"{self._section}.{split}"
            of_rows, warnings = _from_rows(source, where, environment)
            self.warnings += [f"{where}: {line}" for line in warnings]
            empty = sum(not tasks for tasks in of_rows)
            self.passed_over |= {split: empty} if empty else {}
        else:
            where = f"{config.environment.name}, tasks({split!r})"
            assert isinstance(environment, OwnsTasks)
            with asking(where):
                of_rows = [list(environment.tasks(split))]
        _refuse_repeats(of_rows, where)
        found = [
            replace(task, fields=kept(task.fields, f"{where}: task {task.id!r}"))
            for task in _told_apart(of_rows)
        ]
        if not found:
            given = (
                f"; none of {self.passed_over[split]} rows gives any"
                if split in self.passed_over
                else ""
            )
            raise ConfigError(
                f"{config.environment.name} has no tasks for {split!r}; expected at least "
                f"one{given}"
            )
        return found[: config.evaluation.tasks] if split == "eval" else found


def tasks_of(config: RunConfig, environment: Environment[Any], *, train: bool) -> Tasks:
    """Return the tasks; the splits that the command needs are already read."""
    found = Tasks(config, environment)
    wanted = "train" if train else "eval"
    if wanted not in found:
        name = config.environment.name
        raise ConfigError(
            f"environment {name} has no tasks of its own: set data.{wanted}.path to a file of "
            f"rows, or data.{wanted}.name to a dataset of the hub"
        )
    for split in found if train else ("eval",):
        found[split]
    return found


def _from_rows(
    source: DataSource, where: str, environment: Environment[Any]
) -> tuple[list[list[Task]], tuple[str, ...]]:
    """Return the tasks of every row, and warnings about the dataset."""
    if not isinstance(environment, ReadsRows):
        raise ConfigError(
            f"{where} is set, but {class_name(environment)} does not read rows: define "
            "task(row), or drop data"
        )
    loaded = load_rows(path=source.path, name=source.name, split=source.split, subset=source.subset)
    rows = loaded.rows
    check_fields(rows, source.fields.values(), f"{where}.fields")
    renamed = [
        {**row, **{ours: row[theirs] for ours, theirs in source.fields.items()}} for row in rows
    ]
    tasks = [
        from_row(row, f"{where}, row {number}", environment)
        for number, row in enumerate(renamed, start=1)
    ]
    return tasks, loaded.warnings


def _told_apart(of_rows: list[list[Task]]) -> list[Task]:
    """Return all tasks with unique ids.

    If an earlier task has used an id, the number of the row is appended, as in `total#7`; if a task
    of the data has this id too, it is appended again. Ids seed the sampling and decide which
    completions are compared. Rows without an id often get one from their question, so ids may
    repeat.
    """
    given = {task.id for tasks in of_rows for task in tasks}
    found: list[Task] = []
    used: set[str] = set()
    for number, tasks in enumerate(of_rows, start=1):
        for task in tasks:
            name = task.id
            while name in used or (name != task.id and name in given):
                name = f"{name}#{number}"
            found.append(task if name == task.id else replace(task, id=name))
            used.add(name)
    return found


def _refuse_repeats(of_rows: list[list[Task]], where: str) -> None:
    """Raise ConfigError if one row, or the environment, gives several tasks of one id."""
    for tasks in of_rows:
        repeated = [name for name, count in Counter(task.id for task in tasks).items() if count > 1]
        if repeated:
            raise ConfigError(
                f"{where}: several tasks have the id {repeated[0]!r}; expected unique ids: set a "
                "different id for each task"
            )


def from_row(row: Mapping[str, Any], where: str, environment: ReadsRows) -> list[Task]:
    """Return the tasks of one row. Raises: ConfigError."""
    with asking(f"{where} with {shortened(', '.join(map(str, row)))}"):
        try:
            made = environment.task(row)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
    return [made] if isinstance(made, Task) else list(made)


@contextmanager
def asking(what: str) -> Iterator[None]:
    """Turn an exception of user code into a ConfigError, one line with the place of its cause."""
    try:
        yield
    except MotetError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{what}: {type(error).__name__}: {error} ({place_of_error(error)})"
        ) from error
