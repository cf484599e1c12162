"""Agents write one program together: a helper writes `aux`, main writes the required function.

Main may call `aux`. No agent sees what the others write. rewards/code.py scores a program,
problems.py reads data sets, and turns.py builds the prompts of later turns. Several helpers write
`aux1`, `aux2`, ...; with 0 helpers, main works alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from codejudge import Sandbox
from codejudge.source import normalised
from codejudge.suite import Suite
from motet.core import Environment, Prompt, Reply, Task, Transition
from motet.environments.history import Exchange, flatten
from motet.errors import ConfigError
from motet_tasks.coding.generation_prompts import (
    Style,
    Wording,
    first_prompt,
    head_of,
    next_prompt,
)
from motet_tasks.coding.problems import CodingProblem, problem_in, read_problem
from motet_tasks.coding.sharing import share_out
from motet_tasks.coding.shown_examples import unseen
from motet_tasks.coding.turns import Examples, TurnOptions, Turns
from motet_tasks.feedback_modes import Attempt, ExpertModel, Person
from motet_tasks.rewards.code import CodeScore, Program, score_program
from motet_tasks.rewards.extract import extract
from motet_tasks.scaling import Scaling

MAIN = "main"


@dataclass(frozen=True)
class GenerationState:
    """The state: the problem, the past turns, and what is new to each agent now."""

    problem: CodingProblem
    asked: Mapping[str, str]
    turns: tuple[Exchange, ...] = ()


class CodeGeneration(Environment[GenerationState]):
    """Every turn is a whole program. All agents get the same reward.

    An episode ends when all tests pass (see `stop_when_solved`), or after the last of `turns`.
    """

    branches = True

    class Options(TurnOptions):
        """Options of the code generation environment."""

        helpers: int = Field(1, ge=0, le=8)
        """Number of agents that write helper functions: `helper`, or `helper1`, `helper2`, ...
        With 0 there is only `main`."""
        prompts: Style = "chat"
        """chat: instructions, for instruction-tuned models. raw: the beginning of a program, for
        base models, which continue it."""
        wording: Wording = Wording()
        """Custom templates for the first prompts."""
        reward: Scaling = Scaling()
        """Maps levels to rewards. Levels are 0 to 4 for a team and 0 to 2.1 for a single agent."""
        stop_when_solved: bool = True
        """Whether an episode ends when a program passes all tests."""
        grade_examples: bool = True
        """Whether tests grade that ask only for what the examples in the prompt show. false: a
        program that looks up the examples earns nothing with them."""

    def __init__(
        self,
        options: Options,
        *,
        sandbox: Sandbox,
        turns: int = 1,
        expert: ExpertModel | None = None,
        person: Person | None = None,
    ) -> None:
        """`turns` is the number of turns per problem. There is no feedback after the last one."""
        self.options = options
        self.sandbox = sandbox
        count = options.helpers
        self.helpers: Mapping[str, str] = (
            {"helper": "aux"}
            if count == 1
            else {f"helper{n}": f"aux{n}" for n in range(1, count + 1)}
        )
        """Agent -> the helper function it writes. `main` writes the problem's own function."""
        self.agents: Sequence[str] = (*self.helpers, MAIN)
        self._services: dict[str, Any] = {
            "sandbox": sandbox,
            "turns": turns,
            "expert": expert,
            "person": person,
        }
        self.turns = Turns(options, self.agents, **self._services)

    def alone(self) -> "CodeGeneration":
        """Return the same problems for one agent."""
        return CodeGeneration(self.options.model_copy(update={"helpers": 0}), **self._services)

    def task(self, row: Mapping[str, Any]) -> Task:
        """Read a row as a task.

        Raises: ConfigError if the row is not a programming problem, if its function has a helper's
        name, or if it imports a package that the sandbox does not allow.
        """
        return self._checked(read_problem(row))

    def chat_task(self, text: str) -> Task:
        """Read a Python function with a docstring and no body. Its examples are the tests.

        Raises: ConfigError also if later turns need tests, and the docstring has no examples.
        """
        problem = problem_in(text)
        if self.turns.count > 1 and not problem.examples:
            raise ConfigError(
                f"the docstring of {problem.entry_point} has no examples, and this team works in "
                f"{self.turns.count} turns with feedback from tests: add one, such as "
                f">>> {problem.entry_point}(2) and its result on the next line"
            )
        return self._checked(problem)

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the whole program."""
        return self._program(CodingProblem.load(task.fields), texts).text

    def _checked(self, problem: CodingProblem) -> Task:
        if problem.entry_point in self.helpers.values():
            raise ConfigError(
                f"problem {problem.id} asks for a function {problem.entry_point!r}, which is also "
                "the name of a helper: remove the row, or set another number of helpers"
            )
        missing = sorted(
            problem.packages - {name.partition(".")[0] for name in self.sandbox.packages}
        )
        if missing:
            allowed = ", ".join([*self.sandbox.packages, *missing])
            raise ConfigError(
                f"problem {problem.id} imports {', '.join(missing)}, which the sandbox does not "
                f"allow: set sandbox.packages: [{allowed}], or remove the row"
            )
        return Task(problem.id, problem.fields)

    async def start(self, task: Task, seed: int) -> GenerationState:
        problem, chosen = CodingProblem.load(task.fields), self.options
        asked = {
            agent: first_prompt(
                problem, function, [*self.helpers.values()], chosen.wording, chosen.prompts
            )
            for agent, function in self._functions(problem).items()
        }
        return GenerationState(problem, asked)

    def observe(self, state: GenerationState) -> Mapping[str, Prompt]:
        chats = self.turns.observe(state.asked, state.turns)
        return (
            chats
            if self.options.prompts == "chat"
            else {agent: flatten(chat) for agent, chat in chats.items()}
        )

    async def step(
        self, state: GenerationState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        """Raises: SandboxFault if tests could not be run, EnvironmentFault if feedback failed."""
        problem, chosen = state.problem, self.options
        exchange = Exchange(state.asked, {agent: replies[agent].text for agent in self.agents})
        following = replace(state, turns=(*state.turns, exchange))
        program = self._program(problem, exchange.replies)
        score = await score_program(program, self._grading(problem), self.sandbox)
        paid = self.turns.pay(following, len(following.turns), score, stop=chosen.stop_when_solved)
        if paid.done:
            return paid
        sources = program.sources if score.terms["parses"] == 1.0 else []
        attempt = self._attempt(problem, exchange, program, score)
        feedback = await self.turns.feedback(attempt, sources, problem.suite, _examples(problem))
        asked = {
            agent: next_prompt(feedback[agent], head_of(problem, function), chosen.prompts)
            for agent, function in self._functions(problem).items()
        }
        return replace(paid, state=replace(following, asked=asked))

    def solve(self, state: GenerationState, seed: int) -> dict[str, str]:
        """Return the known solution, divided among the agents.

        Raises: NoSolution, a fault of this problem only.
        """
        parts = share_out(state.problem, [*self.helpers.values()])
        return {
            agent: parts[function] for agent, function in self._functions(state.problem).items()
        }

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the normalised program (without layout and comments) for a vote.

        None if it lacks the problem's function.
        """
        program = self._program(CodingProblem.load(task.fields), texts)
        return normalised(program.text) if program.main_function is not None else None

    # ------------------------------------------------------------ parts of a turn

    def _functions(self, problem: CodingProblem) -> dict[str, str]:
        return {**self.helpers, MAIN: problem.entry_point}

    def _program(self, problem: CodingProblem, texts: Mapping[str, str]) -> Program:
        codes = {
            function: extract(texts[agent], function, head_of(problem, function))
            for agent, function in self._functions(problem).items()
        }
        helpers = {function: codes[function] for function in self.helpers.values()}
        return Program(problem.entry_point, codes[problem.entry_point], helpers, problem.given)

    def _grading(self, problem: CodingProblem) -> Suite:
        """Return the suite with only the tests that grade."""
        suite = self.turns.grading(problem.suite)
        if self.options.grade_examples:
            return suite
        left = unseen(problem.suite, problem.examples, problem.entry_point)
        kept = tuple(index for index in suite.chosen if index in left)
        return suite.choose(kept) if kept else suite

    def _attempt(
        self, problem: CodingProblem, exchange: Exchange, program: Program, score: CodeScore
    ) -> Attempt:
        """Build the input of the feedback, without the tests that may be shown."""
        functions = self._functions(problem)
        written = {**program.helpers, problem.entry_point: program.main}
        return Attempt(
            problem=problem.text,
            writes={agent: f"the function `{function}`" for agent, function in functions.items()},
            replies=exchange.replies,
            codes={agent: written[function].text for agent, function in functions.items()},
            notes={agent: score.notes[function] for agent, function in functions.items()},
            share=score.share,
            terms=score.terms,
        )


def _examples(problem: CodingProblem) -> Examples | None:
    if not problem.examples:
        return None
    solution = None if problem.solution is None else [problem.prelude, problem.solution]
    return Examples(Suite.asserts(problem.examples, entry_point=problem.entry_point), solution)
