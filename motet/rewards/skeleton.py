"""The skeleton of a class: which methods are to be written, and a class made of it and of what was written.

Its lines stay as they are. Only the lines of a method that somebody wrote are exchanged, so constructor, constants and the stubs
that nobody filled are there in any case.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from motet.rewards.python import parse_bounded

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_STRAIGHT = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u200b": None})


@dataclass(frozen=True)
class Stub:
    """A method that is to be written."""

    key: str
    """Its name; `x.setter` for the second half of a property."""
    text: str
    """Signature and docstring as they stand in the skeleton, decorators first."""
    parameters: int
    """All of them, `self` too."""
    decorators: tuple[str, ...]
    lines: tuple[int, int]
    """The first of its lines, and the first that is not its own any more."""

    @property
    def indent(self) -> str:
        return self.text[: len(self.text) - len(self.text.lstrip())]


@dataclass(frozen=True)
class Skeleton:
    """A class whose methods are to be written."""

    text: str
    class_name: str
    stubs: tuple[Stub, ...]
    given: frozenset[str]
    """Keys and names that the class has already: its constructor, its constants."""

    @classmethod
    def read(cls, text: str, class_name: str, methods: Mapping[str, str]) -> Self:
        """To be written are `methods` (name -> signature and docstring, in case the skeleton lacks it), and what else has no body
        but a docstring, except the constructor.

        A skeleton that is no Python is mended first: quotes made straight, a text in quotes taken out of them, and a method whose
        docstring does not end written anew. Raises: ValueError saying what is missing.
        """
        text, found = _class_in(text, class_name)
        there = {key for member in found.body for key in keys_of(member)}
        lost = {name: stub for name, stub in methods.items() if name not in there}
        if lost:
            text, found = _class_in(_with_stubs(text, found, lost.values()), class_name)
        members = {key: member for member in found.body for key in keys_of(member)}
        if not members.keys() >= lost.keys():
            raise ValueError(f"class {class_name} has no method {', '.join(lost.keys() - members.keys())}")
        open_keys = [
            key
            for key, member in members.items()
            if isinstance(member, Function) and (key in methods or (key != "__init__" and _is_empty(member)))
        ]
        if not open_keys:
            raise ValueError(f"class {class_name} has no method without a body, so there is nothing to write")
        lines = text.split("\n")
        stubs = tuple(_stub(key, members[key], lines) for key in open_keys)
        return cls(text, class_name, stubs, frozenset(members) - set(open_keys))

    @property
    def keys(self) -> tuple[str, ...]:
        """What is to be written, in the order of the skeleton."""
        return tuple(stub.key for stub in self.stubs)

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    def fill(self, methods: Mapping[str, str], members: Sequence[str], before: Sequence[str]) -> str:
        """The class with `methods` in place of their stubs, `members` at its end, and the statements `before` above it."""
        lines = self.text.split("\n")
        (found,) = _classes(self.tree, self.class_name)
        end = found.end_lineno or len(lines)
        lines[end:end] = [line for member in members for line in ["", *_indented(member, self.stubs[0].indent)]]
        for stub in sorted(self.stubs, key=lambda stub: stub.lines, reverse=True):
            if stub.key in methods:
                lines[slice(*stub.lines)] = _indented(methods[stub.key], stub.indent)
        above = _first_line(found) - 1
        lines[above:above] = [statement for statement in before if not _is_future(statement)]
        lines[:0] = filter(_is_future, before)
        return "\n".join(lines)


def keys_of(member: ast.stmt) -> Iterator[str]:
    """What a statement of a class body defines."""
    match member:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            written = (d for d in member.decorator_list if isinstance(d, ast.Attribute))
            role = next((d.attr for d in written if isinstance(d.value, ast.Name) and d.value.id == name), None)
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
        case [ast.Raise(exc=ast.Name(id="NotImplementedError") | ast.Call(func=ast.Name(id="NotImplementedError")))]:
            return True
    return False


def _is_future(statement: str) -> bool:
    """These have to stand first of all."""
    return statement.startswith("from __future__ ")


def _with_stubs(text: str, found: ast.ClassDef, stubs: Iterable[str]) -> str:
    lines = text.split("\n")
    indent = " " * found.body[0].col_offset
    added = [line for stub in stubs for line in ["", *_mended(indent + stub.strip() + "\n").split("\n")]]
    return "\n".join([*lines[: found.end_lineno], *added, *lines[found.end_lineno :]])


def _indented(text: str, indent: str) -> list[str]:
    return [indent + line if line else line for line in text.split("\n")]


# ---------------------------------------------------------------------------------------------------- mending


def _class_in(text: str, class_name: str) -> tuple[str, ast.ClassDef]:
    """The text that parses, and the class in it. ValueError where no mending helps."""
    for mended in (text, text.translate(_STRAIGHT), _rewritten(text.translate(_STRAIGHT))):
        tree = parse_bounded(mended)
        if tree is not None and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
            mended = ast.get_docstring(tree, clean=False) or ""
            tree = parse_bounded(mended)
        if tree is None:
            continue
        found = _classes(tree, class_name)
        if len(found) != 1:
            there = ", ".join(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)) or "none"
            raise ValueError(f"expected one class {class_name}, got {there}")
        return mended, found[0]
    raise ValueError("it is no Python")


def _classes(tree: ast.Module, name: str) -> list[ast.ClassDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]


_DEF = re.compile(r"^[ \t]*(?:async +)?def ", re.MULTILINE)
_HEAD = re.compile(r"(?P<head>[ \t]*(?:async +)?def .*?\)[^\n]*?:)[ \t]*\n(?P<rest>.*)", re.DOTALL)


def _rewritten(text: str) -> str:
    """Every method that is no Python by itself becomes its signature and a docstring of what came after it."""
    starts = [match.start() for match in _DEF.finditer(text)]
    pieces = [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]
    return "".join([pieces[0], *map(_mended, pieces[1:])])


def _mended(piece: str) -> str:
    body, decorators = _without_next_decorators(piece)
    match = _HEAD.match(body)
    if match is None or parse_bounded("class _:\n" + body) is not None or parse_bounded(body) is not None:
        return piece
    head = match["head"]
    indent = head[: len(head) - len(head.lstrip())] + "    "
    words = match["rest"].strip().strip("\"'").strip().replace("\\", "\\\\").replace('"""', "'''")
    return f'{head}\n{indent}"""\n{indent}{words}\n{indent}"""\n\n{decorators}'


def _without_next_decorators(piece: str) -> tuple[str, str]:
    """A piece goes on to the next `def`, so what decorates that one stands at its end."""
    own = piece.rstrip()
    while own.rpartition("\n")[2].lstrip().startswith("@"):
        own = own.rpartition("\n")[0].rstrip()
    return own + "\n", piece[len(own) :].lstrip("\n")
