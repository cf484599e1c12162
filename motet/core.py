"""The data types, base classes and protocols that all parts of Motet share.

Each stage takes one of these types and returns the next. All of them are immutable.

    play -> Episode (a tree of Rounds) -> score -> credit -> TrainSample
         -> pack -> Batch -> learn -> publish

Names of arrays and tensors end in their axes: B sequences, L tokens, P prompts, N agents, T turns,
G samples of one agent for one prompt, J joint actions, S samples of a training step.

This module does not import torch: environments and records handle strings and numbers only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar

from motet.errors import NotProvided
from motet.settings import Decode, Settings

StopReason = Literal["stop", "length"]
"""Why a completion ended.

stop: an end-of-sequence token or a stop string. length: the token limit.
"""
Boundary = Literal["environment", "reward", "sampler", "sandbox"]
End = Literal["done", "stopped", "limit", "pruned"]
"""Why no Round follows an outcome.

done: the environment ended the episode. stopped: a stop rule of the run ended the branch.
limit: it was the last turn. pruned: this joint action was not selected for expansion.
"""
Path: TypeAlias = tuple[int, ...]
"""Position of a Round in its tree: the outcome index taken at each earlier Round; () is
the root."""
RIGHT = "right/"
"""Prefix of the term `right/AGENT`: 1 if the agent's answer of this turn is correct, else 0.

The gold label decides what is correct.
"""
PERSONAL = "personal/"
"""Prefix of the term `personal/AGENT`: a bonus or penalty for this agent and this turn.

It is added to the agent's return of this turn. It is not shared with other agents and does not
affect other turns.
"""


# ------------------------------------------------------------ texts


@dataclass(frozen=True)
class Message:
    """One message of a chat.

    `name` distinguishes speakers that have the same role, if the chat template can show names.
    """

    role: Literal["system", "user", "assistant"]
    content: str
    name: str | None = None


Chat: TypeAlias = tuple[Message, ...]
Prompt: TypeAlias = Chat | str
"""A chat is formatted with the tokenizer's chat template. A string is raw text for a base model."""


@dataclass(frozen=True)
class Reply:
    """The part of a completion that an environment sees. It never sees tokens."""

    text: str
    stop: StopReason = "stop"


@dataclass(frozen=True)
class Task:
    """One problem.

    `fields` holds plain JSON values: a dataset row, or values that an embedded environment
    generated.
    """

    id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Grade:
    """The answer extracted from one completion, and whether it is correct.

    `answer` is normalised, so that equivalent spellings compare equal. It is None if the completion
    contains no answer.
    """

    answer: str | None
    right: bool


@dataclass(frozen=True)
class Demonstration:
    """One correct completion for one prompt.

    The supervised warm-up trains the policy that plays `agent` at `turn` on it.
    """

    agent: str
    prompt: Prompt
    text: str
    turn: int = 0


# ------------------------------------------------------------ episodes


@dataclass(frozen=True)
class Fault:
    """An error that prevented a reward.

    A Fault is data: it is counted and reported. It never becomes a reward of zero.
    """

    where: Boundary
    cause: str
    """One stable word that faults are counted by: the exception's class, `long_prompt`, ..."""
    message: str


@dataclass(frozen=True)
class Completion:
    """One sampled completion.

    `logprobs` holds one value per token in nats, end-of-sequence token included. The values are
    those of the whole softmax at `temperature`, even if top-p or top-k restricted sampling.
    `tokens` and `logprobs` are None for a partner behind an API, which is never trained.
    """

    policy: str
    text: str
    stop: StopReason
    version: int = 0
    tokens: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if (self.tokens is None) != (self.logprobs is None):
            raise ValueError("a Completion has tokens and logprobs, or neither")
        if (
            self.tokens is not None
            and self.logprobs is not None
            and len(self.tokens) != len(self.logprobs)
        ):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.logprobs)} logprobs")


@dataclass(frozen=True)
class Outcome:
    """One joint action and its result.

    A failed joint action is removed from its group. Its siblings stay.
    """

    picks: Mapping[str, int]
    """Acting agent -> index of the sample that it contributed."""
    rewards: Mapping[str, float]
    """One reward for every agent of the team, also for agents that did not act. Empty if there is a
    fault."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Named parts of the reward, and diagnostics. Every terminal outcome has `success` in [0, 1].
    """
    next: "Round | None" = None
    end: End | None = None
    """Set if and only if `next` and `fault` are None."""
    fault: Fault | None = None


@dataclass(frozen=True)
class Round:
    """One turn from one state: the acting agents' prompts and samples, and the joint actions.

    All acting agents act at the same time. If only one agent acts per Round, the agents take turns.
    A Round is created after its child Rounds.
    """

    turn: int
    prompts: Mapping[str, Prompt]
    prompt_tokens: Mapping[str, tuple[int, ...]]
    samples: Mapping[str, tuple[Completion, ...]]
    outcomes: tuple[Outcome, ...]


def walk(root: Round, path: Path = ()) -> Iterator[tuple[Path, Round]]:
    """Yield every Round of a tree with its path, parents before children."""
    yield path, root
    for index, outcome in enumerate(root.outcomes):
        if outcome.next is not None:
            yield from walk(outcome.next, (*path, index))


@dataclass(frozen=True)
class Episode:
    """One task played once, as a tree.

    `root` is None if and only if `fault` is set. `greedy` is one path of greedy completions that is
    not trained on. It exists if the algorithm uses the ReMax baseline (`greedy_path`).
    """

    id: str
    task: Task
    root: Round | None
    greedy: Round | None = None
    fault: Fault | None = None


# ------------------------------------------------------------ environments

State = TypeVar("State")


@dataclass(frozen=True)
class Transition:
    """The result of one joint action. `rewards` has an entry for every agent of the environment."""

    state: Any
    rewards: Mapping[str, float]
    done: bool
    terms: Mapping[str, float] = field(default_factory=dict)


class Environment(ABC, Generic[State]):
    """Base class of all multi-agent environments. An environment sees only text.

    It defines the roles, the prompts, the turns and the reward terms.

    A subclass sets `agents` and defines `start`, `observe` and `step`. Everything else is optional.
    `environment.provides(Environment.solve)` says whether an environment defines an optional
    method.

    A State is an immutable value, so a rollout branches by calling `step` twice from the same
    state. Errors are raised as `EnvironmentFault`, `RewardFault` or `SandboxFault`.
    `environments.check_environment` tests all of this.
    """

    agents: Sequence[str] = ()
    """The names of all agents. Required: an environment without agents is refused."""
    branches: bool = False
    """Whether `step` may be called several times from one state, with equal results. Plans that
    need trees, or several samples of a task, refuse False."""
    labels: Sequence[str] = ()
    """All possible answers, if there are few."""
    most_turns: int | None = None
    """Every episode ends after at most this many turns. Longer plans are refused. None: no limit.
    """
    says_right: bool = False
    """Whether every outcome has the term `right/AGENT` for every agent. Incentives need it."""
    rewards_at_end: bool = False
    """Whether only the end of an episode is rewarded."""
    Options: ClassVar[type[Settings] | None] = None
    """The options of the environment, which a config sets: an inner class."""

    @abstractmethod
    async def start(self, task: Task, seed: int) -> State:
        """Return the first state of `task`."""

    @abstractmethod
    def observe(self, state: State) -> Mapping[str, Prompt]:
        """Return the prompt of every agent that acts now. At least one agent acts."""

    @abstractmethod
    async def step(self, state: State, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Return the result of the joint action `replies`, which has a reply for every prompt of
        `observe`."""

    async def close(self, state: State) -> None:
        """Release resources. Called once per episode with its start state, also after a fault."""

    # Optional methods. A method that is not overridden is not provided.

    def tasks(self, split: str) -> Sequence[Task]:
        """Return the environment's own problems of `split` ("train" or "eval")."""
        raise self._not_provided("tasks")

    def task(self, row: Mapping[str, Any]) -> Task | Sequence[Task]:
        """Return a dataset row as a task, or as any number of tasks.

        The same row must give the same result again.
        """
        raise self._not_provided("task")

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return one correct completion, for the warm-up."""
        raise self._not_provided("demonstrate")

    def solve(self, state: State, seed: int) -> Mapping[str, str]:
        """Return a correct completion for every agent that acts now.

        For the warm-up and for a reference team.
        """
        raise self._not_provided("solve")

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return a diagnostic label of a completion."""
        raise self._not_provided("convention")

    def alone(self) -> "Environment[Any]":
        """Return the single-agent version of the environment, on the same tasks."""
        raise self._not_provided("alone")

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return one answer from the agents' last texts, for a vote. None: there is no answer."""
        raise self._not_provided("answer")

    def question(self, task: Task) -> Prompt:
        """Return the prompt that a verifier reads before a completion that it judges."""
        raise self._not_provided("question")

    async def grade(self, task: Task, text: str) -> Grade:
        """Return the answer in a completion, and whether it is correct by the gold answer."""
        raise self._not_provided("grade")

    def provides(self, method: Callable[..., Any]) -> bool:
        """Return whether an optional method is overridden: `provides(Environment.solve)`.

        A subclass withdraws an inherited method with `solve = Environment.solve`.
        """
        name = method.__name__
        found = next(vars(kind)[name] for kind in type(self).__mro__ if name in vars(kind))
        return found is not vars(Environment)[name]

    def _not_provided(self, name: str) -> NotProvided:
        return NotProvided(
            f"{type(self).__name__} has no {name}; expected a call only where "
            f"provides(Environment.{name}) is true: define {name}"
        )


# ------------------------------------------------------------ sampling


@dataclass(frozen=True)
class SampleRequest:
    """A request for `len(keys)` completions of one policy for one prompt.

    `id` defines the order of requests within a wave. Each completion has its own key, which seeds
    its sampling.
    """

    id: tuple[Any, ...]
    policy: str
    prompt: Prompt
    decode: Decode
    keys: tuple[int, ...]
    greedy: bool = False


@dataclass(frozen=True)
class Sampled:
    """The tokens of the prompt, and its completions in the order of the request's keys."""

    prompt_tokens: tuple[int, ...]
    completions: tuple[Completion, ...]


OnAnswer: TypeAlias = Callable[[int, Sampled | Fault], None]
"""Callback: receives the index of a request within its call, and the result of that request."""


class Sampler(Protocol):
    """Samples completions for a list of requests, which may name different policies.

    Results have the order of the requests. If a request fails, its result is a Fault.

    A sampler may report results early: it calls `on_answer` in the event loop's thread, at most
    once per request and before `sample` returns. The returned list is complete in every case, so a
    sampler may also never call `on_answer`.
    """

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]: ...


@dataclass(frozen=True)
class ScoreRequest:
    """A request for the log-probabilities of `tokens` under the reference model of `policy`.

    `temperature` is the one that the tokens were sampled at.
    """

    policy: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    temperature: float


@dataclass(frozen=True)
class ValueRequest:
    """A request for values of a critic. There are two kinds.

    `prompt`: one value at the end of the prompt, which the critic encodes with its own tokenizer.
    `prompt_tokens` and `completion`: one value before each token of the completion. The critic must
    then have the same tokenizer as the policy.
    """

    critic: str
    prompt: Prompt | None = None
    prompt_tokens: tuple[int, ...] = ()
    completion: tuple[int, ...] = ()


@dataclass(frozen=True)
class ValueEstimate:
    """Values of a critic: `values[k]` is read after `tokens[positions[k]]`, that token included."""

    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    values: tuple[float, ...]
    cut: int = 0
    """Number of tokens cut off at the beginning because the critic's context is too short."""


class Scorer(Protocol):
    """Computes the reference log-probabilities per token and the critics' values that
    credit needs."""

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]: ...

    async def values(self, requests: Sequence[ValueRequest]) -> list[ValueEstimate]: ...


class Publisher(Protocol):
    """Copies new weights to the sampler.

    `publish` returns the version number that completions have from now on.
    """

    async def publish(self, names: Sequence[str]) -> int: ...


@dataclass(frozen=True)
class Team:
    """Assigns policies to agents.

    Two agents with the same policy name share weights. One gradient step then uses the samples of
    both.
    """

    agents: Mapping[str, tuple[str, ...]]
    """Agent -> its policy for each turn. The last policy is used for all later turns."""
    decode: Mapping[str, Decode]
    system: Mapping[str, str] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    """Policies that are never trained."""
    critics: Mapping[str, str] = field(default_factory=dict)
    """Agent -> the critic that values its observations. Empty if the algorithm has no critic."""

    def policy_of(self, agent: str, turn: int) -> str:
        policies = self.agents[agent]
        return policies[min(turn, len(policies) - 1)]

    def policy_turns(self, turns: int) -> tuple[tuple[str, int], ...]:
        """Return every (policy, turn) that is trained, in the order of agents and turns."""
        policy_turns = dict.fromkeys(
            (self.policy_of(agent, turn), turn) for agent in self.agents for turn in range(turns)
        )
        return tuple(
            policy_turn for policy_turn in policy_turns if policy_turn[0] not in self.frozen
        )

    @property
    def policies(self) -> tuple[str, ...]:
        """Every policy once, in the order of agents and turns."""
        return tuple(dict.fromkeys(name for policies in self.agents.values() for name in policies))


# ------------------------------------------------------------ training data


@dataclass(frozen=True)
class SampleId:
    """Identifies a completion: number `index` of `agent` in the Round at `path` of an episode."""

    episode: str
    path: Path
    agent: str
    index: int


@dataclass(frozen=True)
class TrainSample:
    """One completion with its advantage, independent of the tree. `advantage` is one number, or one
    per token.

    `weight` is the sample's share of the training step: 1/tasks, times 1/J for every Round above,
    times 1/G of its own Round, times the weight of its turn.
    """

    id: SampleId
    policy: str
    turn: int
    group: int
    prompt_tokens: tuple[int, ...]
    completion: Completion
    advantage: float | tuple[float, ...]
    weight: float
    reference_logprobs: tuple[float, ...] | None = None
    old_logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True)
class ValueId:
    """Identifies the input of a critic: the Round at `path` of an episode.

    `agent` names the agent whose observation is read. None is the joint observation. With `index`,
    the critic reads the tokens of that completion of the agent.
    """

    episode: str
    path: Path
    agent: str | None
    index: int | None = None


@dataclass(frozen=True)
class ValueSample:
    """One training sample of a critic: its input, the positions where values are read, the targets.

    `weight` is its share of the training step: the share of the Round, or of the completion whose
    tokens are valued.
    """

    id: ValueId
    critic: str
    policy_turns: tuple[tuple[str, int], ...]
    """The (policy, turn) pairs whose advantages use this value: those of this turn and, if values
    propagate across turns, those of all earlier turns."""
    turn: int
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    target: tuple[float, ...]
    old_value: tuple[float, ...]
    weight: float


@dataclass(frozen=True)
class Scores:
    """Model outputs for a step's completions besides those of the policies.

    A mapping is empty if the algorithm does not need it.
    """

    reference: Mapping[SampleId, tuple[float, ...]] = field(default_factory=dict)
    """Log-probabilities of each completion's tokens under the reference model of its policy."""
    values: Mapping[ValueId, ValueEstimate] = field(default_factory=dict)
    """The critics' values of every observation, or of every completion's tokens."""


@dataclass(frozen=True)
class CreditState:
    """State that credit assignment keeps between steps. It is part of every checkpoint."""

    averages: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """`agent/turn` -> (decayed sum of returns, decayed count). Used by the moving_average baseline.
    """
    kl_coefficients: Mapping[str, float] = field(default_factory=dict)
    """Policy -> its KL coefficient, if coefficients adapt."""
