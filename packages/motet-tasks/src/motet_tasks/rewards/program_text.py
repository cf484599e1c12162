"""A program as source and tree: the position of each node, and the nodes that may be changed."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_NEWLINE = re.compile(r"\r\n|\r|\n")
_UNTOUCHED = ("annotation", "returns", "decorator_list")
"""Fields of a node that are never mutated: they do not affect the run, or affect too much."""
_BETWEEN = r"(?:[\s()\\]|#[^\r\n]*)*"
"""What may be between two operands besides their operator."""


@dataclass(frozen=True)
class ProgramText:
    """A source and its tree. Offsets count characters."""

    source: str
    tree: ast.Module

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset at which each line starts."""
        return (0, *(match.end() for match in _NEWLINE.finditer(self.source)))

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node that may be changed."""
        return tuple(changeable(self.tree))

    def line(self, offset: int) -> int:
        """Return the number, from 1, of the line that contains `offset`."""
        return sum(start <= offset for start in self.starts)

    def end_of_line(self, offset: int) -> int:
        """Return the offset after the last character of that line, before its newline."""
        match = _NEWLINE.search(self.source, offset)
        return match.start() if match else len(self.source)

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(
            node.end_lineno, node.end_col_offset
        )

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.source[start:end]

    def symbol(self, left: ast.expr, symbol: str) -> tuple[int, int]:
        """Return the span of the operator `symbol` after its left operand."""
        pattern = re.compile(_BETWEEN + "(" + r"\s+".join(map(re.escape, symbol.split())) + ")")
        match = pattern.match(self.source, self.span(left)[1])
        assert match is not None
        return match.span(1)

    def _offset(self, line: int, column: int) -> int:
        """Return the offset of a position. `column` counts UTF-8 bytes, as the parser does."""
        start = self.starts[line - 1]
        return start + len(self.source[start : self.end_of_line(start)].encode()[:column].decode())


def changeable(node: ast.AST, *, nested: bool = True) -> Iterator[ast.AST]:
    """Yield `node` and the nodes below it that may be changed.

    Annotations, return annotations, decorators, docstrings, patterns and f-strings are left out:
    positions in f-strings are not exact. Functions and classes below `node` are included only if
    `nested`.
    """
    if isinstance(node, ast.JoinedStr | ast.pattern) or is_docstring(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name in _UNTOUCHED:
            continue
        for child in value if isinstance(value, list) else [value]:
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if isinstance(child, ast.AST) and (nested or not inner):
                yield from changeable(child, nested=nested)


def is_docstring(node: ast.AST) -> bool:
    """Test whether the statement is a bare constant, which has no effect."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
