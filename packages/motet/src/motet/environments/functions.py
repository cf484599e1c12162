"""A team described by functions: one prompt per agent, and a reward of what all of them wrote.

All agents write at the same time, once per turn. Between turns each agent reads what the others
wrote, and the feedback, if there is a function for it. The reward is computed after every turn.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from pydantic import Field

from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.core.row_values import identity
from motet.environments.chat_texts import one_or_each
from motet.environments.history import Exchange, History, compose
from motet.environments.reward import ask
from motet.environments.rows import row_in, task_of
from motet.errors import ConfigError, EnvironmentFault, shortened
from motet.settings import Settings
from motet.user_code.plugins import load_function
from motet.user_code.threads import call

ROW, ROW_AND_TEXTS = ("row",), ("row", "texts")
"""The arguments of the functions."""
REVISE = "Improve your answer."
"""What an agent reads at a later turn without feedback of its own."""


@dataclass(frozen=True)
class FunctionState:
    """The row, the turns played so far, and what each agent is asked now."""

    row: Mapping[str, Any]
    name: str
    """The row as errors name it."""
    turns: tuple[Exchange, ...]
    asked: Mapping[str, str]


class FunctionTeam(Environment[FunctionState]):
    """Agents whose prompts, feedback and reward are functions of a dataset row."""

    branches = True

    class Options(Settings):
        """References to the functions: package.module:NAME or ./file.py:NAME."""

        agents: dict[str, str] = Field(min_length=1)
        """Agent -> a function `(row) -> its prompt`, a string. It may be async."""
        reward: str
        """A function `(row, texts) -> number`, or one number per agent, or a `motet.Score`. `texts`
        is {agent: what it wrote at this turn}. It may be async."""
        feedback: str | None = None
        """A function `(row, texts) -> what the agents read at the next turn`: a string, or one per
        agent. It may be async."""
        history: History = "joint"
        """What an agent reads of earlier turns: all texts (joint), only its own, or none."""
        success_at: float = 1.0
        """The team succeeds if the mean reward of the agents is at least this, unless the reward
        itself says so (`motet.Score(..., success=...)`)."""

    def __init__(self, options: Options, *, turns: int) -> None:
        """Raises: ConfigError if a reference does not name a function of these arguments."""
        self.options = options
        self.agents = tuple(options.agents)
        self._turns = turns
        self._prompts = {
            agent: _function(name, f"agents.{agent}", ROW) for agent, name in options.agents.items()
        }
        self._judge = _judge(_function(options.reward, "reward", ROW_AND_TEXTS))
        self._feedback = (
            None
            if options.feedback is None
            else _function(options.feedback, "feedback", ROW_AND_TEXTS)
        )

    def task(self, row: Mapping[str, Any]) -> Task:
        return task_of(row)

    def chat_task(self, text: str) -> Task:
        """Read a row as a JSON object. Raises: ConfigError if the text is none."""
        return task_of(row_in(text))

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the last text of each agent."""
        return one_or_each(texts, self.agents)

    async def start(self, task: Task, seed: int) -> FunctionState:
        row = task.fields
        shown = shortened(identity(dict(row)))
        asked = {
            agent: _text(
                await call(prompt, _Fields(row)), f"the prompt of agent {agent} for row {shown}"
            )
            for agent, prompt in self._prompts.items()
        }
        return FunctionState(row, shown, (), asked)

    def observe(self, state: FunctionState) -> Mapping[str, Prompt]:
        return {
            agent: compose(self.options.history, agent, state.turns, asked)
            for agent, asked in state.asked.items()
        }

    async def step(
        self, state: FunctionState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        """Raises: RewardFault for a wrong reward; EnvironmentFault for a wrong feedback."""
        texts = {agent: reply.text for agent, reply in replies.items()}
        scored = await ask(self._judge, Task(state.name, state.row), texts, self.agents)
        reached = sum(scored.rewards.values()) / len(scored.rewards) >= self.options.success_at
        played = (*state.turns, Exchange(state.asked, texts))
        last = len(played) == self._turns
        asked = state.asked if last else await self._next(state.row, texts)
        return replace(
            scored,
            state=replace(state, turns=played, asked=asked),
            done=last,
            success=reached if scored.success is None else scored.success,
        )

    async def _next(self, row: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, str]:
        """Return what each agent is asked at the next turn."""
        if self._feedback is None:
            return dict.fromkeys(self.agents, REVISE)
        given = await call(self._feedback, _Fields(row), _Fields(texts))
        each = given if isinstance(given, Mapping) else dict.fromkeys(self.agents, given)
        missing = [agent for agent in self.agents if agent not in each]
        if missing:
            raise EnvironmentFault(
                f"feedback has no text for agent {missing[0]}; expected one string, or one for "
                f"each of {', '.join(self.agents)}"
            )
        return {agent: _text(each[agent], f"feedback to {agent}") for agent in self.agents}


class MissingField(KeyError):
    """A field that a function asked for, and those that there are."""

    def __str__(self) -> str:
        asked, fields = self.args
        return f"{asked!r}; there are: {', '.join(map(repr, fields)) or 'none'}"


class _Fields(dict[str, Any]):
    """What a function gets, the row or the texts, which says what it has if a field is missing."""

    def __missing__(self, key: str) -> Any:
        raise MissingField(key, tuple(self))


def _function(name: str, key: str, arguments: Sequence[str]) -> Callable[..., Any]:
    """Return a function that can be called with these arguments, by their place.

    Raises: ConfigError.
    """
    function = load_function(name, f"environment.{key}", "a function")
    try:
        takes = inspect.signature(function)
    except (TypeError, ValueError):  # one of C says nothing
        return function
    try:
        takes.bind(*arguments)
    except TypeError as error:
        called = getattr(function, "__name__", "function")
        raise ConfigError(
            f"environment.{key}: got {called}{takes}; expected a function that is called as "
            f"{called}({', '.join(arguments)})"
        ) from error
    return function


def _judge(reward: Callable[..., Any]) -> Callable[[Task, Mapping[str, str]], Any]:
    """Return the reward as a function of a task."""

    @wraps(reward)
    async def judged(task: Task, texts: Mapping[str, str]) -> Any:
        return await call(reward, _Fields(task.fields), _Fields(texts))

    return judged


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given:
        hint = ""
        if given is None:
            hint = ". Does its function return one?"
        elif isinstance(given, list):
            hint = (
                ": the text of the user's message. The chat is made of it, and a system message is "
                "team.AGENT.system"
            )
        raise EnvironmentFault(f"{what} is {given!r}; expected a string that is not empty{hint}")
    return given
