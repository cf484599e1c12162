"""Which tasks a training step plays: all in turn, those that teach, or those of unlocked levels."""

from typing import Annotated, Literal, TypeAlias

from pydantic import PositiveFloat, PositiveInt

from motet.settings.base import Probability
from motet.settings.kinds import ByKind, Kind


class UniformSampling(Kind):
    """Every task once in each pass over the tasks, in a new random order."""

    kind: Literal["uniform"] = "uniform"
    """All tasks in turn."""


class InformativeSampling(Kind):
    """A step plays the tasks whose games most probably end differently, by a draw of what is known
    of them (Thompson sampling): where all succeed, or all fail, nothing can be compared."""

    kind: Literal["informative"] = "informative"
    """Those that teach."""
    half_life: PositiveFloat = 5.0
    """What the games of a task have shown counts half after as many steps as so many passes over
    all tasks would take, because the policies have changed."""
    explore: Probability = 0.1
    """The share of the places of a step that goes to any task, so that none is forgotten."""
    field: str | None = None
    """Tasks with the same value of this field share what their games have shown; `environment`: all
    tasks of an environment of a mixture. By default each task is on its own."""


class LevelSampling(Kind):
    """The tasks have levels. The next one is unlocked when the newest one is mastered."""

    kind: Literal["levels"] = "levels"
    """Those of unlocked levels."""
    threshold: float = 0.8
    """A level is mastered when the mean success of its last `groups` groups is at least this; of an
    environment that reports no success, the mean reward at the end."""
    groups: PositiveInt = 16
    """So many groups of the newest level are judged. A group is the games of one task in a step."""
    newest: Probability = 0.5
    """The share of the draws that goes to the newest level. The others are spread evenly over the
    tasks of the levels before it."""
    field: str | None = None
    """The field of a task that is its level; `environment`: its environment in a mixture. By
    default the environment says it (`level(task)`)."""
    order: tuple[int | float | str, ...] = ()
    """All levels, the first one first. By default they are numbers, in their order."""


TASK_SAMPLING = {
    "uniform": UniformSampling,
    "informative": InformativeSampling,
    "levels": LevelSampling,
}
TaskSampling: TypeAlias = Annotated[
    UniformSampling | InformativeSampling | LevelSampling,
    ByKind(TASK_SAMPLING, default="uniform"),
]
"""One of the kinds of `train.task_sampling`."""
