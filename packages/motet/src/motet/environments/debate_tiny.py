"""The embedded debate: each agent knows one operation, guesses the others, and answers twice.

A problem is two two-digit numbers and an operation that works digit by digit. `12+39` is 41 and
`12-39` is 83, because there is no carry and no borrow. `12>39` is 39, the greater digit of each
pair. In the second turn each agent has read the other answers and answers again. A guess looks like
any other answer. Demonstrations repeat the agent's own answer or another one at random. So training
can learn which agent to believe for which operation.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from motet.clients.reward_server import AnswerVerifier
from motet.core import Demonstration, Environment, Grade, Message, Reply, Task, Transition
from motet.core.seeding import derive
from motet.environments.chat_texts import one_or_each
from motet.environments.debating import check_verifier, majority
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings

OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda one, other: (one + other) % 10,
    "-": lambda one, other: (one - other) % 10,
    ">": max,
}
SKILLS = dict(zip("abc", OPERATIONS, strict=True))
"""Agent -> the operation it knows."""
HELD_OUT = 150
"""Number of held-out problems per operation."""
FIRST_TURN_SHARE = 0.6
"""Share of demonstrations that show a first answer: computing is harder to learn than repeating."""


@dataclass(frozen=True)
class DebateProblem:
    """Two two-digit numbers and an operation."""

    left: str
    operation: str
    right: str

    def __str__(self) -> str:
        return f"{self.left}{self.operation}{self.right}"

    @property
    def answer(self) -> str:
        apply = OPERATIONS[self.operation]
        return "".join(
            str(apply(int(one), int(other)))
            for one, other in zip(self.left, self.right, strict=True)
        )


@dataclass(frozen=True)
class TinyDebateState:
    """The state: the problem and, after turn one, the answers that each agent reads: its own
    first, then the others'."""

    problem: DebateProblem
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read(text: str) -> str | None:
    """Return `text` if it is an answer (exactly two ASCII digits); None otherwise."""
    return text if len(text) == 2 and text.isascii() and text.isdecimal() else None


class TinyDebate(Environment[TinyDebateState]):
    """Two turns. The reward of each agent is 1 if its answer is right."""

    branches = True
    most_turns = 2
    says_right = True

    class Options(Settings):
        """Options of the embedded debate."""

        agents: int = Field(2, ge=2, le=3)
        """Number of agents, and of operations in the problems."""
        slip: float = Field(1.0, ge=0.0, le=1.0)
        """Probability that a demonstration guesses if the agent does not know the operation."""
        keep: float | None = Field(None, ge=0.0, le=1.0)
        """Probability that a demonstration repeats the agent's own answer instead of another
        agent's. Default: 1 / number of agents."""
        pay: Literal["every_turn", "last_turn"] = "every_turn"
        """Which answers are rewarded. `algorithm.returns` other than `tree` use the reward of every
        turn."""
        score: Literal["exact", "verifier"] = "exact"
        """The reward of an answer. exact: 1 if it is right, else 0.
        verifier: the verifier's score."""
        peers: Literal["real", "strangers"] = "real"
        """strangers: an agent reads answers that its peers would give to a different problem,
        according to their skills. This is the control condition: such answers contain no
        information, so no agent can learn whom to believe."""

    def __init__(self, options: Options, *, verifier: AnswerVerifier | None = None) -> None:
        """Raises: ConfigError if `score` needs a verifier and there is none, or if there is a
        verifier that is not used."""
        if isinstance(verifier, Mapping):
            raise ConfigError("debate_tiny asks one verifier for all agents: drop verifier.agents")
        check_verifier(f"score is {options.score}", verifier, asks=options.score == "verifier")
        self.options, self._verifier = options, verifier
        self.agents: Sequence[str] = tuple(SKILLS)[: options.agents]
        self.operations = tuple(SKILLS[agent] for agent in self.agents)
        if options.pay == "last_turn":
            self.rewards_at_end = True

    def tasks(self, split: str) -> list[Task]:
        """Return the problems of `train` or `eval`, always the same, with all operations mixed."""
        draw = random.Random(0)
        parts: dict[str, list[DebateProblem]] = {"train": [], "eval": []}
        numbers = [f"{number:02}" for number in range(100)]
        for operation in self.operations:
            problems = [
                DebateProblem(left, operation, right) for left in numbers for right in numbers
            ]
            draw.shuffle(problems)
            parts["eval"] += problems[:HELD_OUT]
            parts["train"] += problems[HELD_OUT:]
        chosen = part_of("debate_tiny", parts, split)
        draw.shuffle(chosen)
        return [Task(str(problem), dict(vars(problem))) for problem in chosen]

    async def start(self, task: Task, seed: int) -> TinyDebateState:
        return TinyDebateState(DebateProblem(**task.fields))

    def observe(self, state: TinyDebateState) -> Mapping[str, str]:
        return {agent: self._prompt(state, agent) for agent in self.agents}

    async def step(
        self, state: TinyDebateState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        texts = {agent: replies[agent].text for agent in self.agents}
        right = {agent: float(texts[agent] == state.problem.answer) for agent in self.agents}
        paid = bool(state.answers) or self.options.pay == "every_turn"
        rewards = (
            await self._scores(state.problem, texts, right)
            if paid
            else dict.fromkeys(self.agents, 0.0)
        )
        last = bool(state.answers)
        return Transition(
            state if last else self._hear(state.problem, texts, seed),
            rewards,
            done=last,
            success=sum(right.values()) / len(right),
            right=right,
            majority_right=majority(map(read, texts.values())) == state.problem.answer,
            metrics=self._changes(state, texts) if last else {},
        )

    async def _scores(
        self, problem: DebateProblem, texts: Mapping[str, str], right: Mapping[str, float]
    ) -> Mapping[str, float]:
        if self._verifier is None:
            return right
        chats = [
            (Message("user", f"{problem};"), Message("assistant", texts[agent]))
            for agent in self.agents
        ]
        return dict(zip(self.agents, await self._verifier.score(chats), strict=True))

    def _prompt(self, state: TinyDebateState, agent: str) -> str:
        question = f"{state.problem};"
        return f"{question}{'/'.join(state.answers[agent])}=" if state.answers else question

    def _peers(self, agent: str) -> list[str]:
        """Return the other agents in cyclic order, starting after `agent`."""
        place = self.agents.index(agent) + 1
        return [*self.agents[place:], *self.agents[: place - 1]]

    def _hear(self, problem: DebateProblem, said: Mapping[str, str], seed: int) -> TinyDebateState:
        answers = {}
        for agent in self.agents:
            heard = said
            if self.options.peers == "strangers":
                draw = random.Random(derive(seed, "strangers", agent))
                heard = self._said(self._another(problem, draw), draw)
            answers[agent] = (said[agent], *(heard[peer] for peer in self._peers(agent)))
        return TinyDebateState(problem, answers)

    def _another(self, problem: DebateProblem, draw: random.Random) -> DebateProblem:
        left, right = (f"{draw.randrange(100):02}" for _ in range(2))
        other = DebateProblem(left, draw.choice(self.operations), right)
        return other if other != problem else self._another(problem, draw)

    def _said(self, problem: DebateProblem, draw: random.Random) -> dict[str, str]:
        """Return answers as the warm-up teaches them: right for known operations, else a guess
        with probability `slip`."""
        said = {}
        for agent in self.agents:
            knows = SKILLS[agent] == problem.operation or draw.random() >= self.options.slip
            said[agent] = problem.answer if knows else f"{draw.randrange(100):02}"
        return said

    def _changes(self, state: TinyDebateState, texts: Mapping[str, str]) -> dict[str, float]:
        """Return two shares of agents: those that kept their own answer, and those that took over
        another answer that they had read."""
        kept = [texts[agent] == state.answers[agent][0] for agent in self.agents]
        heard = [texts[agent] in state.answers[agent][1:] for agent in self.agents]
        took = [other and not own for own, other in zip(kept, heard, strict=True)]
        return {"kept": sum(kept) / len(kept), "took": sum(took) / len(took)}

    # ------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return a first answer, or a final answer that repeats one of the answers read.

        A first answer is right if the agent knows the operation. Demonstrations do not depend on
        `peers`, so that a run with strangers starts from the same team as a real debate.
        """
        draw = random.Random(seed)
        problem, agent = DebateProblem(**task.fields), draw.choice(self.agents)
        said = self._said(problem, draw)
        if draw.random() < FIRST_TURN_SHARE:
            return Demonstration(
                agent, self._prompt(TinyDebateState(problem), agent), said[agent], turn=0
            )
        keep = 1.0 / len(self.agents) if self.options.keep is None else self.options.keep
        peers = self._peers(agent)
        repeated = agent if draw.random() < keep else draw.choice(peers)
        hearing = TinyDebateState(problem, {agent: (said[agent], *(said[peer] for peer in peers))})
        return Demonstration(agent, self._prompt(hearing, agent), said[repeated], turn=1)

    def solve(self, state: TinyDebateState, seed: int) -> dict[str, str]:
        return dict.fromkeys(self.agents, state.problem.answer)

    def chat_task(self, text: str) -> Task:
        """Read a problem such as "12+39"."""
        said = "".join(text.split()).rstrip(";=?")
        left, operation, right = said[:2], said[2:3], said[3:]
        if read(left) is None or operation not in self.operations or read(right) is None:
            raise ConfigError(
                f"got {shortened(text)!r}; expected two numbers of two digits and one of "
                f"{' '.join(self.operations)} between them, such as 12{self.operations[0]}39"
            )
        problem = DebateProblem(left, operation, right)
        return Task(str(problem), dict(vars(problem)))

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the most common answer; what each agent says if there is a tie or none."""
        return self.answer(task, texts) or one_or_each(texts, self.agents)

    def question(self, task: Task) -> str:
        return f"{DebateProblem(**task.fields)};"

    async def grade(self, task: Task, text: str) -> Grade:
        return Grade(read(text), text == DebateProblem(**task.fields).answer)

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the most common answer; None for a tie or if no agent answers."""
        return majority(read(texts[agent]) for agent in self.agents)
