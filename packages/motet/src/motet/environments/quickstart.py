"""The default embedded environment: two agents write one program; neither sees the other's half.

A problem is `reduce(map(filter(xs)))` over small integers: "largest of xs plus 3 if above 2". `aux`
writes a helper function, `main` writes the function that must call it. There are four incompatible
ways to split the work, and demonstrations mix them at random. After the warm-up each agent can
write its half, but the pair fails three times in four. The agents only have to learn to agree.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

from pydantic import Field, PositiveInt

from codejudge import Call, Returned, Sandbox, same
from codejudge.source import binds, calls, definition, parse_bounded
from motet.core import Demonstration, Environment, Reply, Task, Transition
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings

AGENTS = ("aux", "main")
NO_AUX = "def aux(*xs):\n raise LookupError\n"
"""A helper that always raises, to test whether `main` depends on its partner."""
CONVENTIONS = ("aux(x) maps", "aux(x) tests", "aux(xs) maps", "aux(xs) filters")
"""What the helper does in each of the four ways to split the work, in the order of `halves`."""


# ------------------------------------------------------------ problems


@dataclass(frozen=True)
class ProblemPart:
    """One part of a problem: its source code and its function."""

    code: str
    of: Callable[[Any], Any]


FILTERS = {
    "even": ProblemPart("x % 2 == 0", lambda x: x % 2 == 0),
    "odd": ProblemPart("x % 2 == 1", lambda x: x % 2 == 1),
    "positive": ProblemPart("x > 0", partial(operator.lt, 0)),
    "negative": ProblemPart("x < 0", partial(operator.gt, 0)),
}
MAPS = {
    "squared": ProblemPart("x * x", lambda x: x * x),
    "negated": ProblemPart("-x", operator.neg),
    "absolute": ProblemPart("abs(x)", abs),
}
for k in range(1, 6):
    FILTERS[f"above {k}"] = ProblemPart(f"x > {k}", partial(operator.lt, k))
    FILTERS[f"below {k}"] = ProblemPart(f"x < {k}", partial(operator.gt, k))
for k in range(2, 8):
    MAPS[f"plus {k}"] = ProblemPart(f"x + {k}", partial(operator.add, k))
    MAPS[f"times {k}"] = ProblemPart(f"x * {k}", partial(operator.mul, k))
    MAPS[f"minus {k}"] = ProblemPart(f"x - {k}", partial(operator.add, -k))
REDUCERS = {
    "sum": ProblemPart("sum", sum),
    "largest": ProblemPart("max", max),
    "smallest": ProblemPart("min", min),
    "sorted": ProblemPart("sorted", sorted),
    "list": ProblemPart("list", list),
}


@dataclass(frozen=True)
class QuickstartProblem:
    """One of 5 x 21 x 14 problems. It is also the state, because there is only one turn."""

    reduce: str
    map: str
    filter: str

    @property
    def sentence(self) -> str:
        return f"{self.reduce} of xs {self.map} if {self.filter}"

    def answer(self, xs: Sequence[int]) -> Any:
        """Raises: ValueError for the largest or smallest of an empty list."""
        kept = [MAPS[self.map].of(x) for x in xs if FILTERS[self.filter].of(x)]
        return REDUCERS[self.reduce].of(kept)

    @lru_cache(maxsize=4096)  # noqa: B019 - one list for each of 1,470 problems
    def tests(self, count: int) -> tuple[tuple[list[int], Any], ...]:
        """Return `count` lists of 8 integers from -9 to 12, each with its answer.

        The same problem always gets the same lists. Lists without an answer are skipped.
        """
        draw = random.Random(repr((self.reduce, self.map, self.filter)))
        found: list[tuple[list[int], Any]] = []
        while len(found) < count:
            xs = [draw.randint(-9, 12) for _ in range(8)]
            try:
                found.append((xs, self.answer(xs)))
            except ValueError:
                continue
        return tuple(found)


PROBLEMS = tuple(QuickstartProblem(r, m, f) for r in REDUCERS for m in MAPS for f in FILTERS)


def prompt(problem: QuickstartProblem, agent: str) -> str:
    return f"# {problem.sentence}\n# write {agent}\n"


def halves(problem: QuickstartProblem, convention: int) -> dict[str, str]:
    """Return the programs of both agents if both follow the same one of `CONVENTIONS`."""
    to, mapped, kept = (
        REDUCERS[problem.reduce].code,
        MAPS[problem.map].code,
        FILTERS[problem.filter].code,
    )
    helper, use = (
        (f"aux(x):\n return {mapped}", f"aux(x) for x in xs if {kept}"),
        (f"aux(x):\n return {kept}", f"{mapped} for x in xs if aux(x)"),
        (f"aux(xs):\n return [{mapped} for x in xs if {kept}]", "aux(xs)"),
        (f"aux(xs):\n return [x for x in xs if {kept}]", f"{mapped} for x in aux(xs)"),
    )[convention]
    return {"aux": f"def {helper}\n", "main": f"def main(xs):\n return {to}({use})\n"}


@lru_cache(maxsize=4096)
def _read(program: str, name: str) -> tuple[bool, bool]:
    """Return whether a program defines the function `name`, and then whether it calls `aux`.

    A program that defines an `aux` itself does not call its partner's.
    """
    tree = parse_bounded(program)
    if tree is None or definition(tree, name) is None:
        return False, False
    return True, calls(tree, "aux") and not binds(tree, "aux")


# ------------------------------------------------------------ environment


class Quickstart(Environment[QuickstartProblem]):
    """One turn, no messages. Both agents get the same reward.

    0.1 for each half that defines its function; 0.3 times the share of tests passed, and 0.5 more
    if all pass. Tests count only if `main` calls the partner's `aux`.
    """

    agents: Sequence[str] = AGENTS
    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the quickstart environment."""

        tests: PositiveInt = 5
        """Number of lists that a program is tested on."""
        held_out: float = Field(0.2, gt=0.0, lt=1.0)
        """Share of the 1,470 problems that is held out from training."""

    def __init__(self, options: Options, *, sandbox: Sandbox) -> None:
        self.options = options
        self.sandbox = sandbox

    def tasks(self, split: str) -> list[Task]:
        """Return the problems of `train` or `eval`, always the same in the same shuffled order."""
        shuffled = list(PROBLEMS)
        random.Random(0).shuffle(shuffled)
        held_out = int(len(shuffled) * self.options.held_out)
        parts = {"train": shuffled[held_out:], "eval": shuffled[:held_out]}
        chosen = part_of("quickstart", parts, split)
        return [Task(problem.sentence, asdict(problem)) for problem in chosen]

    async def start(self, task: Task, seed: int) -> QuickstartProblem:
        return QuickstartProblem(**task.fields)

    def observe(self, state: QuickstartProblem) -> Mapping[str, str]:
        return {agent: prompt(state, agent) for agent in AGENTS}

    async def step(
        self, state: QuickstartProblem, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        terms = await self._judge(state, replies["aux"].text, replies["main"].text)
        defined = 0.1 * terms["aux_parses"] + 0.1 * terms["main_parses"]
        reward = defined + 0.3 * terms["tests_passed"] + 0.5 * terms["success"]
        rewards = dict.fromkeys(AGENTS, reward)
        return Transition(state, rewards, done=True, metrics=terms, success=terms["success"])

    async def _judge(self, problem: QuickstartProblem, aux: str, main: str) -> dict[str, float]:
        aux_parses, _ = _read(aux, "aux")
        main_parses, calls_aux = _read(main, "main")
        passed = await self._share_passed(problem, aux, main) if aux_parses and calls_aux else 0.0
        if passed == 1.0 and await self._share_passed(problem, NO_AUX, main) == 1.0:
            # `main` passes without its partner, so its call of `aux` has no effect
            calls_aux, passed = False, 0.0
        return {
            "aux_parses": float(aux_parses),
            "main_parses": float(main_parses),
            "calls_aux": float(calls_aux),
            "tests_passed": passed,
            "success": float(passed == 1.0),
        }

    async def _share_passed(self, problem: QuickstartProblem, aux: str, main: str) -> float:
        """Return the share of tests passed. The sandbox only sees the inputs; the expected results
        are compared here."""
        tests = problem.tests(self.options.tests)
        report = await self.sandbox.run([aux, main], [Call("main", (xs,)) for xs, _ in tests])
        right = [
            isinstance(answer, Returned) and same(answer.value, expected)
            for answer, (_, expected) in zip(report.calls, tests, strict=True)
        ]
        return sum(right) / len(tests)

    # ------------------------------------------------------------ chat

    def chat_task(self, text: str) -> Task:
        """Read a sentence such as "sum of xs plus 3 if above 2"."""
        sentence = " ".join(text.split()).removeprefix("# ")
        problem = next((one for one in PROBLEMS if one.sentence == sentence), None)
        if problem is None:
            raise ConfigError(
                f"got {shortened(text)!r}; expected REDUCE of xs MAP if FILTER, such as "
                f"{PROBLEMS[0].sentence!r}. REDUCE: {', '.join(REDUCERS)}; MAP: squared, plus 2 "
                "to plus 7, ...; FILTER: even, above 1 to above 5, ..."
            )
        return Task(problem.sentence, asdict(problem))

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return both halves as one program."""
        return "\n".join(texts[agent].rstrip() + "\n" for agent in AGENTS)

    # ------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return a random agent's half in a random convention. It does not show the other's."""
        draw = random.Random(seed)
        problem, agent = QuickstartProblem(**task.fields), draw.choice(AGENTS)
        return Demonstration(
            agent, prompt(problem, agent), halves(problem, draw.randrange(len(CONVENTIONS)))[agent]
        )

    def solve(self, state: QuickstartProblem, seed: int) -> dict[str, str]:
        return halves(state, 0)

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return which of `CONVENTIONS` a half follows, or `other`. A pair succeeds together if
        both halves follow the same one."""
        marks = zip(CONVENTIONS, _MARKS[agent], strict=True)
        return next((name for name, mark in marks if re.search(mark, text, re.DOTALL)), "other")


_MARKS = {
    "aux": (r"aux\(x\):[^<>=]*$", r"aux\(x\):", r"aux\(xs\):(?!.*\[x for)", r"aux\(xs\):"),
    "main": (r"aux\(x\) for", r"if aux\(x\)", r"\(aux\(xs\)\)", r"in aux\(xs\)"),
}
"""Regular expressions that identify each of `CONVENTIONS`; the first match counts."""
