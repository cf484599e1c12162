"""The embedded default: two agents write one program, and neither sees the other's half.

A problem is `reduce(map(filter(xs)))` over small integers: "largest of xs plus 3 if above 2". `aux` writes a helper, `main` the
function that must call it. There are four incompatible ways to split that work, and demonstrations mix them at random. So after
the warm start each agent alone is able, the pair fails three times in four, and only agreement is left to learn.
"""

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pydantic import Field, PositiveInt

from motet.core import Demonstration, Reply, Task, Transition
from motet.errors import ConfigError
from motet.rewards.python import binds, calls, definition, parse_bounded
from motet.sandbox import Call, Returned, Sandbox, same
from motet.settings import Settings

AGENTS = ("aux", "main")
NO_AUX = "def aux(*xs):\n raise LookupError\n"
"""A partner that is no help."""
CONVENTIONS = ("aux(x) maps", "aux(x) tests", "aux(xs) maps", "aux(xs) filters")
"""What each way to split the work leaves to the helper; in the order of `halves`."""


# ---------------------------------------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Part:
    """A part of a problem: how a program writes it, and what it means."""

    code: str
    of: Callable[[Any], Any]


FILTERS = {
    "even": Part("x % 2 == 0", lambda x: x % 2 == 0),
    "odd": Part("x % 2 == 1", lambda x: x % 2 == 1),
    "positive": Part("x > 0", partial(operator.lt, 0)),
    "negative": Part("x < 0", partial(operator.gt, 0)),
}
MAPS = {
    "squared": Part("x * x", lambda x: x * x),
    "negated": Part("-x", operator.neg),
    "absolute": Part("abs(x)", abs),
}
for k in range(1, 6):
    FILTERS[f"above {k}"] = Part(f"x > {k}", partial(operator.lt, k))
    FILTERS[f"below {k}"] = Part(f"x < {k}", partial(operator.gt, k))
for k in range(2, 8):
    MAPS[f"plus {k}"] = Part(f"x + {k}", partial(operator.add, k))
    MAPS[f"times {k}"] = Part(f"x * {k}", partial(operator.mul, k))
    MAPS[f"minus {k}"] = Part(f"x - {k}", partial(operator.add, -k))
REDUCERS = {
    "sum": Part("sum", sum),
    "largest": Part("max", max),
    "smallest": Part("min", min),
    "sorted": Part("sorted", sorted),
    "list": Part("list", list),
}


@dataclass(frozen=True)
class Problem:
    """One of 5 x 21 x 14; also the environment's state, for there is only one turn."""

    reduce: str
    map: str
    filter: str

    @property
    def sentence(self) -> str:
        return f"{self.reduce} of xs {self.map} if {self.filter}"

    def answer(self, xs: Sequence[int]) -> Any:
        """ValueError where nothing is left to be the largest or the smallest."""
        kept = [MAPS[self.map].of(x) for x in xs if FILTERS[self.filter].of(x)]
        return REDUCERS[self.reduce].of(kept)

    def tests(self, count: int) -> list[tuple[list[int], Any]]:
        """`count` lists of 8 integers from -9 to 12, each with its answer; always the same. Lists without one are passed over."""
        draw = random.Random(repr((self.reduce, self.map, self.filter)))
        found: list[tuple[list[int], Any]] = []
        while len(found) < count:
            xs = [draw.randint(-9, 12) for _ in range(8)]
            try:
                found.append((xs, self.answer(xs)))
            except ValueError:
                continue
        return found


PROBLEMS = tuple(Problem(r, m, f) for r in REDUCERS for m in MAPS for f in FILTERS)


def prompt(problem: Problem, agent: str) -> str:
    return f"# {problem.sentence}\n# write {agent}\n"


def halves(problem: Problem, convention: int) -> dict[str, str]:
    """Both agents' programs where both hold to one of `CONVENTIONS`."""
    to, mapped, kept = REDUCERS[problem.reduce].code, MAPS[problem.map].code, FILTERS[problem.filter].code
    helper, use = (
        (f"aux(x):\n return {mapped}", f"aux(x) for x in xs if {kept}"),
        (f"aux(x):\n return {kept}", f"{mapped} for x in xs if aux(x)"),
        (f"aux(xs):\n return [{mapped} for x in xs if {kept}]", "aux(xs)"),
        (f"aux(xs):\n return [x for x in xs if {kept}]", f"{mapped} for x in aux(xs)"),
    )[convention]
    return {"aux": f"def {helper}\n", "main": f"def main(xs):\n return {to}({use})\n"}


# ---------------------------------------------------------------------------------------------------- environment


class Quickstart:
    """One turn, no messages. The reward, alike for both: 0.1 for each half that is a function, and if `main` calls the partner's
    `aux`, 0.3 times the share of tests passed, and 0.5 if it is all of them."""

    agents: Sequence[str] = AGENTS
    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the quickstart environment."""

        tests: PositiveInt = 5
        """Lists that a program is tried on."""
        held_out: float = Field(0.2, gt=0.0, lt=1.0)
        """Share of the 1,470 problems that is never trained on."""

    def __init__(self, options: Options, *, sandbox: Sandbox) -> None:
        self.options = options
        self.sandbox = sandbox

    def tasks(self, split: str) -> list[Task]:
        """The problems of `train` or `eval`: always the same, in an order of their own."""
        shuffled = list(PROBLEMS)
        random.Random(0).shuffle(shuffled)
        held_out = int(len(shuffled) * self.options.held_out)
        parts = {"train": shuffled[held_out:], "eval": shuffled[:held_out]}
        if split not in parts:
            raise ConfigError(f"quickstart has no split {split!r}; expected one of {', '.join(parts)}")
        return [Task(problem.sentence, asdict(problem)) for problem in parts[split]]

    async def start(self, task: Task, seed: int) -> Problem:
        return Problem(**task.fields)

    def observe(self, state: Problem) -> Mapping[str, str]:
        return {agent: prompt(state, agent) for agent in AGENTS}

    async def step(self, state: Problem, replies: Mapping[str, Reply], seed: int) -> Transition:
        terms = await self._judge(state, replies["aux"].text, replies["main"].text)
        defined = 0.1 * terms["aux_parses"] + 0.1 * terms["main_parses"]
        reward = defined + 0.3 * terms["tests_passed"] + 0.5 * terms["success"]
        return Transition(state, dict.fromkeys(AGENTS, reward), done=True, terms=terms)

    async def close(self, state: Problem) -> None:
        """Nothing is held."""

    async def _judge(self, problem: Problem, aux: str, main: str) -> dict[str, float]:
        helper, entry = parse_bounded(aux), parse_bounded(main)
        aux_parses = helper is not None and definition(helper, "aux") is not None
        main_parses = entry is not None and definition(entry, "main") is not None
        # a `main` that brings an `aux` of its own has not called its partner
        calls_aux = entry is not None and main_parses and calls(entry, "aux") and not binds(entry, "aux")
        passed = await self._share_passed(problem, aux, main) if aux_parses and calls_aux else 0.0
        if passed == 1.0 and await self._share_passed(problem, NO_AUX, main) == 1.0:
            calls_aux, passed = (
                False,
                0.0,
            )  # a `main` that does as well without its partner has only pretended to call it
        return {
            "aux_parses": float(aux_parses),
            "main_parses": float(main_parses),
            "calls_aux": float(calls_aux),
            "tests_passed": passed,
            "success": float(passed == 1.0),
        }

    async def _share_passed(self, problem: Problem, aux: str, main: str) -> float:
        """Only lists of integers go into the sandbox; what should come out is compared here."""
        tests = problem.tests(self.options.tests)
        report = await self.sandbox.run([aux, main], [Call("main", (xs,)) for xs, _ in tests])
        right = [
            isinstance(answer, Returned) and same(answer.value, expected)
            for answer, (_, expected) in zip(report.calls, tests, strict=True)
        ]
        return sum(right) / len(tests)

    # ------------------------------------------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """A random agent's half by a random convention: what the other would write is anybody's guess."""
        draw = random.Random(seed)
        problem, agent = Problem(**task.fields), draw.choice(AGENTS)
        return Demonstration(agent, prompt(problem, agent), halves(problem, draw.randrange(len(CONVENTIONS)))[agent])

    def solve(self, state: Problem, seed: int) -> dict[str, str]:
        return halves(state, 0)

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Which of `CONVENTIONS` a half looks like, or `other`. Two agents succeed together where they hold to the same."""
        marks = zip(CONVENTIONS, _MARKS[agent], strict=True)
        return next((name for name, mark in marks if re.search(mark, text, re.DOTALL)), "other")


_MARKS = {
    "aux": (r"aux\(x\):[^<>=]*$", r"aux\(x\):", r"aux\(xs\):(?!.*\[x for)", r"aux\(xs\):"),
    "main": (r"aux\(x\) for", r"if aux\(x\)", r"\(aux\(xs\)\)", r"in aux\(xs\)"),
}
"""What gives each of `CONVENTIONS` away; the first that fits counts."""
