"""The skeleton of a class: find the methods to write, and fill them in.

All lines of the skeleton stay, except those of a method that was written. So the constructor, the
constants and the unfilled stubs are always there.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

from codejudge.source import parse_bounded

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_STRAIGHT = str.maketrans(
    {"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u200b": None}
)


@dataclass(frozen=True)
class Stub:
    """A method to write."""

    key: str
    """The method's name; `x.setter` for the second half of a property."""
    text: str
    """Decorators, signature and docstring, as in the skeleton."""
    parameters: int
    """Number of parameters, including `self`."""
    decorators: tuple[str, ...]
    lines: tuple[int, int]
    """Index of its first line, and of the first line after it."""

    @property
    def indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip())]


@dataclass(frozen=True)
class Skeleton:
    """A class with methods to write."""

    text: str
    class_name: str
    stubs: tuple[Stub, ...]
    given: frozenset[str]
    """Keys and names that the class already has: its constructor, its constants."""

    @classmethod
    def read(cls, text: str, class_name: str, methods: Mapping[str, str]) -> Self:
        """Read a skeleton and find the methods to write.

        These are `methods` (name -> signature and docstring, in case the skeleton lacks it), and
        all other methods except the constructor that have no body but a docstring.

        A skeleton that is not valid Python is repaired first. Typographic quotes are replaced, a
        skeleton inside a string is taken out of it, and a method whose docstring does not end is
        rewritten.

        Raises:
            ValueError: if something is missing. The message says what.
        """
        text, found = _class_in(text, class_name)
        there = {key for member in found.body for key in keys_of(member)}
        lost = {name: stub for name, stub in methods.items() if name not in there}
        if lost:
            text, found = _class_in(_with_stubs(text, found, lost.values()), class_name)
        members = {key: member for member in found.body for key in keys_of(member)}
        if not members.keys() >= lost.keys():
            raise ValueError(
                f"class {class_name} has no method {', '.join(lost.keys() - members.keys())}"
            )
        open_keys = [
            key
            for key, member in members.items()
            if isinstance(member, Function)
            and (key in methods or (key != "__init__" and _is_empty(member)))
        ]
        if not open_keys:
            raise ValueError(
                f"class {class_name} has no method without a body; expected at least one for the "
                "agents to write"
            )
        lines = text.split("\n")
        stubs = tuple(_stub(key, members[key], lines) for key in open_keys)
        return cls(text, class_name, stubs, frozenset(members) - set(open_keys))

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the methods to write, in the order of the skeleton."""
        return tuple(stub.key for stub in self.stubs)

    @cached_property
    def tree(self) -> ast.Module:
        """Nobody may change it."""
        return ast.parse(self.text)

    def fill(
        self, methods: Mapping[str, str], members: Sequence[str], before: Sequence[str]
    ) -> str:
        """Return the class with `methods` in place of their stubs.

        `members` are added at the end of the class, and the statements `before` above it.
        """
        lines = self.text.split("\n")
        (found,) = _classes(self.tree, self.class_name)
        end = found.end_lineno or len(lines)
        lines[end:end] = [
            line for member in members for line in ["", *_indented(member, self.stubs[0].indent)]
        ]
        for stub in sorted(self.stubs, key=lambda stub: stub.lines, reverse=True):
            if stub.key in methods:
                lines[slice(*stub.lines)] = _indented(methods[stub.key], stub.indent)
        above = _first_line(found) - 1
        lines[above:above] = [statement for statement in before if not _is_future(statement)]
        lines[:0] = filter(_is_future, before)
        return "\n".join(lines)


def keys_of(member: ast.stmt) -> Iterator[str]:
    """Yield the keys that a statement of a class body defines."""
    match member:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            written = (d for d in member.decorator_list if isinstance(d, ast.Attribute))
            role = next(
                (d.attr for d in written if isinstance(d.value, ast.Name) and d.value.id == name),
                None,
            )
            yield f"{name}.{role}" if role else name
        case ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _stub(key: str, method: ast.stmt, lines: Sequence[str]) -> Stub:
    assert isinstance(method, Function)
    first, last = _first_line(method) - 1, method.end_lineno or method.lineno
    arguments = method.args
    counted = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return Stub(
        key=key,
        text="\n".join(lines[first:last]),
        parameters=len(counted) + (arguments.vararg is not None) + (arguments.kwarg is not None),
        decorators=tuple(map(ast.unparse, method.decorator_list)),
        lines=(first, last),
    )


def _first_line(node: Function | ast.ClassDef) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _is_empty(method: Function) -> bool:
    body = method.body[1:] if ast.get_docstring(method, clean=False) is not None else method.body
    match body:
        case [] | [ast.Pass() | ast.Expr(value=ast.Constant())]:
            return True
        case [
            ast.Raise(
                exc=ast.Name(id="NotImplementedError")
                | ast.Call(func=ast.Name(id="NotImplementedError"))
            )
        ]:
            return True
    return False


def _is_future(statement: str) -> bool:
    """Test for a `__future__` import, which must come first in the file."""
    return statement.startswith("from __future__ ")


def _with_stubs(text: str, found: ast.ClassDef, stubs: Iterable[str]) -> str:
    lines = text.split("\n")
    indent = " " * found.body[0].col_offset
    added = [
        line for stub in stubs for line in ["", *_mended(indent + stub.strip() + "\n").split("\n")]
    ]
    return "\n".join([*lines[: found.end_lineno], *added, *lines[found.end_lineno :]])


def _indented(text: str, indent: str) -> list[str]:
    return [indent + line if line else line for line in text.split("\n")]


# --------------------------------------------------------------------------- repairing a skeleton


def _class_in(text: str, class_name: str) -> tuple[str, ast.ClassDef]:
    """Return the source, repaired if necessary, and the class in it.

    Raises:
        ValueError: if no repair helps, or the source has no such class.
    """
    for mended in (text, text.translate(_STRAIGHT), _rewritten(text.translate(_STRAIGHT))):
        tree = parse_bounded(mended)
        if tree is not None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
            mended = ast.get_docstring(tree, clean=False) or ""
            tree = parse_bounded(mended)
        if tree is None:
            continue
        found = _classes(tree, class_name)
        if len(found) != 1:
            there = (
                ", ".join(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
                or "none"
            )
            raise ValueError(f"expected one class {class_name}, got {there}")
        return mended, found[0]
    raise ValueError("it is not valid Python")


def _classes(tree: ast.Module, name: str) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]


_DEF = re.compile(r"^[ \t]*(?:async +)?def ", re.MULTILINE)
_HEAD = re.compile(r"(?P<head>[ \t]*(?:async +)?def .*?\)[^\n]*?:)[ \t]*\n(?P<rest>.*)", re.DOTALL)


def _rewritten(text: str) -> str:
    """Replace each method that does not parse by its signature, with the rest as its docstring."""
    starts = [match.start() for match in _DEF.finditer(text)]
    pieces = [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]
    return "".join([pieces[0], *map(_mended, pieces[1:])])


def _mended(piece: str) -> str:
    body, decorators = _without_next_decorators(piece)
    match = _HEAD.match(body)
    if (
        match is None
        or parse_bounded("class _:\n" + body) is not None
        or parse_bounded(body) is not None
    ):
        return piece
    head = match["head"]
    indent = head[: len(head) - len(head.lstrip())] + "    "
    words = match["rest"].strip().strip("\"'").strip().replace("\\", "\\\\").replace('"""', "'''")
    return f'{head}\n{indent}"""\n{indent}{words}\n{indent}"""\n\n{decorators}'


def _without_next_decorators(piece: str) -> tuple[str, str]:
    """Split off decorators at the end of a piece, which belong to the next `def`."""
    own = piece.rstrip()
    while own.rpartition("\n")[2].lstrip().startswith("@"):
        own = own.rpartition("\n")[0].rstrip()
    return own + "\n", piece[len(own) :].lstrip("\n")
