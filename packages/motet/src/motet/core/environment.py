"""The base class of all multi-agent environments."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from motet.core.accepted import accept
from motet.core.episodes import Prompt, Reply, Task
from motet.core.terms import check_metrics, recorded_terms
from motet.errors import EnvironmentFault, shortened
from motet.settings import Settings

State = TypeVar("State")


@dataclass(frozen=True)
class Transition:
    """The result of one joint action."""

    state: Any
    rewards: Mapping[str, float]
    """Agent -> its reward, for every agent of the environment."""
    done: bool
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Plain figures, which are only logged: parts of the reward, lengths, and so on."""
    _: KW_ONLY
    success: float | None = None
    """How well the team solved the task: a bool, or a number from 0 to 1. Needed at the end of an
    episode."""
    right: Mapping[str, float] = field(default_factory=dict)
    """Agent -> whether its own answer of this turn is right by a gold label: a bool, or a number
    from 0 to 1. For the figures of debates and for `algorithm.incentives` (`says_right`)."""
    majority_right: float | None = None
    """Whether the most common answer of this turn is right."""
    bonus: Mapping[str, float] = field(default_factory=dict)
    """Agent -> what it earns on its own, such as a penalty for bad form: added to its own return of
    this turn, not shared with other agents, without effect on other turns."""

    def __post_init__(self) -> None:
        check_metrics("a Transition", self.metrics, self.success)

    @property
    def terms(self) -> dict[str, float]:
        """All these numbers by the names of the records."""
        return recorded_terms(
            success=self.success,
            right=self.right,
            majority_right=self.majority_right,
            bonus=self.bonus,
            metrics=self.metrics,
        )

    def checked(self, agents: Collection[str]) -> "Transition":
        """Return it with every number as a float.

        Raises: EnvironmentFault if a reward is missing, an agent is unknown, or a number is not
        finite or outside its range.
        """
        if set(self.rewards) != set(agents):
            raise EnvironmentFault(
                f"got rewards for {_names(self.rewards)}; expected one for every agent: "
                f"{_names(agents)}"
            )
        for what, given in (("right", self.right), ("bonus", self.bonus)):
            if not set(given) <= set(agents):
                raise EnvironmentFault(
                    f"got {what} for {_names(given)}; expected agents of {_names(agents)}"
                )
        success, majority_right = self.success, self.majority_right
        return Transition(
            self.state,
            {agent: _finite(f"the reward of {agent}", self.rewards[agent]) for agent in agents},
            self.done,
            {name: _finite(name, value) for name, value in self.metrics.items()},
            success=None if success is None else _share("success", success),
            right={agent: _share(f"right of {agent}", it) for agent, it in self.right.items()},
            majority_right=(
                None if majority_right is None else _share("majority_right", majority_right)
            ),
            bonus={agent: _finite(f"bonus of {agent}", it) for agent, it in self.bonus.items()},
        )


def _finite(what: str, value: Any) -> float:
    """Return a number of Python, NumPy or torch as a float. Raises: EnvironmentFault."""
    number = math.nan
    if not isinstance(value, str) and not getattr(value, "shape", ()):  # an array is no number
        with suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    if math.isfinite(number):
        return number
    try:
        got = shortened(repr(value))
    except ValueError:  # Python writes no integer of more than 4300 digits
        got = "an integer of thousands of digits"
    returns = " Does the function return one on every path?" if value is None else ""
    raise EnvironmentFault(
        f"got {got} for {what}; expected a finite number.{returns} To leave a game out, raise "
        "motet.RewardFault"
    )


def _share(what: str, value: Any) -> float:
    number = _finite(what, value)
    if not 0.0 <= number <= 1.0:
        raise EnvironmentFault(f"got {number} for {what}; expected a number from 0 to 1")
    return number


def _names(agents: Collection[str]) -> str:
    return ", ".join(map(str, agents)) or "nobody"


@dataclass(frozen=True)
class Score:
    """The score of a joint answer. Its fields are those of a `motet.Transition`."""

    rewards: float | Mapping[str, float]
    """One number for all agents, or one per agent."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Plain figures, which are only logged."""
    _: KW_ONLY
    success: float | None = None
    right: Mapping[str, float] = field(default_factory=dict)
    bonus: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_metrics("a Score", self.metrics, self.success)

    def transition(self, state: Any, agents: Sequence[str]) -> Transition:
        """Return it as the last Transition of a game, with a reward for every agent."""
        given = self.rewards
        return Transition(
            state,
            given if isinstance(given, Mapping) else dict.fromkeys(agents, given),
            True,
            self.metrics,
            success=self.success,
            right=self.right,
            bonus=self.bonus,
        )


@dataclass(frozen=True)
class Drawing:
    """What agents made, as grids of named cells. A plot gives each name a color."""

    panels: Sequence[Mapping[str, Sequence[Sequence[str]]]]
    """Rows of panels: title -> the panel's cells, the top row first. An empty name is an empty
    cell."""


class Environment(ABC, Generic[State]):
    """Base class of all multi-agent environments. An environment sees only text.

    It defines the roles, the prompts, the turns and the rewards.

    A subclass sets `agents` and defines `start`, `observe` and `step`. Everything else is optional.
    `core.abilities` has the optional methods, such as `solve`: a subclass just defines them.

    With `branches = True` a State is an immutable value, so a rollout branches by calling `step`
    twice from the same state. Errors are raised as `EnvironmentFault`, `RewardFault` or
    `SandboxFault`. `start`, `step`, `close` and `grade` may be plain functions. A prompt may also
    be a list of dicts with `role` and `content`, as in OpenAI's API.
    `environments.check_environment` tests all of this.
    """

    agents: Sequence[str] = ()
    """The names of all agents. Required: an environment without agents is refused."""
    branches: bool = False
    """Whether `step` may be called several times from one state, with equal results. If False, a
    state may be a live object, such as a board, a browser or a server: every path starts one of its
    own, and plans whose paths divide after the first turn are refused."""
    labels: Sequence[str] = ()
    """All possible answers, if there are few."""
    most_turns: int | None = None
    """Every episode ends after at most this many turns. Longer plans are refused. None: no limit.
    """
    says_right: bool = False
    """Whether every Transition says who is `right`, for every agent. Incentives need it."""
    rewards_at_end: bool = False
    """Whether only the end of an episode is rewarded."""
    tools: Mapping[str, Sequence[Any]] = MappingProxyType({})
    """Agent -> tools that it may call, besides those of the config: functions, or objects as
    `motet.core.Tool`."""
    defaults: Mapping[str, str] = MappingProxyType({})
    """Agent -> what stands for its reply where credit asks what the team would have earned without
    it (baselines difference and shapley). An agent that is not in it says nothing, ""."""
    task_weights: Mapping[str, float] = MappingProxyType({})
    """Environment of a mixture -> its weight in the tasks of a training step. Empty: the tasks of
    all are drawn alike."""
    Options: ClassVar[type[Settings] | None] = None
    """The options of the environment, which a config sets: an inner class."""

    def __init_subclass__(cls, **named: Any) -> None:
        """Accept prompts as in OpenAI's API, and plain functions where Motet awaits.

        Raises: ConfigError if a method that Motet does not await, such as `observe`, is async.
        """
        super().__init_subclass__(**named)
        accept(cls)

    @abstractmethod
    async def start(self, task: Task, seed: int) -> State:
        """Return the first state of `task`.

        With `branches = False` it is called once for each path of an episode, with the same seed:
        the states must show equal prompts.
        """

    @abstractmethod
    def observe(self, state: State) -> Mapping[str, Prompt]:
        """Return the prompt of every agent that acts now. At least one agent acts."""

    @abstractmethod
    async def step(self, state: State, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Return the result of the joint action `replies`, which has a reply for every prompt of
        `observe`."""

    async def close(self, state: State) -> None:
        """Release resources. Called once with each start state, also after a fault."""


@runtime_checkable
class Wraps(Protocol):
    """An environment around another one."""

    @property
    def environment(self) -> object: ...


def class_name(environment: object) -> str:
    """Return the name of an environment's class; of a wrapper, that of the game in it."""
    while isinstance(environment, Wraps) and isinstance(environment.environment, Environment):
        environment = environment.environment
    return type(environment).__name__
