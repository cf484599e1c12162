"""The embedded bug fix: quickstart's programs with one part wrong, and nobody who knows both what is meant and how to write it.

`reviewer` reads the sentence and the faulty program and says which part is wrong and what it should be, `fixer` reads the program
and the review and writes the program anew. A review is two numbers: the part's, and that of the right choice in its list.
People count from one or from zero, and parts also from two, where they take the function's name for the first. Demonstrations mix
all of these, so after the warm start a review can be read in several ways.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pydantic import Field, PositiveInt

from motet.core import Demonstration, Reply, Task, Transition
from motet.environments.quickstart import FILTERS, MAPS, PROBLEMS, REDUCERS, Problem
from motet.errors import ConfigError
from motet.rewards.python import definition, normalised, parse_bounded
from motet.sandbox import Call, Returned, Sandbox, same
from motet.settings import Settings

AGENTS = ("reviewer", "fixer")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "reducer": tuple(REDUCERS),
    "operator": ("plus", "times", "minus"),
    "number": tuple("234567"),
    "comparison": ("above", "below"),
    "bound": tuple("12345"),
}
"""The parts of a program, as the sentence says them and in the order in which they stand in both, each with all it may be."""
PARTS = tuple(CHOICES)
_NUMBERS = {"one": 1, "zero": 0, "two": 2}
CONVENTIONS = {
    f"parts from {part}, choices from {choice}": (_NUMBERS[part], _NUMBERS[choice])
    for part in ("one", "zero", "two")
    for choice in ("one", "zero")
}
"""The number of the first part, and that of the first choice."""


def words(problem: Problem) -> list[str]:
    """What each of PARTS is; fewer words for a problem that has not all of them."""
    return [problem.reduce, *problem.map.split(), *problem.filter.split()]


def program(problem: Problem) -> str:
    to, mapped, kept = REDUCERS[problem.reduce].code, MAPS[problem.map].code, FILTERS[problem.filter].code
    return f"def main(xs):\n return {to}({mapped} for x in xs if {kept})\n"


@dataclass(frozen=True)
class Fault:
    """The state: what is meant, which part is wrong and what stands there, and the review once there is one."""

    problem: Problem
    part: str
    wrong: str
    review: str | None = None

    @property
    def meant(self) -> str:
        """What should stand there."""
        return words(self.problem)[PARTS.index(self.part)]

    @property
    def faulty(self) -> Problem:
        """What the program does."""
        found = words(self.problem)
        found[PARTS.index(self.part)] = self.wrong
        reduce, operator, number, comparison, bound = found
        return Problem(reduce, f"{operator} {number}", f"{comparison} {bound}")

    def shows(self, tests: int) -> bool:
        """Whether any of the problem's tests tells the two apart."""
        return any(_answer(self.faulty, xs) != right for xs, right in self.problem.tests(tests))

    def say(self, convention: str) -> str:
        """The review by one of CONVENTIONS."""
        part, choice = CONVENTIONS[convention]
        return f"part {PARTS.index(self.part) + part}: {CHOICES[self.part].index(self.meant) + choice}"

    def repair(self) -> str:
        """What is changed, as a comment, and the program that is meant."""
        return f"# {self.part}: {self.meant}\n{program(self.problem)}"


def _answer(problem: Problem, xs: Sequence[int]) -> object:
    try:
        return problem.answer(xs)
    except ValueError:
        return None  # nothing is left to be the largest: the program raises


def _is_main(text: str) -> bool:
    tree = parse_bounded(text)
    return tree is not None and definition(tree, "main") is not None


class TinyBugFix:
    """Two turns. The reward, alike for both and at the end only: 0.2 if the repair is a function `main`, 0.3 times the share of
    tests passed, and 0.5 if it is all of them."""

    agents: Sequence[str] = AGENTS
    branches = True
    rewards_at_end = True

    class Options(Settings):
        """Options of the embedded bug fix environment."""

        tests: PositiveInt = 5
        """Lists that a program is tried on."""
        held_out: float = Field(0.2, gt=0.0, lt=1.0)
        """Share of the 900 problems that is never trained on."""

    def __init__(self, options: Options, *, sandbox: Sandbox) -> None:
        self.options = options
        self.sandbox = sandbox

    def tasks(self, split: str) -> list[Task]:
        """For `train` all faults that show in their problem's tests, for `eval` two of each problem: always the same, in an order
        of their own."""
        problems = [problem for problem in PROBLEMS if len(words(problem)) == len(PARTS)]
        draw = random.Random(0)
        draw.shuffle(problems)
        held_out = int(len(problems) * self.options.held_out)
        parts = {"train": (problems[held_out:], None), "eval": (problems[:held_out], 2)}
        if split not in parts:
            raise ConfigError(f"bug_fix_tiny has no split {split!r}; expected one of {', '.join(parts)}")
        chosen, most = parts[split]
        faults = [fault for problem in chosen for fault in self._faults(problem, draw)[:most]]
        draw.shuffle(faults)
        return [
            Task(
                f"{one.problem.sentence}, {one.part} {one.wrong}",
                {**asdict(one.problem), "part": one.part, "wrong": one.wrong},
            )
            for one in faults
        ]

    def _faults(self, problem: Problem, draw: random.Random) -> list[Fault]:
        every = [Fault(problem, part, choice) for part in PARTS for choice in CHOICES[part]]
        found = [fault for fault in every if fault.wrong != fault.meant and fault.shows(self.options.tests)]
        draw.shuffle(found)
        return found

    async def start(self, task: Task, seed: int) -> Fault:
        return self._begin(task)

    def observe(self, state: Fault) -> Mapping[str, str]:
        agent = AGENTS[0] if state.review is None else AGENTS[1]
        return {agent: self._prompt(state, agent)}

    async def step(self, state: Fault, replies: Mapping[str, Reply], seed: int) -> Transition:
        if state.review is None:
            reviewed = replace(state, review=replies["reviewer"].text)
            return Transition(reviewed, dict.fromkeys(AGENTS, 0.0), done=False)
        terms = await self._judge(state, replies["fixer"].text)
        reward = 0.2 * terms["parses"] + 0.3 * terms["tests_passed"] + 0.5 * terms["success"]
        return Transition(state, dict.fromkeys(AGENTS, reward), done=True, terms=terms)

    async def close(self, state: Fault) -> None:
        """Nothing is held."""

    def _begin(self, task: Task) -> Fault:
        of = task.fields
        return Fault(Problem(of["reduce"], of["map"], of["filter"]), of["part"], of["wrong"])

    def _prompt(self, state: Fault, agent: str) -> str:
        faulty = program(state.faulty)
        if agent == "reviewer":
            return f"# {state.problem.sentence}\n{faulty}# review\n"
        return f"{faulty}# {state.review}\n# repair\n"

    async def _judge(self, state: Fault, text: str) -> dict[str, float]:
        """Only lists of integers go into the sandbox; what should come out is compared here."""
        parses = _is_main(text)
        passed = await self._share_passed(state.problem, text) if parses else 0.0
        return {"parses": float(parses), "tests_passed": passed, "success": float(passed == 1.0)}

    async def _share_passed(self, problem: Problem, text: str) -> float:
        tests = problem.tests(self.options.tests)
        report = await self.sandbox.run([text], [Call("main", (xs,)) for xs, _ in tests])
        right = [
            isinstance(answer, Returned) and same(answer.value, expected)
            for answer, (_, expected) in zip(report.calls, tests, strict=True)
        ]
        return sum(right) / len(tests)

    # ------------------------------------------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """A review by a random convention, or the repair that whoever wrote such a review had in mind."""
        draw = random.Random(seed)
        fault, agent = self._begin(task), draw.choice(AGENTS)
        review = fault.say(draw.choice(list(CONVENTIONS)))
        if agent == "reviewer":
            return Demonstration(agent, self._prompt(fault, agent), review, turn=0)
        return Demonstration(agent, self._prompt(replace(fault, review=review), agent), fault.repair(), turn=1)

    def solve(self, state: Fault, seed: int) -> dict[str, str]:
        return {"reviewer": state.say(next(iter(CONVENTIONS))), "fixer": state.repair()}

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Which of CONVENTIONS a right review holds to, else `other`; a repair does not tell."""
        if agent == "fixer":
            return "a repair"
        fault = self._begin(task)
        return next((name for name in CONVENTIONS if fault.say(name) == text), "other")

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """What a vote counts: the repaired program, however it is laid out and commented."""
        return normalised(texts["fixer"]) if _is_main(texts["fixer"]) else None
