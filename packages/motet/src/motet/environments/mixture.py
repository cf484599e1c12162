"""`Mixture`: several environments in one run. Every task is one of theirs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Self, cast

from motet.core import (
    ABILITIES,
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
    Reply,
    Solves,
    Task,
    Transition,
    Votes,
)
from motet.environments.registry import check_is_environment
from motet.environments.wrapper import without
from motet.errors import ConfigError, EnvironmentFault, shortened

RESERVED = ("right", "personal")
"""Names that begin the terms of other fields (`core.terms`)."""


@dataclass(frozen=True)
class MixtureState:
    """The state of one of the environments."""

    environment: str
    inner: Any


class Mixture(Environment[MixtureState]):
    """Several environments, by names of your choice. A game is one of them, from start to end.

    Its agents are those of all. An agent that an environment lacks does not act there, and gets the
    mean reward of those that it has, so that the team's mean reward is that of the environment. A
    task has the name of its environment in front of its id, and so have the metrics of a step. A
    mixture has the abilities that all of its environments have.
    """

    def __new__(cls, environments: Mapping[str, Environment[Any]], *_: Any, **__: Any) -> Self:
        lacking = tuple(
            ability
            for ability in ABILITIES
            if ability is not OwnsTasks
            and not all(isinstance(one, ability) for one in environments.values())
        )
        return cast(Self, super().__new__(without(cls, lacking)))

    def __init__(
        self,
        environments: Mapping[str, Environment[Any]],
        weights: Mapping[str, float] = MappingProxyType({}),
        tasks: Mapping[str, Mapping[str, Sequence[Task]]] = MappingProxyType({}),
    ) -> None:
        """Create the mixture.

        Args:
            weights: name -> its weight in the tasks of a training step. Empty: the tasks of all
                environments are drawn alike.
            tasks: name -> split -> its tasks, for environments without tasks of their own.

        Raises: ConfigError for a wrong name or weight, a mixture in a mixture, or an agent for
        which two environments have different tools or defaults.
        """
        _check_names(environments)
        _check_weights(weights, environments)
        self.environments, self.task_weights, self._tasks = environments, dict(weights), tasks
        every = list(environments.values())
        self.agents = tuple(dict.fromkeys(agent for one in every for agent in one.agents))
        self.branches = all(one.branches for one in every)
        self.labels = every[0].labels if len({tuple(one.labels) for one in every}) == 1 else ()
        turns = [one.most_turns for one in every]
        known = [count for count in turns if count is not None]
        self.most_turns = max(known) if len(known) == len(turns) else None
        same = len({frozenset(one.agents) for one in every}) == 1
        self.says_right = same and all(one.says_right for one in every)
        # Games differ in length, so no reward is repeated for turns that some of them do not have.
        self.rewards_at_end = len(set(turns)) > 1 or any(one.rewards_at_end for one in every)
        self.tools = self._common("tools", {name: one.tools for name, one in environments.items()})
        self.defaults = self._common(
            "defaults", {name: one.defaults for name, one in environments.items()}
        )

    def _common(self, what: str, given: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return agent -> its tools, or its default. Raises: ConfigError if two differ."""
        found: dict[str, Any] = {}
        for agent in self.agents:
            own = {
                name: of_agent.get(agent)
                for name, of_agent in given.items()
                if agent in self.environments[name].agents
            }
            first, value = next(iter(own.items()))
            other = next((name for name in own if own[name] != value), None)
            if other is not None:
                raise ConfigError(
                    f"environments {first} and {other} of a mixture have other {what} for agent "
                    f"{agent}; expected the same: give one of these agents another name"
                )
            if value is not None:
                found[agent] = value
        return found

    # ------------------------------------------------------------ tasks

    def tasks(self, split: str) -> list[Task]:
        """Return the tasks of all environments, in turn, so that the first ones are of each.

        Raises: ConfigError if an environment has no tasks to train on.
        """
        each = [list(self._tasks_of(name, split)) for name in self.environments]
        if split == "train":
            for name, tasks in zip(self.environments, each, strict=True):
                if not tasks:
                    raise ConfigError(
                        f"environment {name} of a mixture has no training tasks; expected at least "
                        f"one: set environment.of.{name}.data.train, or drop it"
                    )
        return [task for row in zip_longest(*each) for task in row if task is not None]

    def _tasks_of(self, name: str, split: str) -> Iterator[Task]:
        environment, given = self.environments[name], self._tasks.get(name)
        if given is not None:
            tasks = given.get(split, ())
        else:
            tasks = environment.tasks(split) if isinstance(environment, OwnsTasks) else ()
        for task in tasks:
            yield _named(task, name)

    def _of(self, task: Task) -> tuple[Environment[Any], Task]:
        """Return the environment of a task, and the task as it knows it."""
        name = task.environment
        if name not in self.environments:
            raise EnvironmentFault(
                f"task {task.id} is of environment {name!r}; expected one of "
                f"{', '.join(self.environments)}"
            )
        return self.environments[name], Task(task.id.removeprefix(f"{name}/"), task.fields)

    # ------------------------------------------------------------ play

    async def start(self, task: Task, seed: int) -> MixtureState:
        environment, own = self._of(task)
        return MixtureState(task.environment, await environment.start(own, seed))

    def observe(self, state: MixtureState) -> Mapping[str, Prompt]:
        return self.environments[state.environment].observe(state.inner)

    async def step(
        self, state: MixtureState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        name = state.environment
        environment = self.environments[name]
        moved = await environment.step(state.inner, replies, seed)
        mean = sum(moved.rewards.values()) / max(1, len(moved.rewards))
        absent = [agent for agent in self.agents if agent not in environment.agents]
        return replace(
            moved,
            state=MixtureState(name, moved.state),
            rewards={**moved.rewards, **dict.fromkeys(absent, mean)},
            metrics={f"{name}/{term}": value for term, value in moved.metrics.items()},
        )

    async def close(self, state: MixtureState) -> None:
        await self.environments[state.environment].close(state.inner)

    # ------------------------------------------------------------ optional methods

    def level(self, task: Task) -> int | float | str:
        environment, own = self._of(task)
        assert isinstance(environment, RanksTasks)
        return environment.level(own)

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        environment, own = self._of(task)
        assert isinstance(environment, Demonstrates)
        return environment.demonstrate(own, seed)

    def solve(self, state: MixtureState, seed: int) -> Mapping[str, str]:
        environment = self.environments[state.environment]
        assert isinstance(environment, Solves)
        return environment.solve(state.inner, seed)

    def convention(self, task: Task, agent: str, text: str) -> str:
        environment, own = self._of(task)
        if agent not in environment.agents:
            return task.environment
        assert isinstance(environment, NamesConventions)
        label = environment.convention(own, agent, text)
        return f"{task.environment}/{label}"

    def alone(self) -> "Mixture":
        """Raises: ConfigError if the single agents have different names."""
        each = {
            name: one.alone()
            for name, one in self.environments.items()
            if isinstance(one, PlaysAlone)
        }
        names = {agent for one in each.values() for agent in one.agents}
        if len(names) > 1:
            raise ConfigError(
                f"the single agents of the environments of a mixture are {', '.join(sorted(names))}"
                "; expected one name, so that one agent plays all: rename them in alone()"
            )
        return Mixture(each, self.task_weights, self._tasks)

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        environment, own = self._of(task)
        assert isinstance(environment, Votes)
        return environment.answer(own, texts)

    def drawing(self, task: Task, texts: Mapping[str, str]) -> Drawing:
        environment, own = self._of(task)
        assert isinstance(environment, Draws)
        return environment.drawing(own, texts)

    def question(self, task: Task) -> Prompt:
        environment, own = self._of(task)
        assert isinstance(environment, Grades)
        return environment.question(own)

    async def grade(self, task: Task, text: str) -> Grade:
        environment, own = self._of(task)
        assert isinstance(environment, Grades)
        return await environment.grade(own, text)

    def chat_task(self, text: str) -> Task:
        """Read a text for one of the environments, such as "relay: 12 34"."""
        name, colon, rest = text.partition(":")
        name = name.strip()
        if not colon or name not in self.environments:
            raise ConfigError(
                f"got {shortened(text)!r}; expected the name of an environment before the text, "
                f"such as {next(iter(self.environments))}: TEXT. There are: "
                f"{', '.join(self.environments)}"
            )
        environment = self.environments[name]
        assert isinstance(environment, Chats)
        return _named(environment.chat_task(rest.strip()), name)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        environment, own = self._of(task)
        assert isinstance(environment, Chats)
        return environment.chat_answer(own, texts)


def _named(task: Task, name: str) -> Task:
    return Task(f"{name}/{task.id}", task.fields, name)


def _check_names(environments: Mapping[str, Environment[Any]]) -> None:
    if not environments:
        raise ConfigError("got a mixture of no environments; expected at least one: set of")
    for name, environment in environments.items():
        check_is_environment(environment, f"environment.of.{name}")
        if not re.fullmatch(r"[\w-]+", name) or name in RESERVED:
            raise ConfigError(
                f"environment.of names {name!r}; expected letters, digits, _ and - only, and none "
                f"of {', '.join(RESERVED)}: give it another name"
            )
        if isinstance(environment, Mixture):
            raise ConfigError(
                f"environment.of.{name} is a mixture within a mixture; expected an environment "
                "that is none: name its environments here"
            )


def _check_weights(
    weights: Mapping[str, float], environments: Mapping[str, Environment[Any]]
) -> None:
    known = ", ".join(environments)
    for name, weight in weights.items():
        if name not in environments:
            raise ConfigError(
                f"environment.weights names {name!r}; environments are {known}: use one of these, "
                f"or add environment.of.{name}"
            )
        if not 0.0 < weight < float("inf"):
            raise ConfigError(
                f"environment.weights.{name} is {weight}; expected a number above 0: drop "
                f"environment.of.{name} to leave it out"
            )
    missing = [name for name in environments if name not in weights]
    if weights and missing:
        raise ConfigError(
            f"environment.weights has none for {missing[0]}; expected one for each of {known}, or "
            "no weights"
        )
