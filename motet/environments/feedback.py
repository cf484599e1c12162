"""External feedback: what the agents of a coding task are told between two turns.

A mode is one function of an Attempt; MODES is the table of those that ask nobody. None of them ever sees a test that grades,
unless the options say so: what may be shown is in `Attempt.shown`. Those that ask nobody tell an agent of its own part and of
what everybody may know; an expert, a person and an author's own function see the whole attempt and tell each what they like.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self, TypeAlias

from pydantic import model_validator

from motet.core import Chat, Message
from motet.endpoint import EndpointFault
from motet.environments.advice import by_line, by_part
from motet.errors import ConfigError, EnvironmentFault
from motet.plugins import is_reference, load_object, nearest
from motet.sandbox.suite import Status, Suite, Verdict
from motet.settings import Settings


@dataclass(frozen=True)
class Attempt:
    """What a turn came to, as far as agents may be told."""

    problem: str
    """The task's own text."""
    writes: Mapping[str, str]
    """Agent -> what it is to write, in words: "the function `aux`"."""
    replies: Mapping[str, str]
    """Agent -> the text of its reply."""
    codes: Mapping[str, str]
    """Agent -> the code that was found in it; empty where there was none."""
    notes: Mapping[str, Sequence[tuple[bool, str]]]
    """Agent -> what was checked of its part, in the order of levels, and whether it holds: (False, "`aux` is not defined")."""
    share: float
    """The share of the grading tests passed."""
    shown: Suite | None = None
    """The tests that may be shown; None where there are none."""
    verdict: Verdict | None = None
    """What came of them."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """The reward's terms."""


class FeedbackOptions(Settings):
    """External feedback between turns."""

    mode: str = "level_feedback"
    """plain, passed, level_passed, level_feedback, expert_edits, human, or a function of one's own: package.module:NAME or
    ./file.py:NAME."""
    sandbox_slice: int | Literal["all"] = 0
    """How many of the tests that grade may be shown: the first so many, below 0 the last so many, or all. With 0 it is none, and
    the examples in the task's own text stand in for them."""
    grade_shown: bool = False
    """Whether tests that may be shown still grade. If not, at least one test is kept back to grade."""
    restate_problem: bool | None = None
    """Whether later prompts repeat the task; unless set, only under history: none, where nothing else does."""
    restate_answer: bool | None = None
    """Whether later prompts repeat the agent's last answer; unless set, only under history: none."""

    @model_validator(mode="after")
    def _something_grades(self) -> Self:
        if self.sandbox_slice == "all" and not self.grade_shown:
            raise ValueError(
                "sandbox_slice all shows every test and grade_shown false lets none of them grade: "
                "set grade_shown: true, or a smaller slice"
            )
        return self

    def divide(self, tests: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of the grading tests 0, 1, ..., `tests` - 1: those that may be shown, and those that grade."""
        everything = tuple(range(tests))
        if self.sandbox_slice == "all":
            return everything, everything
        count = min(abs(self.sandbox_slice), tests if self.grade_shown else max(0, tests - 1))
        shown = everything[:count] if self.sandbox_slice > 0 else everything[tests - count :]
        return shown, everything if self.grade_shown else tuple(index for index in everything if index not in shown)


class Expert(Protocol):
    """A model that can be asked, such as an Endpoint."""

    async def ask(self, messages: Chat) -> str:
        """Raises: EndpointFault where it gives no answer."""
        ...


class Person(Protocol):
    """Somebody at a terminal, who answers with lines."""

    async def ask(self, question: str) -> str:
        """Raises: EnvironmentFault where nobody is there any more."""
        ...


class ExpertFault(EnvironmentFault):
    """A model that was to give feedback gave no answer, or none that can be read."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = f"expert_{cause}"


Told: TypeAlias = str | Mapping[str, str]
"""One text for everybody, or one per agent; an agent that is left out is told nothing."""
Mode: TypeAlias = Callable[[Attempt], Told | Awaitable[Told]]


class Feedback:
    """Feedback by one mode."""

    def __init__(self, options: FeedbackOptions, *, expert: Expert | None = None, person: Person | None = None) -> None:
        """Raises: ConfigError for a mode that nobody defines, or that asks somebody who is not there."""
        self.name = options.mode
        self.reads_tests = options.mode not in WITHOUT_TESTS
        """Whether the tests that may be shown, and what came of them, make any difference."""
        self._mode = _mode(options.mode, expert, person)

    async def give(self, attempt: Attempt) -> dict[str, str]:
        """What each agent is told, with the request to revise. Raises: EnvironmentFault where nobody could be asked."""
        told = await self._ask(attempt)
        texts = dict.fromkeys(attempt.writes, told) if isinstance(told, str) else told
        return {
            agent: _joined(texts[agent] if agent in texts else "", _revise(what))
            for agent, what in attempt.writes.items()
        }

    async def _ask(self, attempt: Attempt) -> Told:
        try:
            told = self._mode(attempt)
            if inspect.isawaitable(told):
                told = await told
        except EndpointFault as fault:
            raise ExpertFault(fault.cause, f"feedback {self.name}: {fault}") from fault
        except EnvironmentFault:
            raise
        except Exception as error:
            raise EnvironmentFault(f"feedback {self.name}: {type(error).__name__}: {error}") from error
        return _checked(told, self.name, attempt.writes)


def _checked(told: Any, name: str, agents: Mapping[str, str]) -> Told:
    if isinstance(told, str):
        return told
    if not isinstance(told, Mapping) or not all(isinstance(text, str) for text in told.values()):
        got = f"{type(told).__name__} {told!r}"[:200]
        raise EnvironmentFault(f"feedback {name} returned {got}; expected a text, or a text per agent")
    unknown = [agent for agent in told if agent not in agents]
    if unknown:
        raise EnvironmentFault(f"feedback {name} is for {unknown[0]!r}; the agents are {', '.join(agents)}")
    return told


def _mode(name: str, expert: Expert | None, person: Person | None) -> Mode:
    if name == "expert_edits":
        if expert is None:
            raise ConfigError(
                "feedback.mode is expert_edits, and there is no expert: add a section with at least\n"
                "expert: {base_url: http://localhost:8000/v1, model: NAME}"
            )
        return lambda attempt: expert_edits(attempt, expert)
    if expert is not None:
        raise ConfigError(
            f"there is an expert section, and feedback.mode is {name}, which asks no expert: set feedback.mode: expert_edits, "
            f"or drop expert"
        )
    if name == "human":
        if person is None:
            raise ConfigError(
                "feedback.mode is human, and there is no terminal to ask at: start the command in a terminal, "
                "or choose another mode"
            )
        return lambda attempt: human(attempt, person)
    if name in MODES:
        return MODES[name]
    return _own(name)


def _own(name: str) -> Mode:
    if not is_reference(name):
        known = (*MODES, "expert_edits", "human")
        raise ConfigError(
            f"feedback.mode is {name!r}{nearest(name, known)}; expected one of {', '.join(known)}, "
            f"package.module:NAME or ./file.py:NAME"
        )
    try:
        found = load_object(name)
    except ConfigError as error:
        raise ConfigError(f"feedback.mode: {error}") from error
    if isinstance(found, type) or not callable(found):
        raise ConfigError(
            f"feedback.mode is {name!r}, which is no function; expected def {name.rpartition(':')[2]}(attempt): ..."
        )
    mode: Mode = found
    return mode


# ---------------------------------------------------------------------------------------------------- modes that ask nobody


def plain(attempt: Attempt) -> Told:
    """Nothing but the request to revise."""
    return ""


def passed(attempt: Attempt) -> Told:
    """Whether the program passed all of its tests."""
    return f"Result: {_all_or_not(attempt)}."


def level_passed(attempt: Attempt) -> Told:
    """Which levels hold of the agent's own part, and whether all tests passed; of what does not hold, nothing more."""
    return {agent: "\n".join(["Levels:", *_levels(attempt, agent)]) for agent in attempt.writes}


def _levels(attempt: Attempt, agent: str) -> list[str]:
    own = [f"holds: {text}" if holds else "does not hold" for holds, text in attempt.notes[agent]]
    return [f"{number}. {text}" for number, text in enumerate([*own, _all_or_not(attempt)], start=1)]


def level_feedback(attempt: Attempt) -> Told:
    """What was found in the agent's own part, and what came of the tests that may be shown."""
    common = results(attempt)
    return {agent: _joined(_found(attempt, agent), common) for agent in attempt.writes}


def _found(attempt: Attempt, agent: str) -> str:
    notes = [f"- {'OK' if holds else 'Problem'}: {text}" for holds, text in attempt.notes[agent]]
    return "\n".join(["Your part:", *notes]) if notes else ""


MODES: dict[str, Mode] = {
    "plain": plain,
    "passed": passed,
    "level_passed": level_passed,
    "level_feedback": level_feedback,
}
WITHOUT_TESTS = frozenset({"plain", "passed", "level_passed"})
"""Modes that say nothing of the tests that may be shown."""


# ---------------------------------------------------------------------------------------------------- modes that ask somebody


async def expert_edits(attempt: Attempt, expert: Expert) -> Told:
    """Edits that a model proposes, to each agent its own."""
    answer = await expert.ask((Message("user", question(attempt)),))
    edits = by_part(answer, tuple(attempt.writes))
    return {agent: _joined("An expert proposes these edits:", text) if text else "" for agent, text in edits.items()}


def question(attempt: Attempt) -> str:
    """What the expert is asked."""
    form = ", ".join(f'"{agent}": "..."' for agent in attempt.writes)
    return _joined(
        "Several programmers solve one problem together. Each writes one part and does not see the others' parts. "
        "Propose short, concrete edits for each of them, so that the parts work together and solve the problem.",
        _whole(attempt),
        f"Answer with one JSON object that has the edits of each as text, empty where none are needed: {{{form}}}",
    )


async def human(attempt: Attempt, person: Person) -> Told:
    """What a person types: a line for everybody, or `agent: text` for one."""
    agents = tuple(attempt.writes)
    typed = await person.ask(
        _joined(
            _whole(attempt),
            f"Result: {_all_or_not(attempt)}.",
            f"Your feedback? A line is for everybody, a line `{agents[0]}: ...` for {agents[0]} alone; an empty line ends.",
        )
    )
    return by_line(typed, agents)


def _whole(attempt: Attempt) -> str:
    """The problem, everybody's part, and the tests that may be shown."""
    parts = [
        f"{agent} writes {what}:\n{attempt.codes[agent].strip() or attempt.replies[agent].strip() or '(nothing)'}"
        for agent, what in attempt.writes.items()
    ]
    return _joined(f"The problem:\n{attempt.problem.strip()}", *parts, results(attempt))


# ---------------------------------------------------------------------------------------------------- words

_WORDS: dict[Status, str] = {
    "passed": "Passed",
    "failed": "Failed",
    "timeout": "Took too long",
    "not_run": "Did not run",
}


def results(attempt: Attempt) -> str:
    """What came of the tests that may be shown: the text of each, and the exception where it did not pass. Everybody may know."""
    if attempt.shown is None or attempt.verdict is None:
        return ""
    texts = {case.name: _readable(case.text, attempt.shown) for case in attempt.shown.cases}
    items = []
    for case in attempt.verdict.cases:
        raised = ": ".join(part for part in (case.kind, case.message) if part)
        items.append(f"{_WORDS[case.status]}: {texts[case.name]}\n{raised}")
    if attempt.verdict.failure is not None:
        items.append(f"The program did not come to its end ({attempt.verdict.failure}): {attempt.verdict.message}")
    return "\n".join(["Tests of the whole program:", *("- " + item.rstrip().replace("\n", "\n  ") for item in items)])


def _readable(test: str, suite: Suite) -> str:
    """Agents know the function by its name, and not as `candidate`."""
    if suite.kind != "check" or suite.entry_point is None:
        return test
    return re.sub(r"\bcandidate\b", suite.entry_point, test)


def _all_or_not(attempt: Attempt) -> str:
    return "all tests passed" if attempt.share == 1.0 else "not all tests passed"


def _revise(what: str) -> str:
    return f"Revise {what}: write all of it again, in the same form as before."


def _joined(*parts: str) -> str:
    whole = "\n\n".join(part for part in parts if part)
    return whole.encode(
        "utf-8", "replace"
    ).decode()  # whoever was asked may have sent half a character: no tokenizer reads one
