"""Score a review and a repair.

Rules find the lines that a review names, and compare them with the faulty lines.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TypeAlias

from codejudge.suite import Suite
from motet.settings import Settings
from motet_tasks.rewards.code import Judge, Note, Program

_SPAN = r"(\d+)(?:\s*(?:-|–|—|to|through)\s*(\d+))?"
_ONE = _SPAN.replace("(\\d+)", "\\d+")
_NUMBERED = re.compile(
    rf"\bline(?:\s+number)?\b[\s#:*`]*({_ONE})"
    rf"|\blines(?:\s+numbers?)?\b[\s#:*`]*({_ONE}(?:(?:\s*(?:,|&|\band\b|\bor\b))+\s*{_ONE})*)",
    re.IGNORECASE,
)
"""Line 3, line number 3, lines 3-5, lines 2, 3 and 5."""
_MOST_NAMED = 1000
"""Maximum number of lines that one range, such as "lines 1 to 1000000", can name."""
_SHORTEST_QUOTE = 4
"""Minimum length of a quoted line. A shorter one, such as `)` or `x`, occurs in many sentences."""
Lines: TypeAlias = frozenset[int]
"""Line numbers, from 1."""


class RepairWeights(Settings):
    """The weight of each term in the level of an attempt."""

    located: float = 0.5
    """The fraction of the lines named by the review that are at fault."""
    parses: float = 0.5
    """Whether the repair defines the function and can be compiled."""
    tests_passed: float = 1.0
    """The fraction of the grading tests that pass. The faulty program may already pass some."""
    success: float = 1.0
    """Whether all grading tests pass."""
    kept: float = 0.0
    """The fraction of the faulty program's lines that the repair leaves unchanged."""


def faulty_lines(program: str, solution: str) -> Lines:
    """Return the lines of `program` that differ in `solution`.

    If `program` lacks lines, the two lines around the gap are at fault.
    """
    wrong, right = program.splitlines(), solution.splitlines()
    found: set[int] = set()
    for kind, start, end, _, _ in SequenceMatcher(None, wrong, right, autojunk=False).get_opcodes():
        if kind in ("replace", "delete"):
            found |= set(range(start + 1, end + 1))
        elif kind == "insert":
            found |= {start, start + 1} & set(range(1, len(wrong) + 1))
    return frozenset(found)


def named_lines(review: str, program: str, faulty: Lines = frozenset()) -> Lines:
    """Return the lines of `program` that a review names.

    A review names a line by number ("line 3", "lines 3-5") or by quoting all of it. A quoted text
    may occur on several lines. If the review numbers none of them, the first faulty one counts, or
    else the first.
    """
    named = set(_numbered(review))
    places: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(program.splitlines(), start=1):
        places[" ".join(line.split())].append(number)
    rest = " ".join(review.split())
    # longest first: a line that is part of a longer quoted line is not meant
    for text in sorted(places, key=len, reverse=True):
        if len(text) < _SHORTEST_QUOTE:
            break
        shorter = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", " ", rest)
        if shorter != rest and named.isdisjoint(places[text]):
            named.add(min(faulty.intersection(places[text]) or places[text]))
        rest = shorter
    return frozenset(named)


def _numbered(review: str) -> Iterable[int]:
    for found in _NUMBERED.finditer(review):
        for first, last in re.findall(_SPAN, found[1] or found[2]):
            start = int(first[:9])
            yield from range(start, min(int(last[:9] or start), start + _MOST_NAMED) + 1)


def located(review: str, program: str, faulty: Lines) -> float:
    """Return the fraction of the lines named by a review that are at fault; 0 if it names none.

    So naming every line does not pay.
    """
    named = named_lines(review, program, faulty)
    return len(named & faulty) / len(named) if named else 0.0


def kept(program: str, repaired: str) -> float:
    """Return the fraction of the lines of `program` that the repaired one still has, in order."""
    before, after = program.splitlines(), repaired.splitlines()
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / len(before) if before else 1.0


def weighed(terms: Mapping[str, float], weights: RepairWeights) -> float:
    """Return the weighted sum of the terms."""
    by_name = weights.model_dump()
    return float(sum(by_name[name] * value for name, value in terms.items()))


@dataclass(frozen=True)
class RepairScore:
    """The score of an attempt, with reasons."""

    success: bool
    """Whether all tests passed."""
    terms: Mapping[str, float]
    """The terms of the repair itself: every term of RepairWeights except `located`."""
    notes: Sequence[Note]
    """Findings about the repair, up to the first failed check."""


async def score_repair(program: Program, buggy: str, suite: Suite, sandbox: Judge) -> RepairScore:
    """Run the tests if the repair is a function that parses. A timeout is a failed test.

    Raises SandboxFault.
    """
    name, error = program.entry_point, program.main.error
    defined = program.defined[name]
    notes = [
        (defined, f"`{name}` is {'defined' if defined else 'not defined, or returns nothing'}")
    ]
    verdict = None
    if defined:
        verdict = None if error else await sandbox.judge(program.sources, suite)
        # the compiler reports some errors that the parser does not
        if verdict is not None and verdict.failure == "syntax":
            error, verdict = verdict.message, None
        notes.append(
            (
                not error,
                f"the program cannot be read: {error}" if error else "the program can be read",
            )
        )
    success = verdict is not None and verdict.passed
    terms = {
        "parses": float(verdict is not None),
        "tests_passed": verdict.share if verdict is not None else 0.0,
        "success": float(success),
        "kept": kept(buggy, program.main.text) if verdict is not None else 0.0,
    }
    return RepairScore(success, terms, tuple(notes))
