"""Read one agent's completion for a class: methods, other class members, and code around the class.

No code runs, and no function here raises an exception. A completion is parsed as a whole if it is
valid Python, otherwise method by method. So methods before a truncated end still count.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent

from codejudge.source import MAX_CHARACTERS, bound_outside, free, parse_bounded
from motet_tasks.rewards.extract import readings
from motet_tasks.rewards.skeleton import Function, Skeleton, keys_of

_DEF = re.compile(r"(?P<indent>[ \t]*)(?:async[ \t]+)?def[ \t]+(?P<name>\w+)")
_IMPORT = re.compile(r"[ \t]*(?:import|from)[ \t]+\S.*")
_METHOD_DECORATORS = frozenset({"staticmethod", "classmethod", "property"})
_MOST_ATTEMPTS = 64
"""Maximum number of parser calls for one completion."""
_MOST_ENDS = 16


@dataclass(frozen=True)
class ClassPart:
    """What one agent's completion contributes to the class."""

    methods: Mapping[str, Function]
    """The methods of the skeleton that the completion defines and that parse; the last of each."""
    named: frozenset[str]
    """Keys of the skeleton that have a `def` line in the completion, whether they parse or not."""
    members: Mapping[str, ast.stmt]
    """Class members that the skeleton does not have: further methods, constants."""
    around: tuple[ast.stmt, ...]
    """Module-level imports, functions, classes and constants."""


def read_part(text: str, skeleton: Skeleton) -> ClassPart:
    """Read the likeliest reading of `text` that defines a method of the class.

    The methods may be in a class or at top level, with any indentation.
    """
    named: ClassPart | None = None
    for reading in readings(text):
        part = _read(reading, skeleton)
        if part.methods:
            return part
        named = named or (part if part.named else None)
    return named or ClassPart({}, frozenset(), {}, ())


def needed(statements: Iterable[ast.stmt], around: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return those of `around` that `statements` need, directly or indirectly, in order.

    Code that uses the class but that no method uses, such as an example at the end, is left out.
    """
    kept = {index for index, statement in enumerate(around) if _is_for_all(statement)}
    names = set().union(*map(free, statements))
    while True:
        more = {
            index for index, statement in enumerate(around) if bound_outside(statement) & names
        } - kept
        if not more:
            return [around[index] for index in sorted(kept)]
        kept |= more
        names |= set().union(*(free(around[index]) for index in more))


def _is_for_all(statement: ast.stmt) -> bool:
    """Test whether to keep an import that binds no visible name.

    Examples: `from __future__ import annotations` and `from math import *`.
    """
    return isinstance(statement, ast.ImportFrom) and (
        statement.module == "__future__" or any(alias.name == "*" for alias in statement.names)
    )


# ---------------------------------------------------------------------------------------- reading


def _read(text: str, skeleton: Skeleton) -> ClassPart:
    keys = {*skeleton.keys, *skeleton.given}
    inside, around = _divided(_statements(text, keys), skeleton.class_name, keys)
    members = {key: member for member in inside for key in keys_of(member)}
    names = {match["name"] for line in text.splitlines() if (match := _DEF.match(line))}
    return ClassPart(
        methods={
            key: member
            for key, member in members.items()
            if key in keys and isinstance(member, Function)
        },
        named=frozenset(key for key in keys if key.partition(".")[0] in names),
        members={key: member for key, member in members.items() if key not in keys},
        around=tuple(around),
    )


def _divided(
    statements: Sequence[ast.stmt], class_name: str, keys: set[str]
) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """Split the statements into class members and code around the class.

    A top-level function is a method if its first parameter or its decorator says so. If the
    completion does not contain the class, a function with a method's name is a method too. A
    statement that needs the class when it runs is an example of its use, and is left out.
    """
    inside: list[ast.stmt] = []
    around: list[ast.stmt] = []
    bare = not any(
        isinstance(statement, ast.ClassDef) and statement.name == class_name
        for statement in statements
    )
    for statement in statements:
        if isinstance(statement, ast.ClassDef) and statement.name == class_name:
            inside += statement.body
        elif isinstance(statement, Function):
            is_method = _is_like_a_method(statement) or (
                bare and not keys.isdisjoint(keys_of(statement))
            )
            (inside if is_method else around).append(statement)
        elif not isinstance(statement, ast.Expr) and class_name not in free(statement):
            around.append(statement)
    return inside, around


def _is_like_a_method(function: Function) -> bool:
    first = [*function.args.posonlyargs, *function.args.args][:1]
    decorators = {node.id for node in function.decorator_list if isinstance(node, ast.Name)}
    return (bool(first) and first[0].arg in ("self", "cls")) or not decorators.isdisjoint(
        _METHOD_DECORATORS
    )


def _statements(text: str, keys: set[str]) -> list[ast.stmt]:
    for whole in dict.fromkeys((dedent(text), dedent(text.expandtabs(4)))):
        tree = parse_bounded(whole)
        if tree is not None:
            return tree.body
    return (
        list(_salvaged(text.expandtabs(4).splitlines(), keys))
        if len(text) <= MAX_CHARACTERS
        else []
    )


def _salvaged(lines: Sequence[str], keys: set[str]) -> Iterator[ast.stmt]:
    """Yield the functions and the one-line imports that are valid Python on their own."""
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
    """Yield the line numbers where a method may end.

    A method may end before a line that is not indented deeper, or before the start of another
    method of the class. That method's indentation can differ if the first line has lost its own. A
    later end is correct if a multi-line string continues past an earlier one.
    """
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
