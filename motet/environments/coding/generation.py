"""Agents write one program together: a helper writes `aux`, main writes the function that a problem asks for and may call it.

Nobody sees what the others write. rewards/code.py says what a program is worth, problems.py which data sets are problems, and
turns.py what agents hear between turns. With several helpers there are `aux1`, `aux2`, ...; with none, main works alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from motet.core import Prompt, Reply, Task, Transition
from motet.environments.coding.generation_prompts import Style, Wording, first_prompt, head_of, next_prompt
from motet.environments.coding.problems import Problem, read_problem
from motet.environments.coding.sharing import share_out
from motet.environments.coding.turns import Examples, TurnOptions, Turns
from motet.environments.feedback import Attempt, Expert, Person
from motet.environments.history import Exchange, flatten
from motet.environments.scaling import Scaling
from motet.errors import ConfigError
from motet.rewards.code import CodeScore, Program, score_program
from motet.rewards.extract import extract
from motet.rewards.python import normalised
from motet.sandbox import Sandbox
from motet.sandbox.suite import Suite

MAIN = "main"


@dataclass(frozen=True)
class Writing:
    """The state: the problem, the turns so far, and what is new to every agent now."""

    problem: Problem
    asked: Mapping[str, str]
    turns: tuple[Exchange, ...] = ()


class CodeGeneration:
    """Every turn is a whole program, rewarded alike for all. It ends when all tests pass, or with the last of `turns`."""

    branches = True

    class Options(TurnOptions):
        """Options of the code generation environment."""

        helpers: int = Field(1, ge=0, le=8)
        """Agents that write helper functions: `helper`, or `helper1`, `helper2`, ...; with 0 there is `main` alone."""
        prompts: Style = "chat"
        """chat: instructions, for models that follow them. raw: the beginning of a program, which a base model goes on from."""
        wording: Wording = Wording()
        """First prompts in words of one's own."""
        reward: Scaling = Scaling()
        """How levels, 0 to 4 for a team and 0 to 2.1 for an agent alone, become rewards."""
        stop_when_solved: bool = True
        """Whether a program that passes all tests ends the episode."""

    def __init__(
        self,
        options: Options,
        *,
        sandbox: Sandbox,
        turns: int = 1,
        expert: Expert | None = None,
        person: Person | None = None,
    ) -> None:
        """`turns` is how many a problem has: after the last of them nobody is told anything."""
        self.options = options
        self.sandbox = sandbox
        count = options.helpers
        self.helpers: Mapping[str, str] = (
            {"helper": "aux"} if count == 1 else {f"helper{n}": f"aux{n}" for n in range(1, count + 1)}
        )
        """Agent -> the function it writes; main's is the problem's own."""
        self.agents: Sequence[str] = (*self.helpers, MAIN)
        self._services: dict[str, Any] = {"sandbox": sandbox, "turns": turns, "expert": expert, "person": person}
        self.turns = Turns(options, self.agents, **self._services)

    def alone(self) -> "CodeGeneration":
        """The same problems for one agent."""
        return CodeGeneration(self.options.model_copy(update={"helpers": 0}), **self._services)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Raises: ConfigError for a row that is no programming problem, whose function has a helper's name, or that imports what
        no program may."""
        problem = read_problem(row)
        if problem.entry_point in self.helpers.values():
            raise ConfigError(
                f"problem {problem.id} asks for a function {problem.entry_point!r}, which is what a helper writes: "
                f"leave it out, or set another number of helpers"
            )
        missing = sorted(problem.packages - {name.partition(".")[0] for name in self.sandbox.packages})
        if missing:
            allowed = ", ".join([*self.sandbox.packages, *missing])
            raise ConfigError(
                f"problem {problem.id} imports {', '.join(missing)}, which programs may not, so nobody could solve it: set "
                f"sandbox.packages: [{allowed}], or leave the row out"
            )
        return Task(problem.id, problem.fields)

    async def start(self, task: Task, seed: int) -> Writing:
        problem, chosen = Problem.load(task.fields), self.options
        asked = {
            agent: first_prompt(problem, function, [*self.helpers.values()], chosen.wording, chosen.prompts)
            for agent, function in self._functions(problem).items()
        }
        return Writing(problem, asked)

    def observe(self, state: Writing) -> Mapping[str, Prompt]:
        chats = self.turns.observe(state.asked, state.turns)
        return chats if self.options.prompts == "chat" else {agent: flatten(chat) for agent, chat in chats.items()}

    async def step(self, state: Writing, replies: Mapping[str, Reply], seed: int) -> Transition:
        """Raises: SandboxFault where tests could not be run, EnvironmentFault where feedback could not be had."""
        problem, chosen = state.problem, self.options
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in self.agents})
        following = replace(state, turns=(*state.turns, exchange))
        program = self._program(problem, exchange.replies)
        score = await score_program(program, self.turns.grading(problem.suite), self.sandbox)
        paid = self.turns.pay(following, len(following.turns), score, stop=chosen.stop_when_solved)
        if paid.done:
            return paid
        sources = program.sources if score.terms["parses"] == 1.0 else []
        attempt = self._attempt(problem, exchange, program, score)
        told = await self.turns.told(attempt, sources, problem.suite, _examples(problem))
        asked = {
            agent: next_prompt(told[agent], head_of(problem, function), chosen.prompts)
            for agent, function in self._functions(problem).items()
        }
        return replace(paid, state=replace(following, asked=asked))

    async def close(self, state: Writing) -> None:
        """Nothing is held."""

    def solve(self, state: Writing, seed: int) -> dict[str, str]:
        """The known solution, shared out. Raises: NoSolution, a fault of this one problem."""
        parts = share_out(state.problem, [*self.helpers.values()])
        return {agent: parts[function] for agent, function in self._functions(state.problem).items()}

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """What a vote counts: the whole program, however it is laid out and commented; None where there is none."""
        program = self._program(Problem.load(task.fields), texts)
        return normalised(program.text) if program.main_function is not None else None

    # ------------------------------------------------------------------------------------------------ parts of a turn

    def _functions(self, problem: Problem) -> dict[str, str]:
        return {**self.helpers, MAIN: problem.entry_point}

    def _program(self, problem: Problem, texts: Mapping[str, str]) -> Program:
        codes = {
            function: extract(texts[agent], function, head_of(problem, function))
            for agent, function in self._functions(problem).items()
        }
        helpers = {function: codes[function] for function in self.helpers.values()}
        return Program(problem.entry_point, codes[problem.entry_point], helpers, problem.prelude)

    def _attempt(self, problem: Problem, exchange: Exchange, program: Program, score: CodeScore) -> Attempt:
        """What feedback may be made of, less the tests that may be shown."""
        functions = self._functions(problem)
        codes = {**program.helpers, problem.entry_point: program.main}
        return Attempt(
            problem=problem.text,
            writes={agent: f"the function `{function}`" for agent, function in functions.items()},
            replies=exchange.replies,
            codes={agent: codes[function] for agent, function in functions.items()},
            notes={agent: score.notes[function] for agent, function in functions.items()},
            share=score.share,
            terms=score.terms,
        )


def _examples(problem: Problem) -> Examples | None:
    if not problem.examples:
        return None
    solution = None if problem.solution is None else [problem.prelude, problem.solution]
    return Examples(Suite.asserts(problem.examples, entry_point=problem.entry_point), solution)
