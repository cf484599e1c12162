"""Agents complete one class together: its methods are shared out, and what each writes is merged into the skeleton.

Nobody sees what the others write. rewards/classes.py says how texts become one class and what it is worth, classes.py which
rows are classes, assignment.py who writes what, and turns.py what agents hear between turns. Where a class has fewer methods than
there are agents, the last of them stay silent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from motet.core import Prompt, Reply, Task, Transition
from motet.environments.coding.assignment import by_parameters, fair
from motet.environments.coding.classes import ClassProblem, read_class
from motet.environments.coding.turns import Examples, TurnOptions, Turns
from motet.environments.feedback import Attempt, Expert, Person
from motet.environments.history import Exchange
from motet.environments.scaling import Scaling
from motet.rewards.classes import Shares, merge, notes_on, score_class
from motet.rewards.python import normalised
from motet.sandbox import Sandbox

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

    class Options(TurnOptions):
        """Options of the code completion environment."""

        agents: int = Field(2, ge=1, le=8)
        """How many write: `coder1`, `coder2`, ..."""
        share: Literal["fair", "by_parameters"] = "fair"
        """fair: about as much to write for each. by_parameters: methods with one parameter to coder1, all others to coder2."""
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
        self.agents: Sequence[str] = tuple(f"coder{number}" for number in range(1, options.agents + 1))
        self._services: dict[str, Any] = {"sandbox": sandbox, "turns": turns, "expert": expert, "person": person}
        self.turns = Turns(options, self.agents, **self._services)

    def alone(self) -> "CodeCompletion":
        """The same classes for one agent."""
        return CodeCompletion(self.options.model_copy(update={"agents": 1}), **self._services)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError for a row that is no class to complete."""
        fields = read_class(row)
        return Task(fields["id"], fields)

    async def start(self, task: Task, seed: int) -> Completing:
        problem = ClassProblem.load(task.fields)
        shares = self._shares(problem)
        return Completing(problem, shares, {agent: _first_prompt(problem, shares, agent) for agent in shares})

    def observe(self, state: Completing) -> Mapping[str, Prompt]:
        return self.turns.observe(state.asked, state.turns)

    async def step(self, state: Completing, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: SandboxFault where tests could not be run, EnvironmentFault where feedback could not be had."""
        problem, shares = state.problem, state.shares
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in shares})
        following = replace(state, turns=(*state.turns, exchange))
        merged = merge(problem.skeleton, shares, exchange.replies)
        score = await score_class(merged, shares, self.turns.grading(problem.suite), self.sandbox)
        paid = self.turns.pay(following, len(following.turns), score, stop=self.options.stop_when_solved)
        if paid.done:
            return paid
        attempt = Attempt(
            problem=problem.skeleton.text,
            writes={agent: _listed(keys, "the method ", "the methods ") for agent, keys in shares.items()},
            replies=exchange.replies,
            codes=merged.codes,
            notes=notes_on(merged, shares),
            share=score.share,
            terms=score.terms,
        )
        asked = await self.turns.told(attempt, [merged.text], problem.suite, _examples(problem))
        return replace(paid, state=replace(following, asked=asked))

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

    def _shares(self, problem: ClassProblem) -> Shares:
        if self.options.share == "by_parameters":
            return by_parameters(problem.skeleton, self.agents)
        return fair(problem.skeleton, self.agents, problem.calls)


def _examples(problem: ClassProblem) -> Examples | None:
    suite = problem.examples
    solution = None if problem.solution is None else [problem.solution]
    return None if suite is None else Examples(suite, solution, doubtful=True)


def _first_prompt(problem: ClassProblem, shares: Shares, agent: str) -> str:
    skeleton, own = problem.skeleton.text.strip("\n"), _listed(shares[agent])
    if len(shares) == 1:
        return _ALONE.format(skeleton=skeleton, own=own) + _FORM.format(what="these methods")
    others = [f"{other} writes {_listed(keys)}." for other, keys in shares.items() if other != agent]
    told = " ".join([*others, "You may call what they write: it will do what its docstring says."])
    return _TOGETHER.format(skeleton=skeleton, own=own, others=told) + _FORM.format(what="your methods")


def _listed(keys: Sequence[str], one: str = "", several: str = "") -> str:
    return (one if len(keys) == 1 else several) + ", ".join(f"`{key}`" for key in keys)
