"""A reviewer says where a program's bug is; a fixer reads the review and repairs the program.

They take turns. Only the end of an episode is rewarded. bugs.py reads data with bugs and creates
bugs for other data. rewards/repair.py scores an attempt. turns.py builds the feedback after a
failed attempt.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field, PositiveInt

from codejudge import Limits, Sandbox, Suite, Verdict
from codejudge.source import Source, normalised
from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.history import Exchange
from motet.errors import ConfigError
from motet_tasks.coding.bug_prompts import (
    failures_of,
    fix_prompt,
    repaired,
    review_prompt,
    reviewed,
)
from motet_tasks.coding.bugs import Bug, asked_bug, made_bugs, proven, read_bug
from motet_tasks.coding.turns import Examples, TurnOptions, Turns
from motet_tasks.feedback_modes import Attempt, ExpertModel, Person
from motet_tasks.rewards.code import Program
from motet_tasks.rewards.extract import extract
from motet_tasks.rewards.repair import (
    RepairScore,
    RepairWeights,
    located,
    named_lines,
    score_repair,
    weighed,
)
from motet_tasks.scaling import Scaling

REVIEWER, FIXER = "reviewer", "fixer"
TRIES = 8
"""Number of mutants to try for each one that is wanted."""


@dataclass(frozen=True)
class Repair:
    """The state: the bug, the past Rounds, and what is new to the one agent that acts now."""

    bug: Bug
    asked: Mapping[str, str]
    turns: tuple[Exchange, ...] = ()
    review: str = ""
    """The last review."""
    fixer_feedback: str | None = None
    """The feedback to the fixer on its last repair, kept until the next review; None before the
    first repair."""


class BugFix(Environment[Repair]):
    """One attempt takes two Rounds: a review, then a repair.

    An episode ends when all tests pass, or after the last attempt.
    """

    branches = True
    rewards_at_end = True

    class Options(TurnOptions):
        """Options of the bug fix environment."""

        reviewer: bool = True
        """Whether there is a reviewer. If not, `fixer` works alone and reads the task."""
        fixer_sees_task: bool = True
        """Whether the fixer reads the task. If not, it reads only the program and the review."""
        show_failures: bool = True
        """Whether the first prompt lists the failing ones among the tests that may be shown. The
        prompt is that of the reviewer, or of a single agent."""
        mutate: bool = False
        """Create bugs by mutating the rows' solutions. If false, each row must have a bug
        (buggy_solution)."""
        mutants_per_row: PositiveInt = 1
        """Maximum number of bugs per row."""
        mutation_seed: int = Field(0, ge=0)
        """Seed of the mutations."""
        weights: RepairWeights = RepairWeights()
        """Weights of the terms of the last attempt. With the defaults, the sum is at most 3."""
        reward: Scaling = Scaling()
        """Maps the weighted sum to the reward."""

    def __init__(
        self,
        options: Options,
        *,
        sandbox: Sandbox,
        turns: int = 2,
        expert: ExpertModel | None = None,
        person: Person | None = None,
    ) -> None:
        """`turns` is the number of Rounds: two per attempt, or one if the fixer is alone."""
        self.options = options
        self.sandbox = sandbox
        self.agents: Sequence[str] = (REVIEWER, FIXER) if options.reviewer else (FIXER,)
        if turns % len(self.agents):
            raise ConfigError(
                f"rollout.samples has {turns} turns; expected an even number, a review and a "
                "repair per attempt: set it to [8, 1] for one attempt, [8, 1, 1, 1] for two"
            )
        self.attempts = turns // len(self.agents)
        self._services: dict[str, Any] = {
            "sandbox": sandbox,
            "turns": self.attempts,
            "expert": expert,
            "person": person,
        }
        self.turns = Turns(options, self.agents, **self._services)

    def alone(self) -> "BugFix":
        """Return the same bugs for one agent, which has to find them itself."""
        return BugFix(self.options.model_copy(update={"reviewer": False}), **self._services)

    def task(self, row: Mapping[str, Any]) -> list[Task]:
        """Return the bugs of a row.

        The list is empty if no grading test shows a bug, or if the solution fails the tests too.

        Raises: ConfigError if the row has no solution, or no bug although `mutate` is false.
        """
        chosen = self.options
        wanted = chosen.mutants_per_row if chosen.mutate else 1
        bugs = (
            made_bugs(row, chosen.mutation_seed, TRIES * wanted)
            if chosen.mutate
            else [read_bug(row)]
        )
        grading = self.turns.grading(bugs[0].problem.suite).chosen if bugs else ()
        return [Task(bug.id, bug.fields) for bug in proven(bugs, wanted, grading, self._verdicts)]

    def chat_task(self, text: str) -> Task:
        """Read a Python function with a bug, and a docstring that says what it should do.

        Raises: ConfigError also if there are later attempts, whose feedback needs the solution.
        """
        if self.attempts > 1:
            raise ConfigError(
                f"this team has {self.attempts} attempts, and the feedback between them needs a "
                "solution, which nobody knows here: set rollout.samples=[1,1]"
            )
        bug = asked_bug(text)
        return Task(bug.id, bug.fields)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the repaired program."""
        return _written(Bug.load(task.id, task.fields), texts[FIXER]).text

    async def start(self, task: Task, seed: int) -> Repair:
        bug = Bug.load(task.id, task.fields)
        failures = await self._failures(bug) if self.options.show_failures else ""
        if self.options.reviewer:
            return Repair(bug, {REVIEWER: review_prompt(bug, failures)})
        return Repair(bug, {FIXER: fix_prompt(bug, with_task=True, failures=failures)})

    def observe(self, state: Repair) -> Mapping[str, Prompt]:
        return self.turns.observe(state.asked, state.turns)

    async def step(self, state: Repair, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: SandboxFault if tests could not be run, EnvironmentFault if feedback failed."""
        (agent,) = state.asked
        text = replies[agent].text
        following = replace(
            state, turns=(*state.turns, Exchange(self._remembered(state), {agent: text}))
        )
        if agent == REVIEWER:
            reviewed = replace(following, review=text, asked={FIXER: self._fix(state, text)})
            return Transition(reviewed, dict.fromkeys(self.agents, 0.0), done=False)
        return await self._judge(following, text)

    def solve(self, state: Repair, seed: int) -> dict[str, str]:
        """Return a review that names a faulty line, and the known solution."""
        line = min(state.bug.lines)
        text = state.bug.program.splitlines()[line - 1].strip()
        return {REVIEWER: f"Line {line} is wrong: `{text}`", FIXER: state.bug.solution}

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the normalised repair (without layout and comments) for a vote; None if there is
        none."""
        program = _written(Bug.load(task.id, task.fields), texts[FIXER])
        return normalised(program.text) if program.main_function is not None else None

    # ------------------------------------------------------------ parts of an attempt

    def _fix(self, state: Repair, review: str) -> str:
        """Return what is new to the fixer after a review."""
        has_review = self.options.history == "joint"  # then the chat contains the review already
        if state.fixer_feedback is None:
            with_task = self.options.fixer_sees_task
            return fix_prompt(state.bug, with_task=with_task, review=None if has_review else review)
        return (
            state.fixer_feedback if has_review else f"{reviewed(review)}\n\n{state.fixer_feedback}"
        )

    def _remembered(self, state: Repair) -> Mapping[str, str]:
        """Return the question as later prompts repeat it.

        If they repeat only the task (history `none`), the question must not contain the review.
        """
        if self.options.history != "none" or FIXER not in state.asked or not self.options.reviewer:
            return state.asked
        return {FIXER: fix_prompt(state.bug, with_task=self.options.fixer_sees_task)}

    async def _judge(self, state: Repair, text: str) -> Transition:
        bug, program = state.bug, _written(state.bug, text)
        suite = bug.problem.suite
        score = await score_repair(program, bug.program, self.turns.grading(suite), self.sandbox)
        terms = dict(score.terms)
        if self.options.reviewer:
            terms = {"located": located(state.review, bug.program, bug.lines), **terms}
        levels = weighed(terms, self.options.weights)
        terms["levels"] = levels
        attempts = sum(FIXER in turn.replies for turn in state.turns)
        if score.success or attempts == self.attempts:
            rewards = dict.fromkeys(self.agents, self.options.reward.reward(levels))
            return Transition(state, rewards, True, terms, success=score.success)
        sources = program.sources if score.terms["parses"] == 1.0 else []
        feedback = await self.turns.feedback(
            self._attempt(state, text, program, score, terms), sources, suite, _examples(bug)
        )
        return Transition(
            self._again(state, program, feedback),
            dict.fromkeys(self.agents, 0.0),
            False,
            terms,
            success=score.success,
        )

    def _again(self, state: Repair, program: Program, feedback: Mapping[str, str]) -> Repair:
        """Return the state at the start of the next attempt."""
        if not self.options.reviewer:
            return replace(state, asked={FIXER: feedback[FIXER]})
        has_review = self.options.history == "joint"
        asked = (
            feedback[REVIEWER]
            if has_review
            else f"{repaired(program.main.text)}\n\n{feedback[REVIEWER]}"
        )
        return replace(state, asked={REVIEWER: asked}, fixer_feedback=feedback[FIXER])

    def _attempt(
        self,
        state: Repair,
        text: str,
        program: Program,
        score: RepairScore,
        terms: Mapping[str, float],
    ) -> Attempt:
        """Build the input of the feedback, without the tests that may be shown."""
        bug = state.bug
        named = bool(named_lines(state.review, bug.program))
        every = {
            REVIEWER: (
                "the review",
                state.review,
                "",
                ((named, f"it names {'a' if named else 'no'} line"),),
            ),
            FIXER: (
                f"the function `{bug.problem.entry_point}`",
                text,
                program.main.text,
                score.notes,
            ),
        }
        parts = {agent: every[agent] for agent in self.agents}
        return Attempt(
            problem=bug.problem.text,
            writes={agent: part[0] for agent, part in parts.items()},
            replies={agent: part[1] for agent, part in parts.items()},
            codes={agent: part[2] for agent, part in parts.items()},
            notes={agent: part[3] for agent, part in parts.items()},
            share=terms["tests_passed"],
            terms=terms,
        )

    # ------------------------------------------------------------ tests

    async def _failures(self, bug: Bug) -> str:
        """Return the tests that may be shown and that the faulty program fails, as text."""
        tests = await self.turns.shown(bug.problem.suite, _examples(bug))
        if tests is None:
            return ""
        return failures_of(
            tests, await self.sandbox.judge(bug.with_code(Source(bug.program)).sources, tests)
        )

    def _verdicts(
        self, programs: Sequence[Program], suite: Suite, limits: Limits | None
    ) -> list[Verdict]:
        """Test several programs in parallel. Works with and without a running event loop."""
        with ThreadPoolExecutor(len(programs)) as pool:
            return list(
                pool.map(
                    lambda program: self.sandbox.judge_sync(program.sources, suite, limits),
                    programs,
                )
            )


def _examples(bug: Bug) -> Examples | None:
    return (
        Examples(Suite.asserts(bug.problem.examples, entry_point=bug.problem.entry_point))
        if bug.problem.examples
        else None
    )


def _written(bug: Bug, text: str) -> Program:
    """Return the program with the fixer's code."""
    problem = bug.problem
    return bug.with_code(extract(text, problem.entry_point, problem.signature))
