"""How the lists of moves, rows and steps are read in the texts of agents."""

import json
import re

from motet_tasks.planning.puzzle import Action

MARK = "####"
"""What stands before the answer of an agent."""
LONGEST = 20_000
"""Longer lists, in characters, are not read."""
_ITEMS = r"(?:[^\[\]()]|[\[(][^\[\]()]*[\])])*"
_LIST, _TUPLE = re.compile(rf"\[{_ITEMS}\]"), re.compile(rf"\({_ITEMS}\)")
_AS_LISTS = str.maketrans("()", "[]")
_LAST_COMMA = re.compile(r",(?=\s*\])")
_WORD = re.compile(r"[A-Za-z_]+")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


def answered(text: str) -> Action | None:
    """Return the first list after the last MARK, or the first tuple; None if there is none."""
    _, mark, rest = text.rpartition(MARK)
    found = _lists_of(rest[:LONGEST]) if mark else []
    return _read(found[0]) if found else None


def printed(text: str) -> Action | None:
    """Return the last list that a program printed, or the last tuple; None if it printed none."""
    found = _lists_of(text[-LONGEST:])
    return _read(found[-1]) if found else None


def _lists_of(text: str) -> list[str]:
    return _LIST.findall(text) or _TUPLE.findall(text)


def program_of(text: str) -> str:
    """Return the last block of code of an answer, or all of it if it has none."""
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else text


def _read(text: str) -> Action | None:
    """Read a list of words and numbers, or of such lists. Words need no quotes. A list may be a
    tuple of Python, and may end with a comma."""
    bare = text.replace("'", "").replace('"', "").translate(_AS_LISTS)
    bare = _LAST_COMMA.sub("", bare)
    try:
        found = json.loads(_WORD.sub(r'"\g<0>"', bare))
    except ValueError:
        return None
    return found if isinstance(found, list) else None
