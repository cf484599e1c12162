"""Tasks, messages, completions, and the trees that episodes are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from motet.core.terms import BONUS, MAJORITY_RIGHT, RIGHT, SUCCESS, by_agent
from motet.core.tools import ToolCall, ToolSchema
from motet.settings import AnswerFormat

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

_IF_GIVEN = Field(exclude_if=lambda value: not value)
"""A field that records leave out if it is empty."""

# ------------------------------------------------------------ texts


@dataclass(frozen=True)
class Message:
    """One message of a chat.

    `name` distinguishes speakers that have the same role, if the chat template can show names. That
    of a message of a tool is the tool's.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    name: str | None = None
    thinking: Annotated[str, _IF_GIVEN] = ""
    """What the assistant thought before it. The chat template decides whether a model reads it."""
    calls: Annotated[tuple[ToolCall, ...], _IF_GIVEN] = ()
    """The calls of the assistant. The messages of tools behind it are their results."""
    call_id: Annotated[str, _IF_GIVEN] = ""
    """Of a tool: the id of the call whose result this is."""
    failed: Annotated[bool, _IF_GIVEN] = False
    """Of a tool: whether this result is an error."""
    tools: Annotated[tuple[ToolSchema, ...], _IF_GIVEN] = ()
    """The tools that the chat offers to the assistant, at its first message."""

    @property
    def shown(self) -> str:
        """Its content as people read it, with its calls and the names of the tools on offer."""
        calls = [f"calls {call}" for call in self.calls]
        offers = [f"(tools: {', '.join(tool.name for tool in self.tools)})"] if self.tools else []
        return "\n".join([*([self.content] if self.content or not calls else []), *calls, *offers])


Chat: TypeAlias = tuple[Message, ...]
Prompt: TypeAlias = Chat | str
"""A chat is formatted with the tokenizer's chat template. A string is raw text for a base model."""


@dataclass(frozen=True)
class Reply:
    """The part of a completion that an environment sees. It never sees tokens."""

    text: str
    stop: StopReason = "stop"
    thinking: str = ""
    """What the agent thought before the text, with `decode.thinking`."""
    calls: tuple[ToolCall, ...] = ()
    """The calls that stand in it, if its prompt offers tools. The text is without them."""
    unread: str = ""
    """Why a call in it cannot be read. Then it has no calls, and the text is as it was written."""


@dataclass(frozen=True)
class Task:
    """One problem.

    `fields` holds a dataset row, or values that an embedded environment generated: those of
    `core.row_values`, which a record gives back equal.
    """

    id: str
    fields: Mapping[str, Any]
    environment: Annotated[str, _IF_GIVEN] = ""
    """Its environment, by the name that it has in a mixture."""


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
    place: str = field(default="", compare=False)
    """`FILE:LINE in FUNCTION: CODE` of the user's code that raised; empty if there is none."""
    trace: str = field(default="", compare=False, repr=False)
    """The whole traceback. `place` and `trace` depend on the machine, so equality ignores them."""

    def __str__(self) -> str:
        at = f" ({self.place})" if self.place else ""
        return f"{self.where}/{self.cause}: {self.message}{at}"


@dataclass(frozen=True)
class Restriction:
    """The form that an answer has, so that its tokens were sampled from those that it allows."""

    format: AnswerFormat
    first: int = 0
    """The number of the first token of the answer. Those before it are of a thinking."""
    after_thinking: bool = False
    """Whether there was a thinking, so that spaces may stand before the answer."""


@dataclass(frozen=True)
class Usage:
    """The tokens of one answer as the server counted them. None if it did not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@dataclass(frozen=True)
class Completion:
    """One sampled completion.

    `logprobs` holds one value per token in nats, end-of-sequence token included. The values are
    those of the whole softmax at `temperature`, even if top-p or top-k restricted sampling.
    `tokens` and `logprobs` are None for a policy behind an endpoint, which is never trained.
    """

    policy: str
    text: str
    stop: StopReason
    version: int = 0
    tokens: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    temperature: float = 1.0
    thinking: Annotated[str, _IF_GIVEN] = ""
    """What stands before the text: the thinking of an agent with `decode.thinking`."""
    calls: Annotated[tuple[ToolCall, ...], _IF_GIVEN] = ()
    unread: Annotated[str, _IF_GIVEN] = ""
    """These two as in a Reply."""
    forced: Annotated[tuple[int, int] | None, _IF_GIVEN] = None
    """The first of the tokens that were put in, not sampled, and the place behind the last of them:
    the end of a thinking that was too long. They are certain: their log-probabilities are 0 in
    sampling and training, so nothing is learned from them."""
    restriction: Annotated[Restriction | None, _IF_GIVEN] = None
    """With `decode.format`: its log-probabilities are those of the tokens that the form allows."""
    usage: Annotated[Usage | None, _IF_GIVEN] = None
    """What the server of a policy behind an endpoint counted. None for all other completions, whose
    records leave it out."""

    def __post_init__(self) -> None:
        if (self.tokens is None) != (self.logprobs is None):
            raise ValueError(
                "a Completion got only one of tokens and logprobs; expected both or neither"
            )
        if (
            self.tokens is not None
            and self.logprobs is not None
            and len(self.tokens) != len(self.logprobs)
        ):
            raise ValueError(
                f"a Completion got {len(self.tokens)} tokens and {len(self.logprobs)} logprobs; "
                "expected equally many"
            )

    @property
    def reply(self) -> Reply:
        """What an environment sees of it."""
        return Reply(self.text, self.stop, self.thinking, self.calls, self.unread)


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
    """What else the environment said in numbers, by the names of the records (`core.terms`)."""
    next: "Round | None" = None
    end: End | None = None
    """Set if and only if `next` and `fault` are None."""
    fault: Fault | None = None
    once: Annotated[bool, _IF_GIVEN] = False
    """Whether the rest of the game was played once, with one sample per turn, to know the return of
    this joint action only. Its completions are not trained on."""

    @property
    def success(self) -> float | None:
        """How well the team solved the task, from 0 to 1. None if the environment does not say."""
        return self.terms.get(SUCCESS)

    @property
    def right(self) -> dict[str, float]:
        """Agent -> 1 if its own answer of this turn is right, else 0."""
        return by_agent(self.terms, RIGHT)

    @property
    def majority_right(self) -> float | None:
        """1 if the most common answer of this turn is right, else 0. None if nobody says."""
        return self.terms.get(MAJORITY_RIGHT)

    @property
    def bonus(self) -> dict[str, float]:
        """Agent -> what is added to its own return of this turn."""
        return by_agent(self.terms, BONUS)

    def rewarded(self, rewards: Mapping[str, float]) -> "Outcome":
        """Return the same outcome with other rewards, and without a bonus."""
        terms = {name: it for name, it in self.terms.items() if not name.startswith(BONUS)}
        return replace(self, rewards=rewards, terms=terms)


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
    without: Annotated[tuple[Outcome, ...], _IF_GIVEN] = ()
    """What would have happened without some agents: those that are not in the picks gave the
    default of the environment in place of a sample. They exist if the algorithm's credit reads
    them, are not trained on, and `walk` does not visit them."""


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
