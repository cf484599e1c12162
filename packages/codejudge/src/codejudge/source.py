"""Static analysis of Python that a model wrote.

Parsing it is safe in this process. Running it is not: that is the sandbox's task.
"""

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

MAX_CHARACTERS = 16_384
"""Longer sources are not parsed: the tree takes a hundred times the size of its source."""
_LONG_NUMBER = re.compile(r"0[xXoObB][0-9a-fA-F_]{3500}")
"""May be an integer that Python reads, but cannot write in decimal (sys.get_int_max_str_digits)."""
_NEWLINE = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Source:
    """A text of Python, which is parsed at most once: when its tree or error is first read.

    All readers share the tree, so nobody may change it. Offsets count characters.
    """

    text: str

    @cached_property
    def _parsed(self) -> ast.Module | str:
        return _parse(self.text)

    @property
    def tree(self) -> ast.Module | None:
        """The tree; None if the text is not Python, too long, or nested too deeply."""
        return None if isinstance(self._parsed, str) else self._parsed

    @property
    def error(self) -> str:
        """In one line, why there is no tree; "" if there is one."""
        return self._parsed if isinstance(self._parsed, str) else ""

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset at which each line starts."""
        return (0, *(match.end() for match in _NEWLINE.finditer(self.text)))

    def line(self, offset: int) -> int:
        """Return the number, from 1, of the line that contains `offset`."""
        return sum(start <= offset for start in self.starts)

    def end_of_line(self, offset: int) -> int:
        """Return the offset after the last character of that line, before its newline."""
        match = _NEWLINE.search(self.text, offset)
        return match.start() if match else len(self.text)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return the offsets of the first character of a node of the tree, and after its last."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(
            node.end_lineno, node.end_col_offset
        )

    def of(self, node: ast.expr | ast.stmt) -> str:
        """Return the text of a node of the tree."""
        start, end = self.span(node)
        return self.text[start:end]

    def _offset(self, line: int, column: int) -> int:
        """Return the offset of a position. `column` counts UTF-8 bytes, as the parser does."""
        start = self.starts[line - 1]
        return start + len(self.text[start : self.end_of_line(start)].encode()[:column].decode())


def parse_bounded(text: str) -> ast.Module | None:
    """Return a tree of its own for `text`; None if `Source(text)` has none."""
    return Source(text).tree


def _parse(text: str) -> ast.Module | str:
    if len(text) > MAX_CHARACTERS:
        return f"{len(text)} characters, more than the {MAX_CHARACTERS} that are read"
    try:
        with warnings.catch_warnings():  # a model's `\d` must not warn the user
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
        if _LONG_NUMBER.search(text):
            ast.unparse(tree)  # a ValueError, as Python raises it for a decimal one
        return tree
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    # this MemoryError means that the parser's stack is full, not the machine's memory
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error) or "nested too deeply"


def definition(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """Return the last top-level `def name`, which is the one that counts."""
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def returns(function: ast.FunctionDef) -> bool:
    """Test whether the function itself returns or yields a value; nested functions do not count."""
    return any(
        (isinstance(node, ast.Return) and node.value is not None)
        or isinstance(node, ast.Yield | ast.YieldFrom)
        for node in own_nodes(function)
    )


def own_nodes(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without those in nested functions and classes."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def calls(tree: ast.AST, name: str) -> bool:
    """Test whether `name(...)` occurs anywhere in the tree, reachable or not."""
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(function, ast.Name) and function.id == name for function in called)


def packages_of(tree: ast.AST) -> set[str]:
    """Return the packages outside the standard library that are imported, except inside a `try`."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            found.add(node.module.partition(".")[0])
        elif not isinstance(node, ast.Try):
            waiting += ast.iter_child_nodes(node)
    return found - sys.stdlib_module_names


def binds(tree: ast.Module, name: str) -> bool:
    """Test whether the tree binds `name` anywhere.

    It can do so by def, class, assignment, argument, import or capture.
    If a program calls `name` without binding it, it can only mean another agent's function.
    """
    return any(name in _bound(node) for node in ast.walk(tree))


def bound_outside(statement: ast.stmt) -> set[str]:
    """Return the names that a top-level statement binds outside functions and classes."""
    found: set[str] = set()
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        found.update(name for name in _bound(node) if name)
        if isinstance(node, ast.comprehension):  # its target is local to it
            waiting += [node.iter, *node.ifs]
        elif not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
        ):
            waiting += ast.iter_child_nodes(node)
    return found


def free(statement: ast.stmt) -> set[str]:
    """Return the names that a statement reads but does not bind, and those it declares global."""
    nodes = list(ast.walk(statement))
    read = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    declared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    bound = {name for node in nodes if node is not statement for name in _bound(node)}
    return (read - bound) | declared


def _bound(node: ast.AST) -> tuple[str | None, ...]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
            return (name,)
        case ast.alias(name=name, asname=asname):
            return (asname or name.partition(".")[0],)
        case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
            return (name,)
        case ast.MatchMapping(rest=name):
            return (name,)
    return ()


def normalised(program: str) -> str | None:
    """Return a program without layout, comments and docstrings; None if it cannot be parsed."""
    tree = parse_bounded(program)
    if tree is None:
        return None
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            node.body = node.body[1:] or [ast.Pass()]
    try:
        return ast.dump(tree)
    except RecursionError:  # the parser could make this tree, but Python cannot walk it
        return program
