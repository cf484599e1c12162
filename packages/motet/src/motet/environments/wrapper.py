"""`Wrapper`: the base class of environments that change another environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from motet.core import Demonstration, Drawing, Environment, Grade, Prompt, Task


class Wrapping(Protocol):
    """A state that contains a state of the wrapped environment."""

    @property
    def inner(self) -> Any: ...


WrappingState = TypeVar("WrappingState", bound=Wrapping)


class Wrapper(Environment[WrappingState]):
    """Provides what `environment` provides. A subclass defines how the game is played.

    A subclass resets the attributes that no longer hold, and overrides the optional methods that
    change. It overrides `provides` only if it adds or withdraws a method.
    """

    def __init__(self, environment: Environment[Any]) -> None:
        self.environment = environment
        self.agents = environment.agents
        self.branches = environment.branches
        self.labels = environment.labels
        self.most_turns = environment.most_turns
        self.says_right = environment.says_right
        self.rewards_at_end = environment.rewards_at_end

    def provides(self, method: Callable[..., Any]) -> bool:
        return self.environment.provides(method)

    async def close(self, state: WrappingState) -> None:
        await self.environment.close(state.inner)

    def tasks(self, split: str) -> Sequence[Task]:
        return self.environment.tasks(split)

    def task(self, row: Mapping[str, Any]) -> Task | Sequence[Task]:
        return self.environment.task(row)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        return self.environment.demonstrate(task, seed)

    def solve(self, state: WrappingState, seed: int) -> Mapping[str, str]:
        return self.environment.solve(state.inner, seed)

    def convention(self, task: Task, agent: str, text: str) -> str:
        return self.environment.convention(task, agent, text)

    def alone(self) -> Environment[Any]:
        return self.environment.alone()

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        return self.environment.answer(task, texts)

    def chat_task(self, text: str) -> Task:
        return self.environment.chat_task(text)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        return self.environment.chat_answer(task, texts)

    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        return self.environment.drawing(task, texts)

    def question(self, task: Task) -> Prompt:
        return self.environment.question(task)

    async def grade(self, task: Task, text: str) -> Grade:
        return await self.environment.grade(task, text)
