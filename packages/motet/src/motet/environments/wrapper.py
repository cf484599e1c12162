"""`Wrapper`: the base class of environments that change another environment."""

from abc import ABCMeta
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Protocol, Self, TypeVar, cast

from motet.core import (
    ABILITIES,
    Ability,
    Chats,
    Demonstrates,
    Demonstration,
    Drawing,
    Draws,
    Environment,
    Grade,
    Grades,
    NamesConventions,
    OwnsTasks,
    PlaysAlone,
    Prompt,
    RanksTasks,
    ReadsRows,
    Solves,
    Task,
    Votes,
)


class Wrapping(Protocol):
    """A state that contains a state of the wrapped environment."""

    @property
    def inner(self) -> Any: ...


WrappingState = TypeVar("WrappingState", bound=Wrapping)


class Wrapper(Environment[WrappingState]):
    """Has the abilities that `environment` has. A subclass defines how the game is played.

    A subclass resets the attributes that no longer hold, and overrides the optional methods that
    change.
    """

    gives_up: ClassVar[tuple[type[Ability], ...]] = ()
    """Abilities that no wrapper of this class has."""

    def __new__(cls, environment: Environment[Any], *given: Any, **named: Any) -> Self:
        lacking = tuple(
            ability
            for ability in ABILITIES
            if ability in cls.gives_up or not isinstance(environment, ability)
        )
        return cast(Self, super().__new__(without(cls, lacking)))

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.agents = environment.agents
        self.branches = environment.branches
        self.labels = environment.labels
        self.most_turns = environment.most_turns
        self.says_right = environment.says_right
        self.rewards_at_end = environment.rewards_at_end
        self.tools = environment.tools
        self.defaults = environment.defaults
        self.task_weights = environment.task_weights

    async def close(self, state: WrappingState) -> None:
        await self.environment.close(state.inner)

    def tasks(self, split: str) -> Sequence[Task]:
        assert isinstance(self.environment, OwnsTasks)
        return self.environment.tasks(split)

    def task(self, row: Mapping[str, Any]) -> Task | Sequence[Task]:
        assert isinstance(self.environment, ReadsRows)
        return self.environment.task(row)

    def level(self, task: Task) -> int | float | str:
        assert isinstance(self.environment, RanksTasks)
        return self.environment.level(task)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        assert isinstance(self.environment, Demonstrates)
        return self.environment.demonstrate(task, seed)

    def solve(self, state: WrappingState, seed: int) -> Mapping[str, str]:
        assert isinstance(self.environment, Solves)
        return self.environment.solve(state.inner, seed)

    def convention(self, task: Task, agent: str, text: str) -> str:
        assert isinstance(self.environment, NamesConventions)
        return self.environment.convention(task, agent, text)

    def alone(self) -> Environment[Any]:
        assert isinstance(self.environment, PlaysAlone)
        return self.environment.alone()

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        assert isinstance(self.environment, Votes)
        return self.environment.answer(task, texts)

    def chat_task(self, text: str) -> Task:
        assert isinstance(self.environment, Chats)
        return self.environment.chat_task(text)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        assert isinstance(self.environment, Chats)
        return self.environment.chat_answer(task, texts)

    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        assert isinstance(self.environment, Draws)
        return self.environment.drawing(task, texts)

    def question(self, task: Task) -> Prompt:
        assert isinstance(self.environment, Grades)
        return self.environment.question(task)

    async def grade(self, task: Task, text: str) -> Grade:
        assert isinstance(self.environment, Grades)
        return await self.environment.grade(task, text)


@cache
def without(kind: type[Any], abilities: tuple[type[Ability], ...]) -> type[Any]:
    """Return a subclass of the same name without these abilities, or `kind` if there are none."""
    methods = {name for ability in abilities for name in ability.methods()}
    if not methods:
        return kind
    named = {name: vars(kind)[name] for name in ("__module__", "__doc__")}
    made: type[Any] = ABCMeta(kind.__name__, (kind,), {**named, **dict.fromkeys(methods)})
    return made
