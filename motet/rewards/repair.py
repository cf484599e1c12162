"""What a review and a repair are worth. A review is read by rule: which lines does it name, and are they at fault?"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeAlias

from motet.rewards.code import Judge, Note, Program, returns_value
from motet.rewards.python import syntax_error
from motet.sandbox.suite import Suite
from motet.settings import Settings

_NUMBERED = re.compile(r"\blines?\b[\s#:*`]*(\d+)(?:\s*(?:-|–|to)\s*(\d+))?", re.IGNORECASE)
_MOST_NAMED = 1000
"""Of "lines 1 to 1000000" no more are counted."""
_SHORTEST_QUOTE = 4
"""`)` and `x` stand in many a sentence; a line with fewer characters is named by its number only."""
Lines: TypeAlias = frozenset[int]
"""Numbers of lines, from 1."""


class Weights(Settings):
    """What each term of an attempt adds to its level."""

    located: float = 0.5
    """Of the lines that the review names, the share at fault."""
    parses: float = 0.5
    """The repair is the function, and it can be compiled."""
    tests_passed: float = 1.0
    """The share of the grading tests that pass. The faulty program may have some of it already."""
    success: float = 1.0
    """All of them pass."""
    kept: float = 0.0
    """The share of the faulty program's lines that the repair leaves as they were."""


def faulty_lines(program: str, solution: str) -> Lines:
    """The lines of `program` that `solution` has otherwise. Where it lacks lines, the two that they would stand between."""
    wrong, right = program.splitlines(), solution.splitlines()
    found: set[int] = set()
    for kind, start, end, _, _ in SequenceMatcher(None, wrong, right, autojunk=False).get_opcodes():
        if kind in ("replace", "delete"):
            found |= set(range(start + 1, end + 1))
        elif kind == "insert":
            found |= {start, start + 1} & set(range(1, len(wrong) + 1))
    return frozenset(found)


def named_lines(review: str, program: str, faulty: Lines = frozenset()) -> Lines:
    """The lines of `program` that a review names: by number ("line 3", "lines 3-5"), or by quoting the whole of one.

    A text that stands on several lines, of which the review numbers none, is taken for the one at fault, or for the first.
    """
    named = set(_numbered(review))
    places: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(program.splitlines(), start=1):
        places[" ".join(line.split())].append(number)
    rest = " ".join(review.split())
    for text in sorted(places, key=len, reverse=True):  # a line within a longer one that is quoted is not meant
        if len(text) < _SHORTEST_QUOTE:
            break
        shorter = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", " ", rest)
        if shorter != rest and named.isdisjoint(places[text]):
            named.add(min(faulty.intersection(places[text]) or places[text]))
        rest = shorter
    return frozenset(named)


def _numbered(review: str) -> Iterable[int]:
    for first, last in _NUMBERED.findall(review):
        start = int(first[:9])
        yield from range(start, min(int(last[:9] or start), start + _MOST_NAMED) + 1)


def located(review: str, program: str, faulty: Lines) -> float:
    """Of the lines that a review names, the share at fault; 0 where it names none. So naming all of them is no way out."""
    named = named_lines(review, program, faulty)
    return len(named & faulty) / len(named) if named else 0.0


def kept(program: str, repaired: str) -> float:
    """The share of the lines of `program` that the repaired one still has, in order."""
    before, after = program.splitlines(), repaired.splitlines()
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / len(before) if before else 1.0


def weighed(terms: Mapping[str, float], weights: Weights) -> float:
    """The sum of the terms, each with its weight."""
    by_name = weights.model_dump()
    return float(sum(by_name[name] * value for name, value in terms.items()))


@dataclass(frozen=True)
class RepairScore:
    """What an attempt is worth, and why."""

    terms: Mapping[str, float]
    """What the repair itself earns: every term of Weights but `located`."""
    notes: Sequence[Note]
    """What was found of the repair, as far as it got."""


async def score_repair(program: Program, buggy: str, suite: Suite, sandbox: Judge) -> RepairScore:
    """Runs the tests where the repair is a function that parses. A time-out is a failed test. Raises: SandboxFault."""
    name, code = program.entry_point, program.main
    error = syntax_error(code) if code else ""
    defined = returns_value(code, name)
    notes = [(defined, f"`{name}` is {'defined' if defined else 'not defined, or returns nothing'}")]
    verdict = None
    if defined:
        verdict = None if error else await sandbox.judge(program.sources, suite)
        if verdict is not None and verdict.failure == "syntax":  # what the compiler sees and the parser does not
            error, verdict = verdict.message, None
        notes.append((not error, f"the program cannot be read: {error}" if error else "the program can be read"))
    terms = {
        "parses": float(verdict is not None),
        "tests_passed": verdict.share if verdict is not None else 0.0,
        "success": float(verdict is not None and verdict.passed),
        "kept": kept(buggy, code) if verdict is not None else 0.0,
    }
    return RepairScore(terms, tuple(notes))
