"""The words of Motet. Every stage takes one of these types and returns the next; none is written into after it is made.

    play -> Episode (a tree of Rounds) -> score -> credit -> TrainSample -> pack -> Batch -> learn -> publish

Axes, used as suffixes everywhere: B sequences, L tokens, P prompts, N agents, T turns, G samples of one agent at one prompt,
J joint actions, S samples of a step.

No torch here: environments and records know texts and numbers only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from motet.settings import Decode

Stop = Literal["stop", "length"]
"""Why a completion ended: an end-of-sequence token or a stop string, or the token limit."""
Boundary = Literal["environment", "reward", "sampler", "sandbox"]
End = Literal["done", "stopped", "limit", "pruned"]
"""Why nothing follows an outcome: the environment is done; a stop rule of the run; the last turn; not chosen to go on."""
Path: TypeAlias = tuple[int, ...]
"""Where a Round hangs: the index of the outcome taken at each earlier Round. () is the root."""
RIGHT = "right/"
"""The term `right/AGENT`: 1 where the agent's answer of this turn is right by the gold label, else 0."""
PERSONAL = "personal/"
"""The term `personal/AGENT`: what this turn earns the agent beside its reward. It is never shared and crosses no turn."""


# ---------------------------------------------------------------------------------------------------- texts


@dataclass(frozen=True)
class Message:
    """One message of a chat. `name` tells speakers of one role apart, where a chat template can show it."""

    role: Literal["system", "user", "assistant"]
    content: str
    name: str | None = None


Chat: TypeAlias = tuple[Message, ...]
Prompt: TypeAlias = Chat | str
"""A chat goes through the tokenizer's chat template; a string is the raw text for a base model."""


@dataclass(frozen=True)
class Reply:
    """What an environment sees of a completion: never tokens."""

    text: str
    stop: Stop = "stop"


@dataclass(frozen=True)
class Task:
    """One problem. `fields` holds plain JSON values (a dataset row, or what an embedded environment made)."""

    id: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Mark:
    """What one text comes to, spelt one way however it was written (None where it answers nothing), and whether it is right."""

    answer: str | None
    right: bool


@dataclass(frozen=True)
class Demonstration:
    """One right answer to one prompt, for the supervised warm-up of whoever plays `agent` at `turn`."""

    agent: str
    prompt: Prompt
    text: str
    turn: int = 0


# ---------------------------------------------------------------------------------------------------- episodes


@dataclass(frozen=True)
class Fault:
    """Something broke on the way to a reward. It is data: counted and shown, never a zero."""

    where: Boundary
    cause: str
    """The kind, one stable word for counting: the exception's class, `long_prompt`, ..."""
    message: str


@dataclass(frozen=True)
class Completion:
    """One sampled answer.

    `logprobs` are those of the whole softmax at `temperature` (nats, one per token, end-of-sequence token included), however
    top-p or top-k restricted the draw. `tokens` and `logprobs` are None for a partner behind an API: it is never trained.
    """

    policy: str
    text: str
    stop: Stop
    version: int = 0
    tokens: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if (self.tokens is None) != (self.logprobs is None):
            raise ValueError("a Completion has tokens and logprobs, or neither")
        if self.tokens is not None and self.logprobs is not None and len(self.tokens) != len(self.logprobs):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.logprobs)} logprobs")


@dataclass(frozen=True)
class Outcome:
    """One joint action and what came of it. A faulty one leaves its group; its siblings stay."""

    picks: Mapping[str, int]
    """Which sample each acting agent contributed."""
    rewards: Mapping[str, float]
    """For every agent of the team, acting or not; empty where there is a fault."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """Named parts of the reward and diagnostics; `success` in [0, 1] at every terminal outcome."""
    next: "Round | None" = None
    end: End | None = None
    """Set exactly where `next` and `fault` are None."""
    fault: Fault | None = None


@dataclass(frozen=True)
class Round:
    """One turn from one state: every acting agent's prompt and samples, and the joint actions made of them.

    All acting agents speak at once; one acting agent is turn-taking. A Round is built after its children.
    """

    turn: int
    prompts: Mapping[str, Prompt]
    prompt_tokens: Mapping[str, tuple[int, ...]]
    samples: Mapping[str, tuple[Completion, ...]]
    outcomes: tuple[Outcome, ...]


def walk(root: Round, path: Path = ()) -> Iterator[tuple[Path, Round]]:
    """Every Round of a tree with where it hangs, parents before children."""
    yield path, root
    for index, outcome in enumerate(root.outcomes):
        if outcome.next is not None:
            yield from walk(outcome.next, (*path, index))


@dataclass(frozen=True)
class Episode:
    """One task played once, as a tree. `root` is None exactly where `fault` is set.

    `greedy` is one untrained path of greedy answers, where the algorithm's baseline is ReMax's.
    """

    id: str
    task: Task
    root: Round | None
    greedy: Round | None = None
    fault: Fault | None = None


# ---------------------------------------------------------------------------------------------------- environments

State = TypeVar("State")


@dataclass(frozen=True)
class Transition:
    """What a joint action led to. `rewards` names every agent of the environment."""

    state: Any
    rewards: Mapping[str, float]
    done: bool
    terms: Mapping[str, float] = field(default_factory=dict)


class Environment(Protocol[State]):
    """A game for agents that speak. It owns roles, prompts, turns and reward terms, and sees only text.

    A State is an immutable value: stepping twice from one state *is* branching. An environment that cannot promise that sets
    `branches = False`, and plans that need trees refuse it. Faults are raised as `EnvironmentFault`, `RewardFault` or
    `SandboxFault`. `environments.check_environment` tests all of this.

    What more an environment can do is one optional method each:
    `tasks(split)` (problems of its own), `task(row)` (from a dataset row: one, or a list of any length; the same if asked again),
    `demonstrate(task, seed)` and `solve(state, seed)` (right answers, for warm-up and for a reference team),
    `convention(task, agent, text)` (a diagnostic label), `alone()` (the game as one agent plays it by itself, on the same tasks)
    and `answer(task, texts)` (what the last texts of the agents come to, for a vote: a string or None where they answer nothing).
    Where a verifier can judge single texts: `question(task)` (the prompt it reads before one) and, awaited, `mark(task, text)`
    (what the text comes to, and whether that is right by the gold answer). All answers there are, where they are few: `labels`.
    Where every episode is over after a number of turns, the attribute `most_turns` says so, and longer plans are refused.
    One that gives the term `right/AGENT` of everybody at every turn has the attribute `says_right`: incentives need it.
    One that pays the end of an episode only has `rewards_at_end`.
    """

    agents: Sequence[str]
    branches: bool

    async def start(self, task: Task, seed: int) -> State: ...

    def observe(self, state: State) -> Mapping[str, Prompt]:
        """The prompt of every agent that acts now; at least one."""
        ...

    async def step(self, state: State, replies: Mapping[str, Reply], seed: int) -> Transition: ...

    async def close(self, state: State) -> None:
        """Called once per episode with its starting state, also after a fault."""
        ...


# ---------------------------------------------------------------------------------------------------- sampling


@dataclass(frozen=True)
class SampleRequest:
    """`len(keys)` answers of one policy to one prompt. `id` orders a wave; one key per answer seeds its draws."""

    id: tuple[Any, ...]
    policy: str
    prompt: Prompt
    decode: Decode
    keys: tuple[int, ...]
    greedy: bool = False


@dataclass(frozen=True)
class Sampled:
    """The prompt as tokens (once) and its answers, in the order of the request's keys."""

    prompt_tokens: tuple[int, ...]
    completions: tuple[Completion, ...]


OnAnswer: TypeAlias = Callable[[int, Sampled | Fault], None]
"""Takes the place of a request in its call, and the answer."""


class Sampler(Protocol):
    """Answers any mix of policies in one call, in order. What one prompt cannot have is a Fault in its place.

    It may hand out answers while others are still being made: `on_answer` is called in the event loop's thread, at most once per
    request and before `sample` returns. The list is complete all the same, so a sampler that hands out nothing is right too.
    """

    async def sample(
        self, requests: Sequence[SampleRequest], on_answer: OnAnswer | None = None
    ) -> list[Sampled | Fault]: ...


@dataclass(frozen=True)
class ScoreRequest:
    """Tokens whose log-probabilities are wanted, under the reference of `policy` and at the temperature they were drawn at."""

    policy: str
    prompt_tokens: tuple[int, ...]
    tokens: tuple[int, ...]
    temperature: float


@dataclass(frozen=True)
class ValueRequest:
    """What a critic is to value: a prompt, at its end, after its own tokenizer; or, where it shares the player's tokenizer, a
    completion behind the tokens of its prompt, before each token of it."""

    critic: str
    prompt: Prompt | None = None
    prompt_tokens: tuple[int, ...] = ()
    completion: tuple[int, ...] = ()


@dataclass(frozen=True)
class Valued:
    """What a critic said: `values[k]` after reading `tokens` up to and with the one at `positions[k]`."""

    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    values: tuple[float, ...]
    cut: int = 0
    """Tokens at the beginning that were left out, because the critic's context holds no more."""


class Scorer(Protocol):
    """What credit needs beyond the episodes: reference log-probabilities per token, and the values of critics."""

    async def logprobs(self, requests: Sequence[ScoreRequest]) -> list[tuple[float, ...]]: ...

    async def values(self, requests: Sequence[ValueRequest]) -> list[Valued]: ...


class Publisher(Protocol):
    """Hands new weights to whoever samples; returns the version that completions sampled from now on carry."""

    async def publish(self, names: Sequence[str]) -> int: ...


@dataclass(frozen=True)
class Team:
    """Who plays which agent. Two agents with one policy name share weights; all agents' samples then train it in one step."""

    agents: Mapping[str, tuple[str, ...]]
    """Agent -> its policy per turn; the last one repeats."""
    decode: Mapping[str, Decode]
    system: Mapping[str, str] = field(default_factory=dict)
    frozen: frozenset[str] = frozenset()
    """Policies that are never trained."""
    critics: Mapping[str, str] = field(default_factory=dict)
    """Agent -> the critic that values its situations; empty where the algorithm has none."""

    def policy_of(self, agent: str, turn: int) -> str:
        policies = self.agents[agent]
        return policies[min(turn, len(policies) - 1)]

    def learning_seats(self, turns: int) -> tuple[tuple[str, int], ...]:
        """Every (policy, turn) that is trained, in the order of agents and turns."""
        seats = dict.fromkeys((self.policy_of(agent, turn), turn) for agent in self.agents for turn in range(turns))
        return tuple(seat for seat in seats if seat[0] not in self.frozen)

    @property
    def policies(self) -> tuple[str, ...]:
        """Every policy once, in the order of the agents and turns."""
        return tuple(dict.fromkeys(name for policies in self.agents.values() for name in policies))


# ---------------------------------------------------------------------------------------------------- training data


@dataclass(frozen=True)
class SampleId:
    """Which completion: the `index`-th of `agent` in the Round at `path` of an episode."""

    episode: str
    path: Path
    agent: str
    index: int


@dataclass(frozen=True)
class TrainSample:
    """One completion with its credit; the tree is over. `advantage` is one number, or one per token.

    `weight` is the sample's share of the step: 1/tasks, times 1/J of every Round above, times 1/G here, times its turn's weight.
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
class ReadingId:
    """What a critic read: the Round at `path` of an episode, as `agent` sees it or (None) as all together do; with `index`, the
    tokens of that completion of the agent."""

    episode: str
    path: Path
    agent: str | None
    index: int | None = None


@dataclass(frozen=True)
class ValueSample:
    """One regression target of a critic: its input, where in it values are read, and what they should have been.

    `weight` is its share of the step: that of the Round, or of the completion whose tokens are valued.
    """

    id: ReadingId
    critic: str
    seats: tuple[tuple[str, int], ...]
    """Whose credit the value is for, as (policy, turn): here and, where values cross turns, at all turns before."""
    turn: int
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    target: tuple[float, ...]
    old_value: tuple[float, ...]
    weight: float


@dataclass(frozen=True)
class Scores:
    """What models other than the players say of a step's completions; empty where no algorithm asks."""

    reference: Mapping[SampleId, tuple[float, ...]] = field(default_factory=dict)
    """Log-probabilities of each completion's tokens under its policy's reference."""
    values: Mapping[ReadingId, Valued] = field(default_factory=dict)
    """What critics say of every situation, or of every completion's tokens."""


@dataclass(frozen=True)
class CreditState:
    """What credit remembers from step to step; part of every checkpoint."""

    averages: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """`agent/turn` -> (decayed sum of returns, decayed count), for the moving_average baseline."""
    kl_coefficients: Mapping[str, float] = field(default_factory=dict)
    """Policy -> its coefficient, where it adapts."""
