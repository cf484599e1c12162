"""Extracts the examples in a task's text as assert statements.

It finds `>>> f(2)` followed by its output, `f(2) == 4`, `f(2) ➞ 4` and `f(2) => 4`. An example is
kept only if both sides parse, it calls the function in question, and all names are defined.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Sequence, Set

from codejudge.source import calls, parse_bounded

_MOST_CHARACTERS = 500
_MOST_EXAMPLES = 20
_LEADS_TO = re.compile(
    r"\s*#?\s*(?:==>|==|=>|[-=–—]+>|[➞→⇒➜➔]|=|"
    r"(?:should |will |must )?(?:return|be|equal|give)s?(?: to)?\b|is\b)\s*:?"
)
_BUILTINS = frozenset(dir(builtins))
_ENDS = (">>>", '"""', "'''")
_SPELLINGS = {"true": "True", "false": "False"}


def find_examples(text: str, entry_point: str, defined: Set[str] = frozenset()) -> tuple[str, ...]:
    """Return the distinct examples of `entry_point`. They may use the names in `defined`, which
    the text defines."""
    lines = text.splitlines()
    pairs = [*_doctests(lines), *_equations(lines, entry_point)]
    found = (_compared(asked, told, entry_point, defined) for asked, told in pairs)
    return tuple(dict.fromkeys(example for example in found if example))[:_MOST_EXAMPLES]


def _doctests(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each input with its output.

    The output is all lines up to an empty one if they form an expression, otherwise the first line.
    """
    at = 0
    while at < len(lines):
        asked = [match.group(1)] if (match := re.match(r"\s*>>>\s?(.*)", lines[at])) else []
        at += 1
        while asked and at < len(lines) and (match := re.match(r"\s*\.\.\.\s?(.*)", lines[at])):
            asked.append(match.group(1))
            at += 1
        told = []
        while (
            asked
            and at < len(lines)
            and lines[at].strip()
            and not lines[at].lstrip().startswith(_ENDS)
        ):
            told.append(lines[at].strip())
            at += 1
        if told:
            whole = "\n".join(told)
            yield "\n".join(asked), whole if _expression(whole) is not None else told[0]


def _equations(lines: Sequence[str], entry_point: str) -> Iterator[tuple[str, str]]:
    """Yield each call and its result from lines of the form: call, arrow or similar, result."""
    begins = re.compile(rf"\b{re.escape(entry_point)}\s*\(")
    for line in lines:
        if ">>>" in line or len(line) > _MOST_CHARACTERS:
            continue
        for start in (match.start() for match in begins.finditer(line)):
            call = _call_at(line, start)
            leads = _LEADS_TO.match(line, start + len(call)) if call else None
            if leads is not None:
                yield (
                    call,
                    next(
                        (
                            told
                            for told in _beginnings(line[leads.end() :])
                            if _expression(told) is not None
                        ),
                        "",
                    ),
                )


def _call_at(line: str, start: int) -> str:
    """Return the call that starts at `start`, up to its closing bracket; "" if there is none."""
    for end in (match.end() for match in re.finditer(r"\)", line[start:])):
        call = line[start : start + end]
        if _expression(call) is not None:
            return call
    return ""


def _beginnings(text: str) -> Iterator[str]:
    """Yield candidates for a result: the rest of a line, then the same with fewer words."""
    text = text.strip().rstrip("`")
    words = [match.start() for match in re.finditer(r"\s", text)]
    for end in (len(text), *reversed(words)):
        told = text[:end].rstrip(" \t.,;")
        yield _SPELLINGS[told] if told in _SPELLINGS else told


def _compared(asked: str, told: str, entry_point: str, defined: Set[str]) -> str:
    left, right = _expression(asked), _expression(told)
    if left is None or right is None or not calls(left, entry_point):
        return ""
    free = {
        name.id for side in (left, right) for name in ast.walk(side) if isinstance(name, ast.Name)
    }
    known = free <= _BUILTINS | defined | {entry_point}
    return f"assert {ast.unparse(left)} == {ast.unparse(right)}" if known else ""


def _expression(text: str) -> ast.expr | None:
    tree = parse_bounded(text.strip()) if len(text) <= _MOST_CHARACTERS else None
    if tree is None or len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
        return None
    return tree.body[0].value
