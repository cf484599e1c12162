"""Agents complete one class together: its methods are shared out, and what each writes is merged into the skeleton.

Nobody sees what the others write. rewards/classes.py says how texts become one class and what it is worth, class_problems.py
which rows are classes, assignment.py who writes what, and feedback.py what agents are told between turns. Where a class has fewer
methods than there are agents, the last of them stay silent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from motet.core import Prompt, Reply, Task, Transition
from motet.environments.assignment import by_parameters, fair
from motet.environments.class_problems import ClassProblem, read_class
from motet.environments.feedback import Attempt, Expert, Feedback, FeedbackOptions, Person
from motet.environments.history import Exchange, History, compose
from motet.environments.scaling import Scaling
from motet.rewards.classes import ClassScore, Merged, Shares, merge, notes_on, score_class
from motet.rewards.python import normalised
from motet.sandbox import Sandbox
from motet.sandbox.suite import Suite, Verdict
from motet.settings import Settings

_TOGETHER = """\
Several programmers complete the Python class below, each some of its methods. Nobody sees what the others write.

```python
{skeleton}
```

Write these methods: {own}.
{others}"""
_ALONE = """\
Complete the Python class below.

```python
{skeleton}
```

Write these methods: {own}."""
_FORM = """

Answer with one block of Python code that holds {what} only, with signatures and decorators as they stand above. If imports or \
helper functions are needed besides, put them in front. Do not repeat the class, its constructor or its docstrings. No tests, \
no examples, no explanations."""


@dataclass(frozen=True)
class Completing:
    """The state: the class, who writes what of it, the turns so far, and what is new to every agent now."""

    problem: ClassProblem
    shares: Shares
    asked: Mapping[str, str]
    turns: tuple[Exchange, ...] = ()


class CodeCompletion:
    """Every turn is a whole class, rewarded alike for all. It ends when all tests pass, or with the last of `turns`."""

    branches = True

    class Options(Settings):
        """Options of the code completion environment."""

        agents: int = Field(2, ge=1, le=8)
        """How many write: `coder1`, `coder2`, ..."""
        share: Literal["fair", "by_parameters"] = "fair"
        """fair: about as much to write for each. by_parameters: methods with one parameter to coder1, all others to coder2."""
        history: History = "own"
        """What an agent hears of the turns before: its own, everyone's (joint), or its last answer and what is new (none)."""
        feedback: FeedbackOptions = FeedbackOptions()
        """What agents are told between turns, and which tests they may see."""
        reward: Scaling = Scaling()
        """How levels, -1 to 6, become rewards."""
        stop_when_solved: bool = True
        """Whether a class that passes all tests ends the episode."""

        @model_validator(mode="after")
        def _two_kinds_of_methods(self) -> Self:
            if self.share == "by_parameters" and self.agents > 2:
                raise ValueError(f"share by_parameters is for 2 agents at most, got {self.agents}: set share: fair")
            return self

    def __init__(
        self,
        options: Options,
        *,
        sandbox: Sandbox,
        turns: int = 1,
        expert: Expert | None = None,
        person: Person | None = None,
    ) -> None:
        """`turns` is how many a class has: after the last of them nobody is told anything."""
        self.options = options
        self.sandbox = sandbox
        self.turns = turns
        self._asked = expert, person
        self._feedback = Feedback(options.feedback, expert=expert, person=person)
        self.agents: Sequence[str] = tuple(f"coder{number}" for number in range(1, options.agents + 1))

    def alone(self) -> "CodeCompletion":
        """The same classes for one agent."""
        options = self.options.model_copy(update={"agents": 1})
        expert, person = self._asked
        return CodeCompletion(options, sandbox=self.sandbox, turns=self.turns, expert=expert, person=person)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError for a row that is no class to complete."""
        fields = read_class(row)
        return Task(fields["id"], fields)

    async def start(self, task: Task, seed: int) -> Completing:
        problem = ClassProblem.load(task.fields)
        shares = self._shares(problem)
        return Completing(problem, shares, {agent: _first_prompt(problem, shares, agent) for agent in shares})

    def observe(self, state: Completing) -> Mapping[str, Prompt]:
        chosen = self.options
        return {
            agent: compose(
                chosen.history,
                agent,
                state.turns,
                asked,
                restate_problem=chosen.feedback.restate_problem,
                restate_answer=chosen.feedback.restate_answer,
            )
            for agent, asked in state.asked.items()
        }

    async def step(self, state: Completing, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: SandboxFault where tests could not be run, EnvironmentFault where feedback could not be had."""
        problem, shares, suite = state.problem, state.shares, state.problem.suite
        shown, grading = self.options.feedback.divide(len(suite.cases))
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in shares})
        merged = merge(problem.skeleton, shares, exchange.replies)
        score = await score_class(merged, shares, suite.choose(grading), self.sandbox)
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(score.levels))
        terms = {**score.terms, "levels": score.levels}
        solved = score.terms["success"] == 1.0 and self.options.stop_when_solved
        following = replace(state, turns=(*state.turns, exchange))
        if solved or len(following.turns) >= self.turns:
            return Transition(following, rewards, done=True, terms=terms)
        tests = suite.choose(shown) if shown else await self._right_examples(problem)
        asked = await self._feedback.give(await self._attempt(state, exchange, merged, score, tests))
        return Transition(replace(following, asked=asked), rewards, done=False, terms=terms)

    async def close(self, state: Completing) -> None:
        """Nothing is held."""

    def solve(self, state: Completing, seed: int) -> dict[str, str]:
        """The known solution, shared out. Raises: ConfigError for a class without one."""
        return {agent: state.problem.solution_of(keys) for agent, keys in state.shares.items()}

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """What a vote counts: the whole class, however it is laid out and commented; None where nobody wrote a method of it."""
        problem = ClassProblem.load(task.fields)
        merged = merge(problem.skeleton, self._shares(problem), texts)
        return normalised(merged.text) if any(merged.valid.values()) else None

    # ------------------------------------------------------------------------------------------------ parts of a turn

    def _shares(self, problem: ClassProblem) -> Shares:
        if self.options.share == "by_parameters":
            return by_parameters(problem.skeleton, self.agents)
        return fair(problem.skeleton, self.agents, problem.calls)

    async def _right_examples(self, problem: ClassProblem) -> Suite | None:
        """The examples in the docstrings, which agents have seen anyway, as far as the known solution does what they say."""
        suite = problem.examples
        if suite is None or problem.solution is None:
            return None
        verdict = await self.sandbox.judge([problem.solution], suite)
        right = tuple(index for index, case in enumerate(verdict.cases) if case.status == "passed")
        return suite.choose(right) if right else None

    async def _attempt(
        self, state: Completing, exchange: Exchange, merged: Merged, score: ClassScore, shown: Suite | None
    ) -> Attempt:
        """What feedback may be made of; the tests that may be shown are run here."""
        verdict: Verdict | None = None if shown is None else await self.sandbox.judge([merged.text], shown)
        return Attempt(
            problem=state.problem.skeleton.text,
            writes={agent: _listed(keys, "the method ", "the methods ") for agent, keys in state.shares.items()},
            replies=exchange.replies,
            codes=merged.codes,
            notes=notes_on(merged, state.shares),
            share=score.share,
            shown=shown,
            verdict=verdict,
            terms=score.terms,
        )


def _first_prompt(problem: ClassProblem, shares: Shares, agent: str) -> str:
    skeleton, own = problem.skeleton.text.strip("\n"), _listed(shares[agent])
    if len(shares) == 1:
        return _ALONE.format(skeleton=skeleton, own=own) + _FORM.format(what="these methods")
    others = [f"{other} writes {_listed(keys)}." for other, keys in shares.items() if other != agent]
    told = " ".join([*others, "You may call what they write: it will do what its docstring says."])
    return _TOGETHER.format(skeleton=skeleton, own=own, others=told) + _FORM.format(what="your methods")


def _listed(keys: Sequence[str], one: str = "", several: str = "") -> str:
    return (one if len(keys) == 1 else several) + ", ".join(f"`{key}`" for key in keys)
