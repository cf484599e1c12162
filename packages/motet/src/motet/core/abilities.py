"""What an environment may do besides being played: one class for each optional ability.

An environment has an ability if its class defines the methods:

    isinstance(environment, Solves)     # its class has a method `solve`

It need not inherit from the class of the ability. One that does (`class Mine(Environment, Solves)`)
is checked by a type checker, and cannot be made without the methods. A subclass gives up an
inherited ability with `solve = None`.
"""

from abc import ABCMeta, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from motet.core.environment import Drawing, Environment
from motet.core.episodes import Demonstration, Grade, Prompt, Task


class Ability(metaclass=ABCMeta):  # noqa: B024 - the methods are those of its subclasses
    """Base class of the abilities."""

    @classmethod
    def methods(cls) -> tuple[str, ...]:
        """Return the names of the methods that make up this ability."""
        return tuple(name for name in vars(cls) if name in cls.__abstractmethods__)

    @classmethod
    def lacking(cls, kind: type) -> list[str]:
        """Return the names of the methods that a class does not define."""
        return [name for name in cls.methods() if not _defined(kind, name)]

    @classmethod
    def __subclasshook__(cls, kind: type) -> bool:
        if Ability not in cls.__bases__:
            return NotImplemented  # type: ignore[no-any-return]
        return not cls.lacking(kind)


def _defined(kind: type, name: str) -> bool:
    """Return whether a class has a method that is not withdrawn."""
    found = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return found is not None


class OwnsTasks(Ability):
    """It has problems of its own."""

    @abstractmethod
    def tasks(self, split: str) -> Sequence[Task]:
        """Return the environment's own problems of `split` ("train" or "eval")."""


class ReadsRows(Ability):
    """It makes tasks of dataset rows."""

    @abstractmethod
    def task(self, row: Mapping[str, Any]) -> Task | Sequence[Task]:
        """Return a dataset row as a task, or as any number of tasks.

        The same row must give the same result again.
        """


class RanksTasks(Ability):
    """It says how hard its tasks are."""

    @abstractmethod
    def level(self, task: Task) -> int | float | str:
        """Return the level of a task, for `train.task_sampling` with kind levels."""


class Demonstrates(Ability):
    """It shows right completions for the warm-up."""

    @abstractmethod
    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return one correct completion."""


class Solves(Ability):
    """It knows the right answers, for the warm-up and for a reference team."""

    @abstractmethod
    def solve(self, state: Any, seed: int) -> Mapping[str, str]:
        """Return a correct completion for every agent that acts now."""


class NamesConventions(Ability):
    """It can tell the ways apart in which agents write the same thing."""

    @abstractmethod
    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return a diagnostic label of a completion."""


class PlaysAlone(Ability):
    """It has a version for a single agent: a baseline of the team."""

    @abstractmethod
    def alone(self) -> Environment[Any]:
        """Return the single-agent version of the environment, on the same tasks."""


class Votes(Ability):
    """Its games end with an answer, so several games can vote."""

    @abstractmethod
    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return one answer from the agents' last texts. None: there is no answer."""


class Draws(Ability):
    """It draws what the agents made."""

    @abstractmethod
    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        """Return the target and what the agents' last texts make of it. The run folder has it as a
        picture."""


class Grades(Ability):
    """It says which answers are right: what a verifier is trained and tested on."""

    @abstractmethod
    def question(self, task: Task) -> Prompt:
        """Return the prompt that a verifier reads before a completion that it judges."""

    @abstractmethod
    async def grade(self, task: Task, text: str) -> Grade:
        """Return the answer in a completion, and whether it is correct by the gold answer."""


class Chats(Ability):
    """A person can ask its team: `motet chat` and `motet serve`."""

    @abstractmethod
    def chat_task(self, text: str) -> Task:
        """Return a person's text as a task.

        The task has no gold answer and no tests. The last turn of such an episode is not stepped,
        so only `start`, `observe` and the steps before must work without them. Raises: ConfigError
        that says which texts the environment reads.
        """

    @abstractmethod
    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the team's answer to a task of `chat_task`, from the agents' last texts."""


ABILITIES: tuple[type[Ability], ...] = (
    OwnsTasks,
    ReadsRows,
    RanksTasks,
    Demonstrates,
    Solves,
    NamesConventions,
    PlaysAlone,
    Votes,
    Draws,
    Grades,
    Chats,
)
