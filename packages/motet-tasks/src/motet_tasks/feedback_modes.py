"""The modes of feedback: functions of an Attempt.

MODES lists the modes that ask neither a model nor a person. No mode sees a test that grades, unless
the options allow it: `Attempt.shown` holds the tests that may be shown. The modes of MODES give an
agent information about its own part and information that all agents may know. An expert, a person
and a custom function see the whole attempt and can send any text to any agent.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from codejudge.suite import Status, Suite, Verdict
from motet.core import Chat, Message
from motet_tasks.advice import by_line, by_part


@dataclass(frozen=True)
class Attempt:
    """The result of one turn, as far as agents may see it."""

    problem: str
    """The text of the task."""
    writes: Mapping[str, str]
    """Agent -> what it has to write, in words: "the function `aux`"."""
    replies: Mapping[str, str]
    """Agent -> the string of its reply."""
    codes: Mapping[str, str]
    """Agent -> the code extracted from its reply; empty if there is none."""
    notes: Mapping[str, Sequence[tuple[bool, str]]]
    """Agent -> checks of its part in the order of levels: whether each holds, and its description.
    Example: (False, "`aux` is not defined")."""
    share: float
    """The share of the grading tests that passed."""
    shown: Suite | None = None
    """The tests that may be shown; None if there are none."""
    verdict: Verdict | None = None
    """The results of `shown`; None if these tests were not run."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """The terms of the reward."""


class ExpertModel(Protocol):
    """A model that can be asked, such as an Endpoint."""

    async def ask(self, messages: Chat) -> str:
        """Return the model's answer. Raises: EndpointFault if there is none."""
        ...


class Person(Protocol):
    """A person at a terminal, who answers with one or more lines."""

    async def ask(self, question: str) -> str:
        """Return what the person typed. Raises: EnvironmentFault if the terminal is closed."""
        ...


FeedbackText: TypeAlias = str | Mapping[str, str]
"""One string for all agents, or one per agent. An agent without an entry gets no feedback."""
Mode: TypeAlias = Callable[[Attempt], FeedbackText | Awaitable[FeedbackText]]


# ------------------------------------------------------------ modes that ask nobody


def plain(attempt: Attempt) -> FeedbackText:
    """Only the request to revise."""
    return ""


def passed(attempt: Attempt) -> FeedbackText:
    """Whether the program passed all tests."""
    return f"Result: {_all_or_not(attempt)}."


def level_passed(attempt: Attempt) -> FeedbackText:
    """Which levels of the agent's own part hold, and whether all tests passed. It does not say
    which check failed."""
    return {agent: "\n".join(["Levels:", *_levels(attempt, agent)]) for agent in attempt.writes}


def _levels(attempt: Attempt, agent: str) -> list[str]:
    own = [f"holds: {text}" if holds else "does not hold" for holds, text in attempt.notes[agent]]
    return [
        f"{number}. {text}" for number, text in enumerate([*own, _all_or_not(attempt)], start=1)
    ]


def level_feedback(attempt: Attempt) -> FeedbackText:
    """The checks of the agent's own part, and the results of the tests that may be shown."""
    common = results(attempt)
    return {agent: joined(_found(attempt, agent), common) for agent in attempt.writes}


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
"""Modes that do not use the tests that may be shown."""


# ------------------------------------------------------------ modes that ask somebody


async def expert_edits(attempt: Attempt, expert: ExpertModel) -> FeedbackText:
    """Ask a model for edits. Each agent reads only the edits for itself."""
    answer = await expert.ask((Message("user", question(attempt)),))
    edits = by_part(answer, tuple(attempt.writes))
    return {
        agent: joined("An expert proposes these edits:", text) if text else ""
        for agent, text in edits.items()
    }


def question(attempt: Attempt) -> str:
    """Build the prompt for the expert."""
    form = ", ".join(f'"{agent}": "..."' for agent in attempt.writes)
    return joined(
        "Several programmers solve one problem together. Each writes one part and does not see "
        "the others' parts. "
        "Propose short, concrete edits for each of them, so that the parts work together and "
        "solve the problem.",
        _whole(attempt),
        "Answer with one JSON object that has the edits of each as text, empty where none are "
        f"needed: {{{form}}}",
    )


async def human(attempt: Attempt, person: Person) -> FeedbackText:
    """Ask a person. A line goes to all agents, a line `agent: text` to that agent."""
    agents = tuple(attempt.writes)
    typed = await person.ask(
        joined(
            _whole(attempt),
            f"Result: {_all_or_not(attempt)}.",
            f"Your feedback? A line is for every agent, a line `{agents[0]}: ...` only for "
            f"{agents[0]}. End with an empty line.",
        )
    )
    return by_line(typed, agents)


def _whole(attempt: Attempt) -> str:
    """The problem, every agent's part, and the results of the tests that may be shown."""
    parts = [
        f"{agent} writes "
        f"{what}:\n{attempt.codes[agent].strip() or attempt.replies[agent].strip() or '(nothing)'}"
        for agent, what in attempt.writes.items()
    ]
    return joined(f"The problem:\n{attempt.problem.strip()}", *parts, results(attempt))


# ------------------------------------------------------------ words

_WORDS: dict[Status, str] = {
    "passed": "Passed",
    "failed": "Failed",
    "timeout": "Took too long",
    "not_run": "Did not run",
}


def results(attempt: Attempt) -> str:
    """Describe the results of the tests that may be shown: the source of each test, and the
    exception if it did not pass. All agents may see it."""
    if attempt.shown is None or attempt.verdict is None:
        return ""
    texts = {case.name: _readable(case.text, attempt.shown) for case in attempt.shown.cases}
    items = []
    for case in attempt.verdict.cases:
        raised = ": ".join(part for part in (case.kind, case.message) if part)
        items.append(f"{_WORDS[case.status]}: {texts[case.name]}\n{raised}")
    if attempt.verdict.failure is not None:
        items.append(
            f"The program did not come to its end ({attempt.verdict.failure}): "
            f"{attempt.verdict.message}"
        )
    return "\n".join(
        [
            "Tests of the whole program:",
            *("- " + item.rstrip().replace("\n", "\n  ") for item in items),
        ]
    )


def _readable(test: str, suite: Suite) -> str:
    """Replace `candidate` by the function's name, which is the name that agents know."""
    if suite.kind != "check" or suite.entry_point is None:
        return test
    return re.sub(r"\bcandidate\b", suite.entry_point, test)


def _all_or_not(attempt: Attempt) -> str:
    return "all tests passed" if attempt.share == 1.0 else "not all tests passed"


def joined(*parts: str) -> str:
    whole = "\n\n".join(part for part in parts if part)
    # an expert or a person may have sent half a surrogate pair, which no tokenizer can encode
    return whole.encode("utf-8", "replace").decode()
