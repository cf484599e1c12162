"""Make mutants of a correct program: change it in one place, as a person might have got it wrong.

A mutation changes the source, not the tree, so names, layout and comments stay as they are. Only
the tests can say whether a mutant is a bug, because some mutants behave like the original. The
kinds of mistakes are in mutation_operators.py.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from codejudge.source import Source
from motet_tasks.rewards.mutation_operators import OPERATORS


@dataclass(frozen=True)
class Mutant:
    """A program with one mistake in it."""

    source: str
    operator: str
    """The kind of mistake, a name in `OPERATORS`."""
    line: int
    """The line of the mistake, from 1. A dropped statement was before this line."""
    original: str
    """The changed lines in the original, without their indentation ..."""
    mutated: str
    """... and in the mutant; an empty string if they are gone."""


def mutants(
    source: str, seed: int, limit: int | None = None, *, first_line: int = 1
) -> list[Mutant]:
    """Return mutants of `source`, at most `limit`, taking the operators in turn.

    No mutant changes a line before `first_line`. The result is deterministic. Every mutant parses,
    and its tree differs from the original's and from every other mutant's.

    Raises:
        ValueError: if `source` is not valid Python, or longer than a Source may be.
    """
    text = Source(source)
    if text.tree is None:
        raise ValueError(f"expected a Python program to mutate, got {source[:60]!r}")
    seen = {ast.dump(text.tree)}
    found: list[Mutant] = []
    for operator, start, end, new in _in_turns(text, first_line, random.Random(seed)):
        if limit is not None and len(found) >= limit:
            break
        changed = source[:start] + new + source[end:]
        tree = Source(changed).tree
        if tree is not None and (dump := ast.dump(tree)) not in seen:
            seen.add(dump)
            found.append(_mutant(text, operator, start, end, changed))
    return found


def _in_turns(
    text: Source, first_line: int, draw: random.Random
) -> Iterator[tuple[str, int, int, str]]:
    """Yield all edits as (operator, start, end, replacement), in shuffled order.

    Operators take turns: one edit of each, then the next of each. So no operator dominates.
    """
    first = text.starts[first_line - 1]
    piles = [
        [(name, *edit) for edit in find(text) if edit[0] >= first]
        for name, find in OPERATORS.items()
    ]
    for pile in piles:
        draw.shuffle(pile)
    draw.shuffle(piles)
    for depth in range(max(map(len, piles))):
        yield from (pile[depth] for pile in piles if depth < len(pile))


def _mutant(text: Source, operator: str, start: int, end: int, changed: str) -> Mutant:
    line = text.line(start)
    begin, stop = text.starts[line - 1], text.end_of_line(max(start, end - 1))
    original = text.text[begin:stop]
    mutated = changed[begin : stop + len(changed) - len(text.text)]
    return Mutant(changed, operator, line, original.strip(), mutated.strip())
