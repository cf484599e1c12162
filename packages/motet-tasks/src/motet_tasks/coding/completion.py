"""Agents complete one class together: each writes some methods, which are merged into the skeleton.

No agent sees what the others write. rewards/classes.py merges the replies to one class and scores
it, classes.py reads rows, assignment.py assigns methods to agents, and turns.py builds the prompts
of later turns. If a class has fewer methods than there are agents, the last agents do not act.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from codejudge import Sandbox
from codejudge.source import normalised
from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.history import Exchange
from motet_tasks.coding.assignment import by_parameters, fair
from motet_tasks.coding.classes import ClassProblem, read_class
from motet_tasks.coding.turns import Examples, TurnOptions, Turns
from motet_tasks.feedback_modes import Attempt, ExpertModel, Person
from motet_tasks.rewards.classes import Shares, merge, notes_on, score_class
from motet_tasks.scaling import Scaling

_TOGETHER = """\
Several programmers complete the Python class below, each some of its methods. \
Nobody sees what the others write.

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

Answer with one block of Python code that holds {what} only, with signatures and decorators as \
they stand above. If imports or helper functions are needed besides, put them in front. Do not \
repeat the class, its constructor or its docstrings. No tests, no examples, no explanations."""


@dataclass(frozen=True)
class Completing:
    """The state: the class, each agent's methods, the past turns, and what is new to each agent."""

    problem: ClassProblem
    shares: Shares
    asked: Mapping[str, str]
    turns: tuple[Exchange, ...] = ()


class CodeCompletion(Environment[Completing]):
    """Every turn is a whole class. All agents get the same reward.

    An episode ends when all tests pass (see `stop_when_solved`), or after the last of `turns`.
    """

    branches = True

    class Options(TurnOptions):
        """Options of the code completion environment."""

        agents: int = Field(2, ge=1, le=8)
        """Number of agents: `coder1`, `coder2`, ..."""
        share: Literal["fair", "by_parameters"] = "fair"
        """How methods are assigned. fair: shares of similar size. by_parameters: methods with one
        parameter to coder1, all others to coder2."""
        reward: Scaling = Scaling()
        """Maps levels, -1 to 6, to rewards."""
        stop_when_solved: bool = True
        """Whether an episode ends when a class passes all tests."""

        @model_validator(mode="after")
        def _two_kinds_of_methods(self) -> Self:
            if self.share == "by_parameters" and self.agents > 2:
                raise ValueError(
                    f"share by_parameters is for at most 2 agents, got {self.agents}: set share: "
                    "fair"
                )
            return self

    def __init__(
        self,
        options: Options,
        *,
        sandbox: Sandbox,
        turns: int = 1,
        expert: ExpertModel | None = None,
        person: Person | None = None,
    ) -> None:
        """`turns` is the number of turns per class. There is no feedback after the last one."""
        self.options = options
        self.sandbox = sandbox
        self.agents: Sequence[str] = tuple(
            f"coder{number}" for number in range(1, options.agents + 1)
        )
        self._services: dict[str, Any] = {
            "sandbox": sandbox,
            "turns": turns,
            "expert": expert,
            "person": person,
        }
        self.turns = Turns(options, self.agents, **self._services)

    def alone(self) -> "CodeCompletion":
        """Return the same classes for one agent."""
        return CodeCompletion(self.options.model_copy(update={"agents": 1}), **self._services)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Read a row as a task. Raises: ConfigError if the row is not a class to complete."""
        fields = read_class(row)
        return Task(fields["id"], fields)

    async def start(self, task: Task, seed: int) -> Completing:
        problem = ClassProblem.load(task.fields)
        shares = self._shares(problem)
        return Completing(
            problem, shares, {agent: _first_prompt(problem, shares, agent) for agent in shares}
        )

    def observe(self, state: Completing) -> Mapping[str, Prompt]:
        return self.turns.observe(state.asked, state.turns)

    async def step(self, state: Completing, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: SandboxFault if tests could not be run, EnvironmentFault if feedback failed."""
        problem, shares = state.problem, state.shares
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in shares})
        following = replace(state, turns=(*state.turns, exchange))
        merged = merge(problem.skeleton, shares, exchange.replies)
        score = await score_class(merged, shares, self.turns.grading(problem.suite), self.sandbox)
        paid = self.turns.pay(
            following, len(following.turns), score, stop=self.options.stop_when_solved
        )
        if paid.done:
            return paid
        attempt = Attempt(
            problem=problem.skeleton.text,
            writes={
                agent: _listed(keys, "the method ", "the methods ")
                for agent, keys in shares.items()
            },
            replies=exchange.replies,
            codes=merged.codes,
            notes=notes_on(merged, shares),
            share=score.share,
            terms=score.terms,
        )
        asked = await self.turns.feedback(attempt, [merged.text], problem.suite, _examples(problem))
        return replace(paid, state=replace(following, asked=asked))

    def solve(self, state: Completing, seed: int) -> dict[str, str]:
        """Return the known solution, divided among the agents. Raises: ConfigError if there is
        none."""
        return {agent: state.problem.solution_of(keys) for agent, keys in state.shares.items()}

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the normalised class (without layout and comments) for a vote.

        None if the agents wrote none of its methods.
        """
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
    others = [
        f"{other} writes {_listed(keys)}." for other, keys in shares.items() if other != agent
    ]
    told = " ".join([*others, "You may call what they write: it will do what its docstring says."])
    return _TOGETHER.format(skeleton=skeleton, own=own, others=told) + _FORM.format(
        what="your methods"
    )


def _listed(keys: Sequence[str], one: str = "", several: str = "") -> str:
    return (one if len(keys) == 1 else several) + ", ".join(f"`{key}`" for key in keys)
