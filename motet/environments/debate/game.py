"""The debate: everyone answers a question, hears the others, and answers again, to the last of `turns`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from motet.core import PERSONAL, RIGHT, Chat, Mark, Message, Prompt, Reply, Task, Transition
from motet.environments.debate.judging import Judge, Labels, Numbers, Reading, Terms, agreement, majority
from motet.environments.debate.prompts import Hearing, Hears, History, Topology, Turn, first_prompt, heard_by
from motet.environments.debate.questions import Dataset, Question, read_row, run_row
from motet.environments.debate.verified import Verifier, check_verifier
from motet.errors import ConfigError
from motet.plugins import nearest
from motet.rewards.maths import Maths
from motet.rewards.nli import LABELS
from motet.sandbox import Sandbox
from motet.settings import Probability, Settings

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
"""What agents are called where only their number is given."""
Scores = Literal["exact", "verifier"]


class Consensus(Settings):
    """A debate ends early where both are reached."""

    share: Probability = 1.0
    """The share of the agents that give the commonest answer."""
    score: float = Field(0.0, ge=0.0, le=1.0)
    """The mean of what rewards them."""


@dataclass(frozen=True)
class Debated:
    """The state: the question, and the turns so far."""

    question: Question
    turns: tuple[Turn, ...] = ()


class Debate:
    """Every agent acts at every turn, and is rewarded at every turn for its own answer: right or not, or a verifier's score."""

    branches = True
    says_right = True

    class Options(Settings):
        """Options of the debate."""

        dataset: Dataset = "gsm8k"
        """What is asked: gsm8k (question, answer), tinygsm (question, code; or a row of gsm8k), anli (premise, hypothesis,
        label) or maths (problem, answer)."""
        agents: int | tuple[str, ...] = 2
        """How many debate, at most 8 (alice, bob, carol, ...), or what they are called."""
        roles: dict[str, str] = Field(default_factory=dict)
        """Agent -> a system message of its own."""
        topology: Topology = "full"
        """Who hears whom. full: everybody all others. ring: each the one named before it. star: the first all others, and they
        the first. none: nobody anybody."""
        hears: Hears = "last"
        """What is heard of the others. last: their last answers. full: those of all turns. answers: only what their last answers
        come to, without the reasons."""
        history: History = "none"
        """How the past stands in a prompt. none: the question and the agent's last answer, in one message. own: its earlier
        prompts and answers, message by message."""
        score: Scores = "exact"
        """What an answer is rewarded with. exact: 1 if it is right, else 0. verifier: the verifier's score."""
        show_scores: Literal["none", "exact", "verifier"] = "none"
        """Which scores agents are shown beside the last answers, in a figure and in words, whatever rewards them. exact tells
        them who is right."""
        format_penalty: NonNegativeFloat = 0.0
        """What an answer costs its agent that does not stand in \\boxed{}."""
        consensus: Consensus | None = None
        """When a debate ends before its last turn. Off unless set."""
        maths_seconds: float = Field(5.0, gt=0.0)
        """maths: the time that reading and comparing one answer may take."""

        @model_validator(mode="after")
        def _names(self) -> Self:
            if isinstance(self.agents, int) and not 1 <= self.agents <= len(NAMES):
                raise ValueError(f"agents is {self.agents}; expected 1 to {len(NAMES)}, or a list of names")
            names = self.names
            if not names or len(set(names)) < len(names) or not all(name.isidentifier() for name in names):
                raise ValueError(f"agents is [{', '.join(names)}]; expected different names of letters, digits and _")
            strangers = [name for name in self.roles if name not in names]
            if strangers:
                hint = nearest(strangers[0], names)
                raise ValueError(f"roles names {strangers[0]!r}{hint}; the agents are {', '.join(names)}")
            return self

        @property
        def names(self) -> tuple[str, ...]:
            return NAMES[: self.agents] if isinstance(self.agents, int) else self.agents

    def __init__(
        self,
        options: Options,
        *,
        turns: int = 2,
        verifier: Verifier | None = None,
        open_sandbox: Callable[[], Sandbox] | None = None,
    ) -> None:
        """`turns` is how many are played. Only tinygsm opens the sandbox.

        Raises: ConfigError for scores of a verifier that is not there, and for one that is there and not asked.
        """
        self.options = options
        self.turns = turns
        self.agents: Sequence[str] = options.names
        if options.dataset == "anli":
            self.labels = LABELS
        self._verifier, self._open_sandbox = verifier, open_sandbox
        self._asks = "verifier" in (options.score, options.show_scores)
        said = f"score is {options.score} and show_scores is {options.show_scores}"
        check_verifier(said, verifier, asks=self._asks)
        self._judge = _judge_of(options)
        self._hearings = {
            agent: Hearing(
                agent=agent,
                peers=heard_by(agent, self.agents, options.topology),
                hears=options.hears,
                history=options.history,
                dataset=options.dataset,
                role=options.roles[agent] if agent in options.roles else "",
            )
            for agent in self.agents
        }

    def alone(self) -> "Debate":
        """The same questions for the first agent, that checks its own answers to the last turn: alone one always agrees."""
        name = self.agents[0]
        roles = {agent: role for agent, role in self.options.roles.items() if agent == name}
        options = self.options.model_copy(update={"agents": (name,), "roles": roles, "consensus": None})
        return Debate(options, turns=self.turns, verifier=self._verifier, open_sandbox=self._open_sandbox)

    def task(self, row: Mapping[str, Any]) -> Task | list[Task]:
        """A row's question; none where it has no gold answer: a label of -1, or a program (tinygsm) that gives no number.

        Raises: ConfigError for a row without the fields of the dataset.
        """
        dataset = self.options.dataset
        if dataset != "tinygsm":
            found = read_row(dataset, row)
        elif "code" not in row and "answer" in row:
            found = read_row("gsm8k", row)  # trained on the one, evaluated on the other
        elif self._open_sandbox is None:
            raise ConfigError("dataset tinygsm has its answers computed, and there is no sandbox: pass open_sandbox")
        else:
            found = run_row(row, self._open_sandbox())
        return [] if found is None else found

    async def start(self, task: Task, seed: int) -> Debated:
        return Debated(Question.load(task.fields))

    def observe(self, state: Debated) -> Mapping[str, Prompt]:
        return {agent: self._hearings[agent].chat(state.question.text, state.turns) for agent in self.agents}

    async def step(self, state: Debated, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: RewardFault where an answer could not be judged, or the verifier gave no score."""
        texts = {agent: replies[agent].text for agent in self.agents}
        readings = {agent: await self._judge.judge(text, state.question.gold) for agent, text in texts.items()}
        scores = {"exact": {agent: float(reading.right) for agent, reading in readings.items()}}
        if self._asks:
            scores["verifier"] = await self._verified(state.question, texts)
        rewards = scores[self.options.score]
        shown = scores[self.options.show_scores] if self.options.show_scores != "none" else {}
        answers = {agent: reading.answer for agent, reading in readings.items()}
        following = replace(state, turns=(*state.turns, Turn(texts, answers, shown)))
        done = len(following.turns) >= self.turns or self._agreed(answers, rewards)
        return Transition(following, rewards, done, self._terms(readings))

    async def close(self, state: Debated) -> None:
        """Nothing is held."""

    def solve(self, state: Debated, seed: int) -> dict[str, str]:
        """What the data itself says."""
        question = state.question
        answer = f"\\boxed{{{question.gold}}}"
        return dict.fromkeys(self.agents, f"{question.worked}\n\n{answer}" if question.worked else answer)

    def question(self, task: Task) -> Chat:
        """What everybody is first asked, whoever they are."""
        return (Message("user", first_prompt(Question.load(task.fields).text, self.options.dataset)),)

    async def mark(self, task: Task, text: str) -> Mark:
        """Raises: RewardFault where the text could not be judged."""
        reading = await self._judge.judge(text, Question.load(task.fields).gold)
        return Mark(reading.answer, reading.right)

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """What most agents answer; None for a tie, and where nobody answers."""
        return majority(self._judge.read(texts[agent]) for agent in self.agents)

    # ------------------------------------------------------------------------------------------------ parts of a turn

    async def _verified(self, question: Question, texts: Mapping[str, str]) -> dict[str, float]:
        assert self._verifier is not None
        asked = Message("user", first_prompt(question.text, self.options.dataset))
        chats = [(asked, Message("assistant", texts[agent])) for agent in self.agents]
        return dict(zip(self.agents, await self._verifier.score(chats), strict=True))

    def _agreed(self, answers: Mapping[str, str | None], rewards: Mapping[str, float]) -> bool:
        wanted = self.options.consensus
        if wanted is None:
            return False
        mean = sum(rewards.values()) / len(rewards)
        return agreement(answers.values()) >= wanted.share and mean >= wanted.score

    def _terms(self, readings: Mapping[str, Reading]) -> dict[str, float]:
        answers = {agent: reading.answer for agent, reading in readings.items()}
        winner, count = majority(answers.values()), len(readings)
        won = [reading.right for reading in readings.values() if winner is not None and reading.answer == winner]
        terms = {f"{RIGHT}{agent}": float(reading.right) for agent, reading in readings.items()}
        terms |= {
            "majority": float(bool(won) and won[0]),
            "success": sum(reading.right for reading in readings.values()) / count,
            "answered": sum(answer is not None for answer in answers.values()) / count,
            "agreement": agreement(answers.values()),
        }
        if self.options.dataset == "maths":
            terms["timed_out"] = sum(reading.timed_out for reading in readings.values()) / count
        penalty = self.options.format_penalty
        if penalty:
            terms |= {f"{PERSONAL}{agent}": 0.0 if read.in_form else -penalty for agent, read in readings.items()}
        return terms


def _judge_of(options: Debate.Options) -> Judge:
    match options.dataset:
        case "anli":
            return Labels()
        case "maths":
            return Terms(Maths(options.maths_seconds))
        case "gsm8k" | "tinygsm":
            return Numbers()
