"""What the coding games do alike from turn to turn: what agents hear of the turns before, which tests grade and which may be
shown, what a turn pays, and what agents are told of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from motet.core import Chat, Transition
from motet.environments.feedback import Attempt, Expert, Feedback, FeedbackOptions, Person
from motet.environments.history import Exchange, History, compose
from motet.environments.scaling import Scaling
from motet.sandbox import Sandbox
from motet.sandbox.suite import Suite
from motet.settings import Settings


class TurnOptions(Settings):
    """What the options of these games have in common."""

    history: History = "own"
    """What an agent hears of the turns before: its own, everyone's (joint), or its last answer and what is new (none)."""
    feedback: FeedbackOptions = FeedbackOptions()
    """What agents are told between turns, and which tests they may see."""
    reward: Scaling
    """How levels become rewards."""


class Score(Protocol):
    """What a turn's work is worth."""

    @property
    def levels(self) -> float: ...
    @property
    def terms(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Examples:
    """The examples in a task's own text, as tests: agents have read them anyway. Not all of them need be right."""

    suite: Suite
    solution: Sequence[str] | None = None
    """A known solution, as sources, to check them by."""
    doubtful: bool = False
    """Whether only those are taken for right that the solution passes; if not, all but those that it fails."""

    async def right(self, sandbox: Sandbox) -> Suite | None:
        """Those that may be taken for right; None where there are none. Raises: SandboxFault."""
        if self.solution is None:
            return None if self.doubtful else self.suite
        cases = (await sandbox.judge(self.solution, self.suite)).cases
        kept = tuple(
            index
            for index, case in enumerate(cases)
            if case.status == "passed" or not (self.doubtful or case.status == "failed")
        )
        return self.suite.choose(kept) if kept else None


class Turns:
    """The turns of one game."""

    def __init__(
        self,
        options: TurnOptions,
        agents: Sequence[str],
        *,
        sandbox: Sandbox,
        turns: int,
        expert: Expert | None,
        person: Person | None,
    ) -> None:
        """`turns` is how many there are: after the last of them nobody is told anything.

        Raises: ConfigError for feedback by somebody who is not there.
        """
        self.options = options
        self.agents = agents
        self.sandbox = sandbox
        self.count = turns
        self._feedback = Feedback(options.feedback, expert=expert, person=person)

    def observe(self, asked: Mapping[str, str], turns: Sequence[Exchange]) -> dict[str, Chat]:
        """The chat of every agent that is `asked` something, after `turns`."""
        history, feedback = self.options.history, self.options.feedback
        restated = {"restate_problem": feedback.restate_problem, "restate_answer": feedback.restate_answer}
        return {agent: compose(history, agent, turns, new, **restated) for agent, new in asked.items()}

    def grading(self, suite: Suite) -> Suite:
        """The tests that grade."""
        return suite.choose(self.options.feedback.divide(len(suite.cases))[1])

    async def shown(self, suite: Suite, examples: Examples | None) -> Suite | None:
        """The tests that may be shown; where there are none, the examples, as far as they are right. Raises: SandboxFault."""
        indices = self.options.feedback.divide(len(suite.cases))[0]
        if indices:
            return suite.choose(indices)
        return None if examples is None else await examples.right(self.sandbox)

    def pay(self, state: Any, turn: int, score: Score, *, stop: bool) -> Transition:
        """The end of a turn, the first being turn 1: all are rewarded alike. It is the last one after `count` of them, and with
        `stop` where all tests pass."""
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(score.levels))
        solved = stop and score.terms["success"] == 1.0
        return Transition(state, rewards, solved or turn >= self.count, {**score.terms, "levels": score.levels})

    async def told(
        self, attempt: Attempt, sources: Sequence[str], suite: Suite, examples: Examples | None
    ) -> dict[str, str]:
        """What each agent is told of an attempt, which is given without the tests that may be shown. They are run on `sources`,
        if there are any, and only for feedback that says something of them.

        Raises: SandboxFault where tests could not be run, EnvironmentFault where feedback could not be had.
        """
        shown = await self.shown(suite, examples) if self._feedback.reads_tests else None
        verdict = await self.sandbox.judge(sources, shown) if shown is not None and sources else None
        return await self._feedback.give(replace(attempt, shown=shown, verdict=verdict))
