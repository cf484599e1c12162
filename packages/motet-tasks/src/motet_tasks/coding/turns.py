"""What the coding environments share: the prompts of later turns, the tests that grade and those
that may be shown, the reward of a turn, and the feedback."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from codejudge import Sandbox
from codejudge.suite import Suite
from motet.core import Chat, Transition
from motet.environments.history import Exchange, History, compose
from motet.settings import Settings
from motet_tasks.feedback import Feedback, FeedbackOptions
from motet_tasks.feedback_modes import Attempt, ExpertModel, Person
from motet_tasks.scaling import Scaling


class TurnOptions(Settings):
    """The options that the coding environments share."""

    history: History = "own"
    """The past turns in an agent's prompt. own: its own. joint: those of all agents. none: only its
    last answer and what is new."""
    feedback: FeedbackOptions = FeedbackOptions()
    """The feedback between turns, and which tests agents may see."""
    reward: Scaling
    """Maps levels to rewards."""


class TurnScore(Protocol):
    """The score of one turn."""

    @property
    def levels(self) -> float: ...
    @property
    def success(self) -> bool: ...
    @property
    def terms(self) -> Mapping[str, float]: ...


@dataclass(frozen=True)
class Examples:
    """The examples in a task's own text, as tests. Agents have read them already. Some may be
    wrong."""

    suite: Suite
    solution: Sequence[str] | None = None
    """Sources of a known solution, to check the examples with."""
    doubtful: bool = False
    """True: keep only the examples that the solution passes. False: drop only those that it
    fails."""

    async def right(self, sandbox: Sandbox) -> Suite | None:
        """Return the examples assumed to be right; None if there are none. Raises: SandboxFault."""
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
    """The turns of one environment."""

    def __init__(
        self,
        options: TurnOptions,
        agents: Sequence[str],
        *,
        sandbox: Sandbox,
        turns: int,
        expert: ExpertModel | None,
        person: Person | None,
    ) -> None:
        """`turns` is the number of turns. There is no feedback after the last one.

        Raises: ConfigError if the feedback mode, `expert` and `person` do not fit; see `Feedback`.
        """
        self.options = options
        self.agents = agents
        self.sandbox = sandbox
        self.count = turns
        self._feedback = Feedback(options.feedback, expert=expert, person=person)

    def observe(self, asked: Mapping[str, str], turns: Sequence[Exchange]) -> dict[str, Chat]:
        """Return the chat of every agent in `asked`, after `turns`."""
        history, feedback = self.options.history, self.options.feedback
        restated = {
            "restate_problem": feedback.restate_problem,
            "restate_answer": feedback.restate_answer,
        }
        return {
            agent: compose(history, agent, turns, new, **restated) for agent, new in asked.items()
        }

    def grading(self, suite: Suite) -> Suite:
        """Return the suite with only the tests that grade."""
        return suite.choose(self.options.feedback.divide(len(suite.cases))[1])

    async def shown(self, suite: Suite, examples: Examples | None) -> Suite | None:
        """Return the tests that may be shown. If there are none, return the examples that are
        assumed to be right.

        Raises: SandboxFault.
        """
        indices = self.options.feedback.divide(len(suite.cases))[0]
        if indices:
            return suite.choose(indices)
        return None if examples is None else await examples.right(self.sandbox)

    def pay(self, state: Any, turn: int, score: TurnScore, *, stop: bool) -> Transition:
        """Return the transition of a turn; the first turn is 1. All agents get the same reward.

        The episode ends after turn `count`, or with `stop` if all tests pass.
        """
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(score.levels))
        over = (stop and score.success) or turn >= self.count
        metrics = {**score.terms, "levels": score.levels}
        return Transition(state, rewards, over, metrics, success=score.success)

    async def feedback(
        self, attempt: Attempt, sources: Sequence[str], suite: Suite, examples: Examples | None
    ) -> dict[str, str]:
        """Return the feedback for each agent. `attempt` comes without the tests that may be shown.

        These tests are run on `sources`, if there are any, and only if the feedback mode uses them.

        Raises: SandboxFault if tests could not be run, EnvironmentFault if feedback failed.
        """
        shown = await self.shown(suite, examples) if self._feedback.reads_tests else None
        verdict = (
            await self.sandbox.judge(sources, shown) if shown is not None and sources else None
        )
        return await self._feedback.give(replace(attempt, shown=shown, verdict=verdict))
