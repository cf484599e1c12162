"""The levels of the training tasks, for `train.task_sampling`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from motet.assembly.tasks import asking
from motet.config.schema import RunConfig
from motet.core import Environment, RanksTasks, Task, class_name
from motet.errors import ConfigError
from motet.settings import InformativeSampling, LevelSampling

TaskLevel: TypeAlias = int | float | str
ENVIRONMENT = "environment"
"""The field that stands for the environment of a task in a mixture."""


def task_levels(
    config: RunConfig, environment: Environment[Any], tasks: Sequence[Task]
) -> Mapping[str, int | str]:
    """Return training task -> its level, counted from 0, or with kind informative the value of
    `field`. Empty if `train.task_sampling` reads no levels.

    Raises: ConfigError if a task has no level, or if they have no order.
    """
    match config.train.task_sampling:
        case InformativeSampling(field=str() as field):
            return {task.id: str(_of_field(task, field)) for task in tasks}
        case LevelSampling(field=None):
            found = _of_environment(environment, tasks)
        case LevelSampling(field=str() as field):
            found = {task.id: _of_field(task, field) for task in tasks}
        case _:
            return {}
    order = _ordered(config.train.task_sampling.order, found)
    return {task: order.index(level) for task, level in found.items()}


def _of_environment(environment: Environment[Any], tasks: Sequence[Task]) -> dict[str, TaskLevel]:
    if not isinstance(environment, RanksTasks):
        raise ConfigError(
            f"train.task_sampling.kind levels needs the level of every task, but "
            f"{class_name(environment)} does not say it: define level(task), or set "
            "train.task_sampling.field to a field of the tasks"
        )
    with asking(f"{class_name(environment)}.level"):
        return {task.id: _a_level(environment.level(task), f"level of {task.id}") for task in tasks}


def _of_field(task: Task, field: str) -> TaskLevel:
    if field == ENVIRONMENT and task.environment:
        return task.environment
    if field not in task.fields:
        raise ConfigError(
            f"train.task_sampling.field is {field!r}, which task {task.id} does not have; expected "
            f"one of its fields: {', '.join(task.fields) or '(none)'}"
        )
    return _a_level(task.fields[field], f"field {field} of task {task.id}")


def _a_level(value: Any, what: str) -> TaskLevel:
    if isinstance(value, int | float | str):
        return value
    raise ConfigError(
        f"{what} is {value!r}, which train.task_sampling cannot read; expected a number or a string"
    )


def _ordered(order: Sequence[TaskLevel], found: Mapping[str, TaskLevel]) -> list[TaskLevel]:
    """Return all levels, the first one first. Raises: ConfigError."""
    there = list(dict.fromkeys(found.values()))
    shown = ", ".join(map(str, there[:10])) + (", ..." if len(there) > 10 else "")
    absent = [level for level in order if level not in there]
    if absent:
        raise ConfigError(
            f"train.task_sampling.order names level {absent[0]!r}, which no task has; the levels "
            f"of the tasks are {shown}: drop it, or name one of these"
        )
    if order:
        missing = [(task, level) for task, level in found.items() if level not in order]
        if missing or len(set(order)) < len(order):
            got = (
                f"task {missing[0][0]} has level {missing[0][1]!r}"
                if missing
                else f"got {list(order)}"
            )
            raise ConfigError(
                f"{got}; expected every level once in train.task_sampling.order: {shown}"
            )
    numbers = [level for level in there if not isinstance(level, str)]
    if not order and len(numbers) < len(there):
        raise ConfigError(
            f"the levels of the tasks are {shown}, which have no order; expected numbers: set "
            "train.task_sampling.order to all of them, the first one first"
        )
    if len(there) == 1:
        raise ConfigError(
            f"train.task_sampling.kind levels: all tasks have level {shown}; expected two levels "
            "or more: use kind uniform, or another field"
        )
    return list(order) or sorted(numbers)


def check_weights(config: RunConfig, environment: Environment[Any]) -> None:
    """Check that the environments of a mixture can have shares of every step. Raises:
    ConfigError."""
    if not environment.task_weights:
        return
    length = config.train
    for key, value, why, instead in (
        ("train.epochs", length.epochs, "no pass over all tasks is made", "set train.steps"),
        (
            "train.tasks_per_step",
            "all" if length.tasks_per_step == "all" else None,
            "a step has all tasks of each environment",
            "set a number",
        ),
        (
            "rollout.refill",
            config.rollout.refill or None,
            "the further tasks of a step would be of any environment",
            "set it to 0",
        ),
    ):
        if value is not None:
            raise ConfigError(
                f"got {key} {value} with environment.weights, but {why}: {instead}, or drop "
                "environment.weights"
            )
