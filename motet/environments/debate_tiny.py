"""The embedded debate: everyone is good at one operation and guesses at the others, then hears the others and answers again.

A problem is two numbers of two digits under an operation that takes them digit by digit: `12+39` is 41 and `12-39` is 83, as
nothing is carried or borrowed, and `12>39` is 39, the greater digit of each pair. A guess looks like any other answer, and
demonstrations repeat the own answer or another one at random. So what training can find is whom to believe about which operation.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from pydantic import Field

from motet.core import RIGHT, Demonstration, Mark, Message, Reply, Task, Transition
from motet.environments.debate.judging import majority
from motet.environments.debate.verified import Verifier, check_verifier
from motet.errors import ConfigError
from motet.seeding import derive
from motet.settings import Settings

OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda one, other: (one + other) % 10,
    "-": lambda one, other: (one - other) % 10,
    ">": max,
}
SKILLS = dict(zip("abc", OPERATIONS, strict=True))
"""Agent -> the operation it knows."""
HELD_OUT = 150
"""Problems of every operation that are never trained on."""
FIRST_TURN_SHARE = 0.6
"""How many demonstrations show a first answer: calculating is harder to learn than repeating."""


@dataclass(frozen=True)
class Problem:
    """Two numbers of two digits each and what is asked of them."""

    left: str
    operation: str
    right: str

    def __str__(self) -> str:
        return f"{self.left}{self.operation}{self.right}"

    @property
    def answer(self) -> str:
        apply = OPERATIONS[self.operation]
        return "".join(str(apply(int(one), int(other))) for one, other in zip(self.left, self.right, strict=True))


@dataclass(frozen=True)
class Hearing:
    """The state: the problem, and once there are answers, those that each agent reads: its own, then the others'."""

    problem: Problem
    answers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read(text: str) -> str | None:
    """The answer that a text is: two digits; None for anything else."""
    return text if len(text) == 2 and text.isascii() and text.isdecimal() else None


class TinyDebate:
    """Two turns. The reward of each agent: 1 where its answer is right."""

    branches = True
    most_turns = 2
    says_right = True

    class Options(Settings):
        """Options of the embedded debate."""

        agents: int = Field(2, ge=2, le=3)
        """How many debate, and from how many operations the problems come."""
        slip: float = Field(1.0, ge=0.0, le=1.0)
        """How often a demonstration guesses at an operation that the agent is not skilled in."""
        keep: float | None = Field(None, ge=0.0, le=1.0)
        """How often a demonstration repeats the agent's own answer, and not another's; one in `agents` unless set."""
        pay: Literal["every_turn", "last_turn"] = "every_turn"
        """Which answers are rewarded. Returns other than the tree's read a score at every turn."""
        score: Literal["exact", "verifier"] = "exact"
        """What an answer is rewarded with. exact: 1 if it is right, else 0. verifier: the verifier's score."""
        peers: Literal["real", "strangers"] = "real"
        """strangers: an agent hears what its peers would say of another problem, by their skills. It is the control: such answers
        are worth nothing, so nobody can learn whom to believe."""

    def __init__(self, options: Options, *, verifier: Verifier | None = None) -> None:
        """Raises: ConfigError for scores of a verifier that is not there, and for one that is there and not asked."""
        check_verifier(f"score is {options.score}", verifier, asks=options.score == "verifier")
        self.options, self._verifier = options, verifier
        self.agents: Sequence[str] = tuple(SKILLS)[: options.agents]
        self.operations = tuple(SKILLS[agent] for agent in self.agents)
        if options.pay == "last_turn":
            self.rewards_at_end = True

    def tasks(self, split: str) -> list[Task]:
        """The problems of `train` or `eval`: always the same, operations mixed."""
        draw = random.Random(0)
        parts: dict[str, list[Problem]] = {"train": [], "eval": []}
        if split not in parts:
            raise ConfigError(f"debate_tiny has no split {split!r}; expected one of {', '.join(parts)}")
        numbers = [f"{number:02}" for number in range(100)]
        for operation in self.operations:
            problems = [Problem(left, operation, right) for left in numbers for right in numbers]
            draw.shuffle(problems)
            parts["eval"] += problems[:HELD_OUT]
            parts["train"] += problems[HELD_OUT:]
        draw.shuffle(parts[split])
        return [Task(str(problem), asdict(problem)) for problem in parts[split]]

    async def start(self, task: Task, seed: int) -> Hearing:
        return Hearing(Problem(**task.fields))

    def observe(self, state: Hearing) -> Mapping[str, str]:
        return {agent: self._prompt(state, agent) for agent in self.agents}

    async def step(self, state: Hearing, replies: Mapping[str, Reply], seed: int) -> Transition:
        texts = {agent: replies[agent].text for agent in self.agents}
        right = {agent: float(texts[agent] == state.problem.answer) for agent in self.agents}
        terms = {
            **{f"{RIGHT}{agent}": right[agent] for agent in self.agents},
            "majority": float(majority(map(read, texts.values())) == state.problem.answer),
            "success": sum(right.values()) / len(right),
        }
        paid = bool(state.answers) or self.options.pay == "every_turn"
        rewards = await self._scores(state.problem, texts, right) if paid else dict.fromkeys(self.agents, 0.0)
        if state.answers:
            return Transition(state, rewards, done=True, terms=terms | self._changes(state, texts))
        return Transition(self._hear(state.problem, texts, seed), rewards, done=False, terms=terms)

    async def close(self, state: Hearing) -> None:
        """Nothing is held."""

    async def _scores(
        self, problem: Problem, texts: Mapping[str, str], right: Mapping[str, float]
    ) -> Mapping[str, float]:
        if self._verifier is None:
            return right
        chats = [(Message("user", f"{problem};"), Message("assistant", texts[agent])) for agent in self.agents]
        return dict(zip(self.agents, await self._verifier.score(chats), strict=True))

    def _prompt(self, state: Hearing, agent: str) -> str:
        question = f"{state.problem};"
        return f"{question}{'/'.join(state.answers[agent])}=" if state.answers else question

    def _peers(self, agent: str) -> list[str]:
        """The others, from the next one on."""
        place = self.agents.index(agent) + 1
        return [*self.agents[place:], *self.agents[: place - 1]]

    def _hear(self, problem: Problem, said: Mapping[str, str], seed: int) -> Hearing:
        answers = {}
        for agent in self.agents:
            heard = said
            if self.options.peers == "strangers":
                draw = random.Random(derive(seed, "strangers", agent))
                heard = self._said(self._another(problem, draw), draw)
            answers[agent] = (said[agent], *(heard[peer] for peer in self._peers(agent)))
        return Hearing(problem, answers)

    def _another(self, problem: Problem, draw: random.Random) -> Problem:
        left, right = (f"{draw.randrange(100):02}" for _ in range(2))
        other = Problem(left, draw.choice(self.operations), right)
        return other if other != problem else self._another(problem, draw)

    def _said(self, problem: Problem, draw: random.Random) -> dict[str, str]:
        """What everybody says who knows what the warm start teaches."""
        said = {}
        for agent in self.agents:
            knows = SKILLS[agent] == problem.operation or draw.random() >= self.options.slip
            said[agent] = problem.answer if knows else f"{draw.randrange(100):02}"
        return said

    def _changes(self, state: Hearing, texts: Mapping[str, str]) -> dict[str, float]:
        """The share of the agents that kept to their own answer, and that took another one which they heard."""
        kept = [texts[agent] == state.answers[agent][0] for agent in self.agents]
        heard = [texts[agent] in state.answers[agent][1:] for agent in self.agents]
        took = [other and not own for own, other in zip(kept, heard, strict=True)]
        return {"kept": sum(kept) / len(kept), "took": sum(took) / len(took)}

    # ------------------------------------------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """A first answer, right where the agent is skilled; or a final one, which repeats any of those that it reads.

        The same whoever the peers are: a run among strangers starts from the very team of a real debate.
        """
        draw = random.Random(seed)
        problem, agent = Problem(**task.fields), draw.choice(self.agents)
        said = self._said(problem, draw)
        if draw.random() < FIRST_TURN_SHARE:
            return Demonstration(agent, self._prompt(Hearing(problem), agent), said[agent], turn=0)
        keep = 1.0 / len(self.agents) if self.options.keep is None else self.options.keep
        peers = self._peers(agent)
        repeated = agent if draw.random() < keep else draw.choice(peers)
        hearing = Hearing(problem, {agent: (said[agent], *(said[peer] for peer in peers))})
        return Demonstration(agent, self._prompt(hearing, agent), said[repeated], turn=1)

    def solve(self, state: Hearing, seed: int) -> dict[str, str]:
        return dict.fromkeys(self.agents, state.problem.answer)

    def question(self, task: Task) -> str:
        return f"{Problem(**task.fields)};"

    async def mark(self, task: Task, text: str) -> Mark:
        return Mark(read(text), text == Problem(**task.fields).answer)

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """What most agents answer; None for a tie, and where nobody answers."""
        return majority(read(texts[agent]) for agent in self.agents)
