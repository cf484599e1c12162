"""Faults for a program that works: `mutants` changes it in one place, as a person might have got it wrong.

The change is made in the text, not in the tree, so all else stays as it was written: names, layout, comments. Whether a mutant
is a bug only its tests can say; some behave like the original. mutation_operators.py has the ways to go wrong.
"""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass

from motet.rewards.mutation_operators import OPERATORS
from motet.rewards.program_text import ProgramText
from motet.rewards.python import parse_bounded


@dataclass(frozen=True)
class Mutant:
    """A program with one fault in it."""

    source: str
    operator: str
    """What was done, a name of `OPERATORS`."""
    line: int
    """Where it is, from 1; a dropped statement stood before this line."""
    original: str
    """The lines that were changed, without the indentation ..."""
    mutated: str
    """... and what they are now; empty where they are gone."""


def mutants(source: str, seed: int, limit: int | None = None, *, first_line: int = 1) -> list[Mutant]:
    """Mutants of `source`, changed on no line before `first_line`: at most `limit`, the operators taking turns.

    Always the same for the same arguments. Each parses, and no two are the same program, nor is one the original.
    Raises: ValueError where `source` is no Python, or longer than `parse_bounded` reads.
    """
    tree = parse_bounded(source)
    if tree is None:
        raise ValueError(f"expected a Python program to mutate, got {source[:60]!r}")
    text = ProgramText(source, tree)
    seen = {ast.dump(tree)}
    found: list[Mutant] = []
    for operator, start, end, new in _in_turns(text, first_line, random.Random(seed)):
        if limit is not None and len(found) >= limit:
            break
        changed = source[:start] + new + source[end:]
        parsed = parse_bounded(changed)
        if parsed is not None and ast.dump(parsed) not in seen:
            seen.add(ast.dump(parsed))
            found.append(_mutant(text, operator, start, end, changed))
    return found


def _in_turns(text: ProgramText, first_line: int, draw: random.Random) -> Iterator[tuple[str, int, int, str]]:
    """All edits, each with its operator's name: one of every operator, then the next of each, so that none crowds out others."""
    first = text.starts[first_line - 1]
    piles = [[(name, *edit) for edit in find(text) if edit[0] >= first] for name, find in OPERATORS.items()]
    for pile in piles:
        draw.shuffle(pile)
    draw.shuffle(piles)
    for depth in range(max(map(len, piles))):
        yield from (pile[depth] for pile in piles if depth < len(pile))


def _mutant(text: ProgramText, operator: str, start: int, end: int, changed: str) -> Mutant:
    line = text.line(start)
    begin, stop = text.starts[line - 1], text.end_of_line(max(start, end - 1))
    original = text.source[begin:stop]
    mutated = changed[begin : stop + len(changed) - len(text.source)]
    return Mutant(changed, operator, line, original.strip(), mutated.strip())
