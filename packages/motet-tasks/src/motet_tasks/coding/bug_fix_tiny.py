"""The embedded bug fix: a program of the quickstart environment with one wrong part.

No agent knows both what the program should do and how to write it. `reviewer` reads the sentence
and the faulty program, and says which part is wrong and what it should be. `fixer` reads the
program and the review, and rewrites the program. A review consists of two numbers: the index of the
part, and the index of the right choice in the list of choices. Demonstrations count from one or
from zero. Parts are also counted from two, as if the function's name were the first part.
Demonstrations mix all of these, so after the warm-up a review is ambiguous.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from pydantic import Field, PositiveInt

from codejudge import Call, Returned, Sandbox, same
from codejudge.source import definition, normalised, parse_bounded
from motet.core import Demonstration, Environment, Reply, Task, Transition
from motet.environments.quickstart import FILTERS, MAPS, PROBLEMS, REDUCERS, QuickstartProblem
from motet.environments.splits import part_of
from motet.errors import ConfigError, shortened
from motet.settings import Settings

AGENTS = ("reviewer", "fixer")
CHOICES: Mapping[str, tuple[str, ...]] = {
    "reducer": tuple(REDUCERS),
    "operator": ("plus", "times", "minus"),
    "number": tuple("234567"),
    "comparison": ("above", "below"),
    "bound": tuple("12345"),
}
"""The parts of a program with all their choices, in the order of the sentence and the program."""
PARTS = tuple(CHOICES)
_NUMBERS = {"one": 1, "zero": 0, "two": 2}
CONVENTIONS = {
    f"parts from {part}, choices from {choice}": (_NUMBERS[part], _NUMBERS[choice])
    for part in ("one", "zero", "two")
    for choice in ("one", "zero")
}
"""Name -> (number of the first part, number of the first choice)."""


def words(problem: QuickstartProblem) -> list[str]:
    """Return the current choice of each of PARTS; fewer words if the problem lacks some parts."""
    return [problem.reduce, *problem.map.split(), *problem.filter.split()]


def program(problem: QuickstartProblem) -> str:
    to, mapped, kept = (
        REDUCERS[problem.reduce].code,
        MAPS[problem.map].code,
        FILTERS[problem.filter].code,
    )
    return f"def main(xs):\n return {to}({mapped} for x in xs if {kept})\n"


@dataclass(frozen=True)
class TinyBug:
    """The state: the intended program, the wrong part and its wrong choice, and the review if there
    is one."""

    problem: QuickstartProblem
    part: str
    wrong: str
    review: str | None = None

    @property
    def meant(self) -> str:
        """The right choice for the wrong part."""
        return words(self.problem)[PARTS.index(self.part)]

    @property
    def faulty(self) -> QuickstartProblem:
        """The problem that the faulty program solves."""
        found = words(self.problem)
        found[PARTS.index(self.part)] = self.wrong
        reduce, operator, number, comparison, bound = found
        return QuickstartProblem(reduce, f"{operator} {number}", f"{comparison} {bound}")

    def shows(self, tests: int) -> bool:
        """Return whether a test of the problem distinguishes the faulty from the right program."""
        return any(_answer(self.faulty, xs) != right for xs, right in self.problem.tests(tests))

    def say(self, convention: str) -> str:
        """Return the review in one of CONVENTIONS."""
        part, choice = CONVENTIONS[convention]
        return (
            f"part {PARTS.index(self.part) + part}: {CHOICES[self.part].index(self.meant) + choice}"
        )

    def repair(self) -> str:
        """Return the right program, after a comment that names the change."""
        return f"# {self.part}: {self.meant}\n{program(self.problem)}"


def _answer(problem: QuickstartProblem, xs: Sequence[int]) -> object:
    try:
        return problem.answer(xs)
    except ValueError:
        return None  # the largest or smallest of an empty list: the program raises


def _is_main(text: str) -> bool:
    tree = parse_bounded(text)
    return tree is not None and definition(tree, "main") is not None


class TinyBugFix(Environment[TinyBug]):
    """Two turns. Both agents get the same reward, at the end only.

    0.2 if the repair defines a function `main`, 0.3 times the share of tests passed, and 0.5 if all
    pass.
    """

    agents: Sequence[str] = AGENTS
    branches = True
    rewards_at_end = True

    class Options(Settings):
        """Options of the embedded bug fix environment."""

        tests: PositiveInt = 5
        """Number of lists that a program is tested on."""
        held_out: float = Field(0.2, gt=0.0, lt=1.0)
        """Share of the 900 problems that is held out from training."""

    def __init__(self, options: Options, *, sandbox: Sandbox) -> None:
        self.options = options
        self.sandbox = sandbox

    def tasks(self, split: str) -> list[Task]:
        """Return the faults of `train` or `eval`, always the same in the same shuffled order.

        `train` has all faults that a test of their problem detects; `eval` has at most two for each
        problem.
        """
        problems = [problem for problem in PROBLEMS if len(words(problem)) == len(PARTS)]
        draw = random.Random(0)
        draw.shuffle(problems)
        held_out = int(len(problems) * self.options.held_out)
        parts = {"train": (problems[held_out:], None), "eval": (problems[:held_out], 2)}
        chosen, most = part_of("bug_fix_tiny", parts, split)
        faults = [fault for problem in chosen for fault in self._faults(problem, draw)[:most]]
        draw.shuffle(faults)
        return [
            Task(
                f"{one.problem.sentence}, {one.part} {one.wrong}",
                {**asdict(one.problem), "part": one.part, "wrong": one.wrong},
            )
            for one in faults
        ]

    def _faults(self, problem: QuickstartProblem, draw: random.Random) -> list[TinyBug]:
        every = [TinyBug(problem, part, choice) for part in PARTS for choice in CHOICES[part]]
        found = [
            fault
            for fault in every
            if fault.wrong != fault.meant and fault.shows(self.options.tests)
        ]
        draw.shuffle(found)
        return found

    async def start(self, task: Task, seed: int) -> TinyBug:
        return self._begin(task)

    def observe(self, state: TinyBug) -> Mapping[str, str]:
        agent = AGENTS[0] if state.review is None else AGENTS[1]
        return {agent: self._prompt(state, agent)}

    async def step(self, state: TinyBug, replies: Mapping[str, Reply], seed: int) -> Transition:
        if state.review is None:
            reviewed = replace(state, review=replies["reviewer"].text)
            return Transition(reviewed, dict.fromkeys(AGENTS, 0.0), done=False)
        terms = await self._judge(state, replies["fixer"].text)
        reward = 0.2 * terms["parses"] + 0.3 * terms["tests_passed"] + 0.5 * terms["success"]
        rewards = dict.fromkeys(AGENTS, reward)
        return Transition(state, rewards, done=True, metrics=terms, success=terms["success"])

    def _begin(self, task: Task) -> TinyBug:
        of = task.fields
        return TinyBug(
            QuickstartProblem(of["reduce"], of["map"], of["filter"]), of["part"], of["wrong"]
        )

    def _prompt(self, state: TinyBug, agent: str) -> str:
        faulty = program(state.faulty)
        if agent == "reviewer":
            return f"# {state.problem.sentence}\n{faulty}# review\n"
        return f"{faulty}# {state.review}\n# repair\n"

    async def _judge(self, state: TinyBug, text: str) -> dict[str, float]:
        """Score a repair. The sandbox only sees the inputs; the expected results are compared
        here."""
        parses = _is_main(text)
        passed = await self._share_passed(state.problem, text) if parses else 0.0
        return {"parses": float(parses), "tests_passed": passed, "success": float(passed == 1.0)}

    async def _share_passed(self, problem: QuickstartProblem, text: str) -> float:
        tests = problem.tests(self.options.tests)
        report = await self.sandbox.run([text], [Call("main", (xs,)) for xs, _ in tests])
        right = [
            isinstance(answer, Returned) and same(answer.value, expected)
            for answer, (_, expected) in zip(report.calls, tests, strict=True)
        ]
        return sum(right) / len(tests)

    # ------------------------------------------------------------ right answers

    def demonstrate(self, task: Task, seed: int) -> Demonstration:
        """Return a review in a random convention, or the repair that such a review asks for."""
        draw = random.Random(seed)
        fault, agent = self._begin(task), draw.choice(AGENTS)
        review = fault.say(draw.choice(list(CONVENTIONS)))
        if agent == "reviewer":
            return Demonstration(agent, self._prompt(fault, agent), review, turn=0)
        return Demonstration(
            agent, self._prompt(replace(fault, review=review), agent), fault.repair(), turn=1
        )

    def solve(self, state: TinyBug, seed: int) -> dict[str, str]:
        return {"reviewer": state.say(next(iter(CONVENTIONS))), "fixer": state.repair()}

    def convention(self, task: Task, agent: str, text: str) -> str:
        """Return which of CONVENTIONS a right review follows, else `other`. A repair follows none
        and gets the label `a repair`."""
        if agent == "fixer":
            return "a repair"
        fault = self._begin(task)
        return next((name for name in CONVENTIONS if fault.say(name) == text), "other")

    def chat_task(self, text: str) -> Task:
        """Read a sentence with its wrong part: "sum of xs plus 3 if above 2, number 4"."""
        sentence, _, wrong = " ".join(text.split()).rpartition(", ")
        problem = next((one for one in PROBLEMS if one.sentence == sentence), None)
        part, _, choice = wrong.partition(" ")
        whole = problem is not None and len(words(problem)) == len(PARTS)
        if problem is None or not whole or choice not in CHOICES.get(part, ()):
            raise ConfigError(
                f"got {shortened(text)!r}; expected a sentence and its wrong part, such as 'sum "
                "of xs plus 3 if above 2, number 4'"
            )
        return Task(f"{sentence}, {wrong}", {**asdict(problem), "part": part, "wrong": choice})

    def chat_answer(self, task: Task, texts: Mapping[str, str]) -> str:
        """Return the repaired program."""
        return texts["fixer"]

    def answer(self, task: Task, texts: Mapping[str, str]) -> str | None:
        """Return the normalised program (without layout and comments) for a vote."""
        return normalised(texts["fixer"]) if _is_main(texts["fixer"]) else None
