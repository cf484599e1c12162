"""What one agent's text has for a class: methods, what else it puts into the class, and what it brings along around it.

Nothing is run and nothing raises: a text is parsed as a whole where it is Python, else method by method, so what comes before an
answer was cut off still counts.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent

from motet.rewards.extract import readings
from motet.rewards.python import MAX_CHARACTERS, bound_outside, free, parse_bounded
from motet.rewards.skeleton import Function, Skeleton, keys_of

_DEF = re.compile(r"(?P<indent>[ \t]*)(?:async[ \t]+)?def[ \t]+(?P<name>\w+)")
_IMPORT = re.compile(r"[ \t]*(?:import|from)[ \t]+\S.*")
_METHOD_DECORATORS = frozenset({"staticmethod", "classmethod", "property"})
_MOST_ATTEMPTS = 64
"""Bounds how often one text is parsed."""
_MOST_ENDS = 16


@dataclass(frozen=True)
class Part:
    """One agent's text, as far as it is about the class."""

    methods: Mapping[str, Function]
    """Every method of the skeleton that it defines so that it parses; the last definition of each."""
    named: frozenset[str]
    """Keys of the skeleton whose `def` stands in it, whether it parses or not."""
    members: Mapping[str, ast.stmt]
    """What it puts into the class that the skeleton does not have: further methods, constants."""
    around: tuple[ast.stmt, ...]
    """Imports, functions, classes and constants of its module."""


def read_part(text: str, skeleton: Skeleton) -> Part:
    """The likeliest reading of `text` that defines a method of the class, whatever its indentation, in a class or bare."""
    parts = [_read(reading, skeleton) for reading in readings(text)]
    found = [part for part in parts if part.methods] or [part for part in parts if part.named]
    return found[0] if found else Part({}, frozenset(), {}, ())


def needed(statements: Iterable[ast.stmt], around: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Those of `around` that give `statements` the names they use, or that these need in turn; in order.

    What uses the class but is used by none of its methods, such as an example at the end, is left out.
    """
    kept = {index for index, statement in enumerate(around) if _is_for_all(statement)}
    names = set().union(*map(free, statements))
    while True:
        more = {index for index, statement in enumerate(around) if bound_outside(statement) & names} - kept
        if not more:
            return [around[index] for index in sorted(kept)]
        kept |= more
        names |= set().union(*(free(around[index]) for index in more))


def _is_for_all(statement: ast.stmt) -> bool:
    """`from __future__ import annotations` and `from math import *` say no name that could be looked for."""
    return isinstance(statement, ast.ImportFrom) and (
        statement.module == "__future__" or any(alias.name == "*" for alias in statement.names)
    )


# ---------------------------------------------------------------------------------------------------- reading


def _read(text: str, skeleton: Skeleton) -> Part:
    keys = {*skeleton.keys, *skeleton.given}
    inside, around = _divided(_statements(text, keys), skeleton.class_name, keys)
    members = {key: member for member in inside for key in keys_of(member)}
    names = {match["name"] for line in text.splitlines() if (match := _DEF.match(line))}
    return Part(
        methods={key: member for key, member in members.items() if key in keys and isinstance(member, Function)},
        named=frozenset(key for key in keys if key.partition(".")[0] in names),
        members={key: member for key, member in members.items() if key not in keys},
        around=tuple(around),
    )


def _divided(statements: Sequence[ast.stmt], class_name: str, keys: set[str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """What belongs into the class, and what stands around it.

    A bare function is a method by its first parameter or its decorator, and where the class itself is not there, by its name.
    What needs the class as soon as it is run is an example of its use, and left out.
    """
    inside: list[ast.stmt] = []
    around: list[ast.stmt] = []
    bare = not any(isinstance(statement, ast.ClassDef) and statement.name == class_name for statement in statements)
    for statement in statements:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            inside += statement.body
        elif isinstance(statement, Function):
            is_method = _is_like_a_method(statement) or (bare and not keys.isdisjoint(keys_of(statement)))
            (inside if is_method else around).append(statement)
        elif not isinstance(statement, ast.Expr) and class_name not in free(statement):
            around.append(statement)
    return inside, around


def _is_like_a_method(function: Function) -> bool:
    first = [*function.args.posonlyargs, *function.args.args][:1]
    decorators = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    return (bool(first) and first[0].arg in ("self", "cls")) or not decorators.isdisjoint(_METHOD_DECORATORS)


def _statements(text: str, keys: set[str]) -> list[ast.stmt]:
    for whole in (dedent(text), dedent(text.expandtabs(4))):
        tree = parse_bounded(whole)
        if tree is not None:
            return tree.body
    return list(_salvaged(text.expandtabs(4).splitlines(), keys)) if len(text) <= MAX_CHARACTERS else []


def _salvaged(lines: Sequence[str], keys: set[str]) -> Iterator[ast.stmt]:
    """The functions, and the imports of one line, that are Python by themselves."""
    attempts, at = _MOST_ATTEMPTS, 0
    while at < len(lines) and attempts > 0:
        following = at + 1
        if _IMPORT.fullmatch(lines[at]):
            attempts -= 1
            tree = parse_bounded(lines[at].strip())
            yield from tree.body if tree is not None else []
        elif match := _DEF.match(lines[at]):
            start = _with_decorators(lines, at)
            for end in _ends(lines, at, len(match["indent"]), keys):
                attempts -= 1
                tree = parse_bounded(dedent("\n".join(lines[start:end])))
                if tree is not None and len(tree.body) == 1:
                    yield from tree.body
                    following = end
                    break
        at = following


def _with_decorators(lines: Sequence[str], at: int) -> int:
    while at > 0 and lines[at - 1].lstrip().startswith("@"):
        at -= 1
    return at


def _ends(lines: Sequence[str], start: int, column: int, keys: set[str]) -> Iterator[int]:
    """Where a method may end: before a line that is indented no deeper, or that begins another method of the class, whose
    indentation differs where the first line has lost its own. A later end is right where a text in quotes goes on."""
    count = 0
    for at in range(start + 1, len(lines)):
        stripped = lines[at].lstrip()
        match = _DEF.match(lines[at])
        begins = stripped.startswith("@") or (match is not None and match["name"] in keys)
        if stripped and (len(lines[at]) - len(stripped) <= column or begins):
            yield at
            count += 1
            if count == _MOST_ENDS:
                return
    yield len(lines)
