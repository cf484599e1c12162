"""Extract the Python code from a completion. It always returns a string, and never runs any code.

Kept: imports, functions, classes, assignments, and code that fills a table which a function reads.
Dropped: thoughts, prose, fences, chat markers, REPL prompts, and the statements beside the
functions that print or test (prints, calls, asserts, `if __name__` blocks). The text of a function
stays unchanged. If the wanted name is only a method, a function that calls the method is added to
the class.
"""

import ast
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain, islice
from textwrap import dedent, indent

from codejudge.source import MAX_CHARACTERS, Source, bound_outside, definition, returns
from motet_tasks.rewards.spoken import spoken
from motet_tasks.rewards.statements import DECORATED, Piece, own_statements

_MOST_CHARACTERS = 4 * MAX_CHARACTERS
_READ_AGAIN = 8
"""How often each character of a completion is parsed at most, on average over all its readings."""
_CALL = 100
"""The cost of one parser call, in characters. Every completion gets a base budget of 100 calls."""
_MOST_ENDS = 16
_FENCE = re.compile(r"[ \t]*(```+|~~~+)[ \t]*([\w+-]*)")
_PYTHON = {"", "python", "python3", "py", "py3"}
_MARKER = re.compile(r"<\|[\w ]{1,40}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>")
_STARTS = re.compile(
    r"(?:async\s+)?def\s+\w+|class\s+\w+\s*[:(]|@\w|import\s+\w|from\s+[\w.]+\s+import\b|try\s*:"
    r"|\w+(?:\s*:[^=]+)?\s*=[^=]"
)
_OPENS = re.compile(r"@|try\b")
_OPEN = re.compile(r"never closed|triple-quoted|unexpected EOF")
"""Parser messages about a statement that may continue on later lines."""
_MARGIN = re.compile(r"^[ \t]*[\u00a0\u3000][ \t\u00a0\u3000]*", re.MULTILINE)
"""Indentation with spaces that web pages use and Python does not accept."""
_PROMPTED = re.compile(r"[ \t]*(?:>>>|\.\.\.)(?: (.*)|$)")


def extract(text: str, name: str = "", opening: str = "") -> Source:
    """Return the code in `text`; an empty one if there is none.

    Args:
        name: the wanted function. A reading of the text that defines it is preferred. If its only
            definition is broken, that definition is kept unchanged, so that the error can be
            reported.
        opening: `def name(...):`, for a completion that may contain only the function body.
    """
    places, patience = list(readings(text)), _Patience(min(len(text), _MOST_CHARACTERS))
    found: list[_Code] = []
    for place in places:
        code = _statements(place, name, patience)
        if code.defines:
            return code.source
        found.append(code)
    bodies = (_continued(opening, place, name, patience) for place in places if opening)
    broken = (code for code in found if code.broken)
    likely = (code.source for code in chain(chain.from_iterable(bodies), broken, found))
    return next((source for source in likely if source.text), Source(""))


def _normal(text: str) -> str:
    text = text[:_MOST_CHARACTERS].replace("\r\n", "\n").replace("\r", "\n")
    return _MARGIN.sub(
        lambda margin: re.sub(r"[^\t]", " ", margin.group()), spoken(text).removeprefix("\ufeff")
    )


def without(code: Source, names: Set[str]) -> Source:
    """Remove the top-level statements that bind one of `names`.

    Returns `code` unchanged if it cannot be parsed.
    """
    pieces = _parsed(code)
    if pieces is None:
        return code
    return _joined(
        [piece for piece in pieces if piece.node and not bound_outside(piece.node) & names], code
    )


# --------------------------------------------------------------------------------------- readings


def readings(text: str) -> Iterator[str]:
    """Yield the possible readings of a completion as code, likeliest first.

    They are its Python blocks, all of its lines except fences, both without chat markers, and its
    REPL input.
    """
    text = _normal(text)
    blocks, lines = _fenced(text)
    whole = "\n".join(lines)
    likely = ["\n\n".join(blocks), whole] if blocks else [whole]
    yield from likely
    if _MARKER.search(whole):
        yield from (_MARKER.sub("\n", reading) for reading in likely)
    prompted = [match.group(1) or "" for line in lines if (match := _PROMPTED.fullmatch(line))]
    if prompted:
        yield "\n".join(prompted)


def _fenced(text: str) -> tuple[list[str], list[str]]:
    """Return the Python blocks, and all lines that are not fences.

    A block without a closing fence continues to the end.
    """
    blocks: list[list[str]] = []
    lines: list[str] = []
    fence = language = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            lines.append(line)
            if fence and language in _PYTHON:
                blocks[-1].append(line)
        elif fence and match.group(1).startswith(fence) and not match.group(2):
            fence = ""
        elif not fence or match.group(2):  # a second opening fence also closes the first block
            fence, language = match.group(1), match.group(2).lower()
            blocks.append([])
    return [dedent("\n".join(block)) for block in blocks if block], lines


# ------------------------------------------------------------------------------------- statements


@dataclass(frozen=True)
class _Code:
    source: Source
    defines: bool
    """Whether it parses and defines the wanted name; without a name, whether it has any code."""
    broken: bool = False
    """Whether the only definition of the name cannot be parsed."""


class _Patience:
    """The budget of characters to parse.

    Some completions are slow to parse, and the whole process waits for the parser.
    """

    def __init__(self, characters: int) -> None:
        self._left = _READ_AGAIN * (characters + 100 * _CALL)

    @property
    def over(self) -> bool:
        return self._left <= 0

    def spend(self, characters: int) -> None:
        self._left -= characters + _CALL


def _statements(text: str, name: str, patience: _Patience) -> _Code:
    whole = Source(dedent(text))
    pieces = list(_pieces(text, whole, patience))
    kept = own_statements([piece for piece in pieces if piece.node is not None])
    if name and not any(_is_def(piece.node, name) for piece in kept):
        kept += _for_method(kept, name)
    # a stub, or a second definition that was cut off, does not replace a complete function
    if any(_is_done(piece.node, name) for piece in kept):
        kept = [
            piece for piece in kept if not _is_def(piece.node, name) or _is_done(piece.node, name)
        ]
    defines = any(_is_def(piece.node, name) for piece in kept) if name else bool(kept)
    header = re.compile(rf"def\s+{re.escape(name)}\b")
    broken = [piece for piece in pieces if piece.node is None and name and header.match(piece.text)]
    if not defines:
        kept += broken
    return _Code(_joined(kept, whole), defines, bool(broken) and not defines)


def _joined(pieces: Sequence[Piece], code: Source) -> Source:
    """Return a program of these statements; `code` itself, if that is its text."""
    text = "\n\n".join(piece.text for piece in pieces)
    return code if text == code.text else Source(text)


def _continued(opening: str, text: str, name: str, patience: _Patience) -> Iterator[_Code]:
    """Read the text as the body of `opening`.

    Three forms are tried: the text unchanged, its first line indented, all lines indented.
    """
    opening = opening.rstrip() + "\n"
    for body in (text.lstrip("\n"), "    " + text.lstrip(), indent(dedent(text), "    ")):
        code = _statements(opening + body, name, patience)
        tree = code.source.tree
        function = definition(tree, name) if tree is not None else None
        if function is not None and returns(function):
            yield code
            return


def _for_method(pieces: Sequence[Piece], name: str) -> list[Piece]:
    """Return a function that calls the method `name` of the last class that has it.

    Some sites ask for methods in this form: `class Solution`.
    """
    classes = [piece.node for piece in pieces if isinstance(piece.node, ast.ClassDef)]
    having = [node for node in classes if any(_is_done(method, name) for method in node.body)]
    if not having:
        return []
    call = f"def {name}(*given, **named):\n    return {having[-1].name}().{name}(*given, **named)"
    return _parsed(Source(call)) or []


def _is_def(node: ast.stmt | None, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _is_done(node: ast.stmt | None, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name and returns(node)


def _pieces(text: str, whole: Source, patience: _Patience) -> Iterator[Piece]:
    """Yield the top-level statements of the text. `whole` is the text without its margin.

    If the text is not valid as a whole, yield those that are found between its invalid parts.
    """
    if patience.over:
        return
    pieces = _parsed(whole)
    if pieces is not None:
        patience.spend(len(text))
        yield from pieces
        return
    lines = text.split("\n")
    at = 0
    while at < len(lines) and not patience.over:
        if _STARTS.match(lines[at].lstrip()):
            found, at = _statement_at(lines, at, patience)
            yield from found
        else:
            at += 1


def _statement_at(lines: Sequence[str], start: int, patience: _Patience) -> tuple[list[Piece], int]:
    """Return the statement that starts at a line, and the line where the next one may start.

    It ends before the first line that is not indented deeper. A later end is correct if something
    is still open: a bracket, a string, a decorator.
    """
    column = len(lines[start]) - len(lines[start].lstrip())
    margins = (at for at in range(start + 1, len(lines)) if _is_at_margin(lines[at], column))
    first = len(lines)
    for end in islice(chain(margins, [len(lines)]), _MOST_ENDS):
        first = min(first, end)
        source = Source(dedent("\n".join(lines[start:end])))
        patience.spend(len(source.text))
        parsed = _parsed(source)
        if parsed is not None:
            return parsed, end
        if not _OPENS.match(source.text) and not _OPEN.search(source.error):
            break
    return [Piece(dedent("\n".join(lines[start:first])).rstrip(), None)], first


def _is_at_margin(line: str, column: int) -> bool:
    stripped = line.lstrip()
    return bool(stripped) and not stripped.startswith("#") and len(line) - len(stripped) <= column


def _parsed(source: Source) -> list[Piece] | None:
    """Return the statements of a program; None if it cannot be parsed.

    If mixed tabs and spaces prevent parsing, a tab counts as four spaces.
    """
    if source.tree is None and "\t" in source.text:
        source = Source(source.text.expandtabs(4))
    if source.tree is None:
        return None
    return [Piece(_text_of(node, source), node) for node in source.tree.body]


def _text_of(node: ast.stmt, program: Source) -> str:
    """Return the text of a statement, including its decorators."""
    start, end = program.span(node)
    decorators = node.decorator_list if isinstance(node, DECORATED) else []
    return program.text[min([start, *(program.starts[one.lineno - 1] for one in decorators)]) : end]
