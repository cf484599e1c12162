"""The debate: all agents answer a question, then read other answers and answer again each turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, model_validator

from codejudge import Sandbox
from motet.clients.reward_server import AnswerVerifier
from motet.core import (
    Chat,
    Environment,
    Grade,
    Message,
    Prompt,
    Reply,
    Task,
    Transition,
)
from motet.environments.chat_texts import one_or_each
from motet.environments.debating import (
    check_verifier,
    majority,
)
from motet.errors import ConfigError
from motet.settings import Probability, Settings
from motet.user_code.plugins import nearest
from motet_tasks.debate.form import in_good_form
from motet_tasks.debate.judging import (
    ParsedAnswer,
    agreement,
    reader_of,
)
from motet_tasks.debate.prompts import (
    AgentTranscript,
    DebateHistory,
    DebateTurn,
    PeerMessages,
    Topology,
    first_prompt,
    peers_of,
)
from motet_tasks.debate.questions import Dataset, Question, asked_question, read_row, run_row
from motet_tasks.debate.verifiers import one_each, scores_of
from motet_tasks.rewards.nli import LABELS

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi")
"""Default agent names, used if only their number is given."""
ScoredBy = Literal["exact", "verifier"]


class Consensus(Settings):
    """A debate ends early if both thresholds are reached."""

    share: Probability = 1.0
    """Minimum share of agents that give the most common answer."""
    score: float = Field(0.0, ge=0.0, le=1.0)
    """Minimum mean reward of the agents."""


@dataclass(frozen=True)
class Debated:
    """The state: the question and the turns so far."""

    question: Question
    turns: tuple[DebateTurn, ...] = ()


class Debate(Environment[Debated]):
    """All agents act in every turn. Each is rewarded in every turn for its own answer.

    The reward is 1 for a right answer and 0 otherwise, or the score of a verifier.
    """

    branches = True
    says_right = True

    class Options(Settings):
        """Options of the debate."""

        dataset: Dataset = "gsm8k"
        """The kind of data: gsm8k (question, answer), tinygsm (question, code; or a row of gsm8k),
        anli (premise, hypothesis, label) or maths (problem, answer)."""
        agents: int | tuple[str, ...] = 2
        """The number of agents, at most 8 (alice, bob, carol, ...), or their names."""
        roles: dict[str, str] = Field(default_factory=dict)
        """Agent -> its own system message."""
        topology: Topology = "full"
        """Who reads whose answers. full: each agent reads all others. ring: each reads the agent
        named before it. star: the first reads all others, and they read the first. none: nobody
        reads any."""
        peer_messages: PeerMessages = "last"
        """What an agent reads of the others. last: their last answers with the reasoning. full:
        their answers of all turns. answers: only the final result of their last answers."""
        history: DebateHistory = "none"
        """How a prompt contains the past. none: the question and the agent's last answer, in one
        message. own: the agent's earlier prompts and answers, as chat messages."""
        score: ScoredBy = "exact"
        """The reward of an answer. exact: 1 if it is right, else 0.
        verifier: the verifier's score."""
        show_scores: Literal["none", "exact", "verifier"] = "none"
        """The scores that agents see with the last answers, as a number and in words. This does not
        depend on the reward. exact reveals which answers are right."""
        format_penalty: NonNegativeFloat = 0.0
        """Penalty for an answer that is not in \\boxed{}. Only its agent pays it."""
        bad_form_score: float | None = None
        """The score of an answer in bad form, in place of its own. It counts like any other score.
        Bad form: shorter than `min_length`, a repetition (`form.repeats`), or no \\boxed{}. Off
        unless set."""
        min_length: NonNegativeInt = 0
        """Minimum length of an answer in words and signs, for `bad_form_score`."""
        consensus: Consensus | None = None
        """When a debate ends before its last turn. Off unless set."""
        maths_seconds: float = Field(5.0, gt=0.0)
        """maths: time limit in seconds for reading and comparing one answer."""

        @model_validator(mode="after")
        def _names(self) -> Self:
            if isinstance(self.agents, int) and not 1 <= self.agents <= len(NAMES):
                raise ValueError(
                    f"agents is {self.agents}; expected 1 to {len(NAMES)}, or a list of names"
                )
            names = self.names
            if (
                not names
                or len(set(names)) < len(names)
                or not all(name.isidentifier() for name in names)
            ):
                raise ValueError(
                    f"agents is [{', '.join(names)}]; expected unique names of letters, digits "
                    "and _"
                )
            strangers = [name for name in self.roles if name not in names]
            if strangers:
                hint = nearest(strangers[0], names)
                raise ValueError(
                    f"roles names {strangers[0]!r}{hint}; the agents are {', '.join(names)}"
                )
            return self

        @model_validator(mode="after")
        def _one_penalty(self) -> Self:
            if self.bad_form_score is not None and self.format_penalty:
                raise ValueError(
                    f"format_penalty {self.format_penalty} and bad_form_score "
                    f"{self.bad_form_score} both punish a missing box: set one"
                )
            if self.bad_form_score is None and self.min_length:
                raise ValueError(
                    f"min_length {self.min_length} is for bad_form_score: set it, or drop "
                    "min_length"
                )
            return self

        @property
        def names(self) -> tuple[str, ...]:
            return NAMES[: self.agents] if isinstance(self.agents, int) else self.agents

    def __init__(
        self,
        options: Options,
        *,
        turns: int = 2,
        verifier: AnswerVerifier | Mapping[str, AnswerVerifier] | None = None,
        open_sandbox: Callable[[], Sandbox] | None = None,
    ) -> None:
        """`turns` is the number of turns. `verifier` scores all answers, or there is one for each
        agent. Only tinygsm opens the sandbox.

        Raises: ConfigError if an option needs a verifier and there is none, or if there is a
        verifier that is not used.
        """
        self.options = options
        self.turns = turns
        self.agents: Sequence[str] = options.names
        if options.dataset == "anli":
            self.labels = LABELS
        self._open_sandbox = open_sandbox
        self._asks = "verifier" in (options.score, options.show_scores)
        said = f"score is {options.score} and show_scores is {options.show_scores}"
        check_verifier(said, verifier, asks=self._asks)
        self._verifiers = {} if verifier is None else one_each(verifier, self.agents)
        self._judge = reader_of(options.dataset, options.maths_seconds)
        self._hearings = {
            agent: AgentTranscript(
                agent=agent,
                peers=peers_of(agent, self.agents, options.topology),
                peer_messages=options.peer_messages,
                history=options.history,
                dataset=options.dataset,
                role=options.roles[agent] if agent in options.roles else "",
            )
            for agent in self.agents
        }

    def alone(self) -> "Debate":
        """Return the same questions for the first agent alone, which checks its own answers.

        It plays all turns: without `consensus`, because one agent always agrees with itself.
        """
        name = self.agents[0]
        roles = {agent: role for agent, role in self.options.roles.items() if agent == name}
        options = self.options.model_copy(
            update={"agents": (name,), "roles": roles, "consensus": None}
        )
        return Debate(
            options,
            turns=self.turns,
            verifier=self._verifiers[name] if self._verifiers else None,
            open_sandbox=self._open_sandbox,
        )

    def task(self, row: Mapping[str, Any]) -> Task | list[Task]:
        """Return the question of a row, or an empty list if the row has no gold answer.

        That is the case for a label of -1, and for a program (tinygsm) that returns no number.

        Raises: ConfigError if the row lacks the fields of the dataset.
        """
        dataset = self.options.dataset
        if dataset != "tinygsm":
            found = read_row(dataset, row)
        elif "code" not in row and "answer" in row:
            found = read_row("gsm8k", row)  # to train on tinygsm and evaluate on gsm8k
        elif self._open_sandbox is None:
            raise ConfigError(
                "dataset tinygsm computes its answers in a sandbox, but there is none: pass "
                "open_sandbox"
            )
        else:
            found = run_row(row, self._open_sandbox())
        return [] if found is None else found

    def chat_task(self, text: str) -> Task:
        """Return a question without a gold answer.

        Raises: ConfigError if the agents see which answers are right, which nobody knows here.
        """
        if self.options.show_scores == "exact":
            raise ConfigError(
                "show_scores is exact, but nobody knows the right answer: set it to none"
            )
        return asked_question(self.options.dataset, text)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the text of the first agent that gives the most common answer.

        If there is none, or a tie, return the text of each agent.
        """
        wanted = self.answer(task, texts)
        given = (agent for agent in self.agents if self._judge.read(texts[agent]) == wanted)
        if wanted is None:
            return one_or_each(texts, self.agents)
        return texts[next(given)]

    async def start(self, task: Task, seed: int) -> Debated:
        return Debated(Question.load(task.fields))

    def observe(self, state: Debated) -> Mapping[str, Prompt]:
        return {
            agent: self._hearings[agent].chat(state.question.text, state.turns)
            for agent in self.agents
        }

    async def step(self, state: Debated, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: RewardFault if an answer could not be judged, or the verifier gave no score."""
        texts = {agent: replies[agent].text for agent in self.agents}
        readings = {
            agent: await self._judge.judge(text, state.question.gold)
            for agent, text in texts.items()
        }
        scores = {"exact": {agent: float(reading.right) for agent, reading in readings.items()}}
        if self._asks:
            scores["verifier"] = await self._verified(state.question, texts)
        rewards = scores[self.options.score]
        shown = scores[self.options.show_scores] if self.options.show_scores != "none" else {}
        answers = {agent: reading.answer for agent, reading in readings.items()}
        following = replace(state, turns=(*state.turns, DebateTurn(texts, answers, shown)))
        done = len(following.turns) >= self.turns or self._agreed(answers, rewards)
        if self.options.bad_form_score is not None:
            boxed = {agent: reading.in_form for agent, reading in readings.items()}
            least, bad = self.options.min_length, self.options.bad_form_score
            rewards = in_good_form(rewards, texts, boxed, least, bad)
        return self._judged(following, rewards, done, readings)

    def solve(self, state: Debated, seed: int) -> dict[str, str]:
        """Return the data's own solution for every agent."""
        question = state.question
        answer = f"\\boxed{{{question.gold}}}"
        return dict.fromkeys(
            self.agents, f"{question.worked}\n\n{answer}" if question.worked else answer
        )

    def question(self, task: Task) -> Chat:
        """Return the first prompt, without roles: it is the same for all agents."""
        return (
            Message("user", first_prompt(Question.load(task.fields).text, self.options.dataset)),
        )

    async def grade(self, task: Task, text: str) -> Grade:
        """Raises: RewardFault if the answer could not be judged."""
        reading = await self._judge.judge(text, Question.load(task.fields).gold)
        return Grade(reading.answer, reading.right)

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the most common answer; None for a tie or if no agent answers."""
        return majority(self._judge.read(texts[agent]) for agent in self.agents)

    # ------------------------------------------------------------ parts of a turn

    async def _verified(self, question: Question, texts: Mapping[str, str]) -> dict[str, float]:
        asked = Message("user", first_prompt(question.text, self.options.dataset))
        chats = {agent: (asked, Message("assistant", texts[agent])) for agent in self.agents}
        return await scores_of(chats, self._verifiers)

    def _agreed(self, answers: Mapping[str, str | None], rewards: Mapping[str, float]) -> bool:
        wanted = self.options.consensus
        if wanted is None:
            return False
        mean = sum(rewards.values()) / len(rewards)
        return agreement(answers.values()) >= wanted.share and mean >= wanted.score

    def _judged(
        self,
        state: Debated,
        rewards: Mapping[str, float],
        done: bool,
        readings: Mapping[str, ParsedAnswer],
    ) -> Transition:
        """Return the transition to `state`, with what the readings of the answers say."""
        answers = {agent: reading.answer for agent, reading in readings.items()}
        winner, count = majority(answers.values()), len(readings)
        won = [
            reading.right
            for reading in readings.values()
            if winner is not None and reading.answer == winner
        ]
        metrics = {
            "answered": sum(answer is not None for answer in answers.values()) / count,
            "agreement": agreement(answers.values()),
        }
        if self.options.dataset == "maths":
            metrics["timed_out"] = sum(reading.timed_out for reading in readings.values()) / count
        penalty = self.options.format_penalty
        bonus = {agent: 0.0 if read.in_form else -penalty for agent, read in readings.items()}
        return Transition(
            state,
            rewards,
            done,
            metrics,
            success=sum(reading.right for reading in readings.values()) / count,
            right={agent: reading.right for agent, reading in readings.items()},
            majority_right=bool(won) and won[0],
            bonus=bonus if penalty else {},
        )
