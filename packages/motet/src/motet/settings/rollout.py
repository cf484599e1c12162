"""How the games of a step are played: sampling, turns, joint actions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from motet.settings.base import Probability, Settings

COLDEST, HOTTEST = 1e-30, 1e30
"""The temperatures that float32 can divide logits by: beyond them the quotients are not finite."""


def check_temperature(temperature: float) -> float:
    """Return a temperature. Raises: ValueError if logits cannot be divided by it."""
    if not COLDEST <= temperature <= HOTTEST:
        raise ValueError(
            f"got a temperature of {temperature:g}, expected {COLDEST:g} to {HOTTEST:g}: float32 "
            "cannot divide logits by it"
        )
    return temperature


class Thinking(Settings):
    """How an agent thinks before it answers. What it thinks is trained. Rewards and other agents
    read its answer, which begins behind the end tag, and its later prompts leave the thinking out.
    """

    start: str = Field("<think>", min_length=1)
    """How thinking begins. The chat template may write it, or the model."""
    end: str = Field("</think>", min_length=1)
    """How it ends. Both may have special tokens, such as <|channel|>final<|message|>."""
    max_tokens: PositiveInt | None = None
    """After so many tokens that still think, `closing` is put in, which is not trained, and the
    model goes on with its answer. null: thinking ends only by itself, or with the completion, which
    then has no answer."""
    closing: str | None = None
    """What is put in. The default is the end tag, alone if it begins with a special token, and else
    between line breaks."""
    shown: bool = False
    """Whether rewards and other agents read the thinking, too, as a part of the text."""

    def parted(self, text: str) -> tuple[str, str]:
        """Return what a text thinks, without its tags, and its answer."""
        before, found, answer = text.partition(self.end)
        thinks = found or text.lstrip().startswith(self.start.rstrip())
        if not thinks:
            return "", text
        return before.lstrip().removeprefix(self.start.rstrip()).strip(), answer.lstrip()

    @model_validator(mode="after")
    def _closes(self) -> Self:
        if self.closing is not None and self.end not in self.closing:
            raise ValueError(
                f"got closing {self.closing!r}; expected one with the end tag, {self.end!r}"
            )
        return self


class AnswerFormat(Settings):
    """The form of an answer, one of three. All other tokens have probability 0, in sampling and in
    training."""

    choices: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(None, min_length=1)
    """One of these texts, each in the tokens that the model's tokenizer writes it in."""
    regex: str | None = Field(None, min_length=1)
    """A text that this regular expression matches as a whole; without lookaround and references."""
    json_schema: dict[str, Any] | None = None
    """JSON of this schema, such as {type: object, properties: {price: {type: number}}}."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        kinds = ("choices", "regex", "json_schema")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                f"got {' and '.join(given) or 'nothing'}; expected one of choices, regex and "
                "json_schema"
            )
        return self


class Decode(Settings):
    """Sampling parameters of an agent."""

    temperature: Annotated[PositiveFloat, AfterValidator(check_temperature)] = 1.0
    """Divides the logits, both in sampling and in training."""
    top_p: Probability = 1.0
    """Sample from the smallest set of tokens with at least this probability. Below 1, the policy
    gradient is biased."""
    top_k: int = Field(0, ge=0)
    """Sample from the k most likely tokens; 0 turns it off. Above 0, the policy
    gradient is biased."""
    max_new_tokens: PositiveInt = 256
    """Maximum length of a completion in tokens, end-of-sequence token included."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion. They are removed from its text. Their tokens are kept and
    trained."""
    show_special_tokens: bool = False
    """Whether special tokens inside a completion, such as [THINK] or <|channel|>, are shown in its
    text, which rewards and other agents read. The token that ends it never is. In the prompt of
    another agent they are ordinary characters."""
    thinking: Thinking | None = None
    """How the agent thinks before it answers; {}: between <think> and </think>. null: all that it
    writes is its answer."""
    format: AnswerFormat | None = None
    """The form of the answer: {choices: [yes, no]}, {regex: ...} or {json_schema: ...}. It needs
    pip install "motet[formats]"."""
    template: dict[str, Any] = Field(default_factory=dict)
    """Variables of the chat template for this agent, such as enable_thinking: false. Those of
    `models.NAME.template_options` are for all agents of a model and are saved with it."""

    def __hash__(self) -> int:
        """A mapping, as in `template`, has no hash of its own."""
        return hash(self.model_dump_json())


Defaulting: TypeAlias = Literal["none", "one", "all"]
"""Which agents give a default in `Round.without`: nobody, each one alone, or all sets."""


@dataclass(frozen=True)
class TurnCounts:
    """What is played per task at one turn."""

    rounds: int
    completions: int
    """Of each agent that acts."""
    joint_actions: int


class Plan(Settings):
    """The rollout plan: how many completions are sampled per turn, and how they form
    joint actions."""

    samples: tuple[PositiveInt, ...] = Field((4,), min_length=1, max_length=127)
    """Completions per agent at every Round of turn 1, 2, ...; the number of entries is the turn
    limit, at most 127: longer games cannot be recorded. [8] is one turn, [4, 4] the published
    MAGRPO tree, [16, 1] sixteen two-turn paths without branches."""
    pairing: Literal["aligned", "crossed"] = "aligned"
    """How completions form joint actions. aligned: the g-th completions of all agents form joint
    action g. crossed: every combination is a joint action, G^N in total."""
    expand: Literal["all", "best", "random", "replay"] = "all"
    """Which joint actions of a Round are continued at the next turn: all, the one with the highest
    mean reward, or a random one. `algorithm.pruned` sets the credit of the others. Training with
    best needs `pruned: sibling_mean`. replay: a random one, and the others are played to their end
    once, with one sample per turn, which is not trained on: each completion is compared with others
    in the same context, at a cost that grows with the square of the turns (the replayed contexts of
    C3, arXiv 2603.06859)."""
    max_nodes: PositiveInt = 4096
    """Maximum number of Rounds per task. A plan with more is refused."""
    stop_at_reward: float | None = None
    """End a branch when its mean reward of a turn reaches this value. Off unless set."""
    stop_by: Literal["branch", "round"] = "branch"
    """What `stop_at_reward` ends. branch: every joint action whose own reward reaches it. round:
    all joint actions of a Round, when their mean reward reaches it."""
    timeout_seconds: PositiveFloat | None = 3600.0
    """Timeout for each start, observe, step or close of an environment, including its reward and
    the services it calls. After the timeout the call is interrupted and becomes a counted fault;
    otherwise one silent connection could block the run forever. null: no timeout.
    docs/own_environment.md says what can be interrupted: all code that awaits, and nearly all code
    that does not."""
    call_threads: PositiveInt = 32
    """How many plain functions (start, step, close, reward, feedback that are not async) run at the
    same time, each in a thread of its own, so that those that wait for a server wait together. 1:
    one after the other in the main thread, for code that needs it (signals, some database drivers
    and browsers)."""
    retries: NonNegativeInt = 2
    """How often start or step of an environment, or a reward, is retried after an error that may be
    temporary: a lost connection, a timeout of their own, an error with `may_pass`. A retry starts
    from the same state, so `step` of an environment that cannot branch is not retried. A reward is
    called again without a step."""

    refill: NonNegativeInt = 0
    """How many further waves of tasks a training step may play until it has `train.tasks_per_step`
    whose joint actions did not all end alike (by `success`, else by the last reward). Only those
    are trained on. 0: the tasks of the step are all, whatever they teach."""

    @model_validator(mode="after")
    def _something_stops(self) -> Self:
        if self.stop_by != "branch" and self.stop_at_reward is None:
            raise ValueError(
                f"stop_by {self.stop_by} needs a reward to stop at, got stop_at_reward null: set "
                "stop_at_reward, or drop stop_by"
            )
        return self

    def joint_actions(self, turn: int, acting: int) -> int:
        """Return J, the number of joint actions of one Round in which `acting` agents act at
        `turn`."""
        return self.samples[turn] ** acting if self.pairing == "crossed" else self.samples[turn]

    def rounds(self, acting: int | Sequence[int]) -> tuple[int, ...]:
        """Return the number of Rounds per task at every turn, without those that only credit
        without some agents plays (`counts`)."""
        return tuple(turn.rounds for turn in self.counts(acting))

    def counts(
        self, acting: int | Sequence[int], absent: Defaulting = "none"
    ) -> tuple[TurnCounts, ...]:
        """Return what is played per task at every turn.

        It assumes that no branch ends early. `acting` agents act at every turn, or so many at each,
        and all of them learn.
        """
        acting_T = [acting] * len(self.samples) if isinstance(acting, int) else acting
        found: list[TurnCounts] = []
        whole, once = 1, 0
        for turn, agents in enumerate(acting_T):
            samples, joint = self.samples[turn], self.joint_actions(turn, agents)
            without = self._without(samples, agents, absent)
            found.append(
                TurnCounts(whole + once, whole * samples + once, whole * (joint + without) + once)
            )
            once += whole * (without + (joint - 1 if self.expand == "replay" else 0))
            whole *= joint if self.expand == "all" else 1
        return tuple(found)

    def _without(self, samples: int, agents: int, absent: Defaulting) -> int:
        """Return how many joint actions without some agents a Round has; of more than four agents
        at most so many."""
        if absent == "none":
            return 0
        if absent == "one":
            each = samples ** (agents - 1) if self.pairing == "crossed" else samples
            return agents * each if agents > 1 else 1
        if self.pairing == "crossed":
            return int((samples + 1) ** agents - samples**agents)
        return int(samples * (2**agents - 2) + 1)

    @property
    def chooses(self) -> bool:
        """Whether one joint action of a Round may be chosen to go on: a Round before the last turn
        has several."""
        return self.expand != "all" and any(count > 1 for count in self.samples[:-1])

    @property
    def prunes(self) -> bool:
        """Whether the others are then pruned."""
        return self.chooses and self.expand != "replay"

    @property
    def once(self) -> "Plan":
        """The plan of one path: one sample per agent at every turn."""
        single = {"samples": (1,) * len(self.samples), "expand": "all", "pairing": "aligned"}
        return self.model_copy(update=single)

    @property
    def straight(self) -> bool:
        """Whether the tree consists of paths without branches: every Round after the first has one
        sample per agent."""
        return all(count == 1 for count in self.samples[1:])
