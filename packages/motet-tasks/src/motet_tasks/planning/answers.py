"""How the lists of moves, rows and steps are read in the texts of agents."""

import json
import re

from motet_tasks.planning.puzzle import Action

MARK = "####"
"""What stands before the answer of an agent."""
LONGEST = 20_000
"""Longer lists, in characters, are not read."""
_LIST = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]")
_WORD = re.compile(r"[A-Za-z_]+")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)


def answered(text: str) -> Action | None:
    """Return the first list after the last MARK; None if there is none."""
    _, mark, rest = text.rpartition(MARK)
    found = _LIST.search(rest[:LONGEST]) if mark else None
    return None if found is None else _read(found[0])


def printed(text: str) -> Action | None:
    """Return the last list that a program printed; None if it printed none."""
    found = _LIST.findall(text[-LONGEST:])
    return _read(found[-1]) if found else None


def program_of(text: str) -> str:
    """Return the last block of code of an answer, or all of it if it has none."""
    blocks = _FENCE.findall(text)
    return blocks[-1] if blocks else text


def _read(text: str) -> Action | None:
    """Read a list of words and numbers, or of such lists. Words need no quotes."""
    bare = text.replace("'", "").replace('"', "")
    try:
        found = json.loads(_WORD.sub(r'"\g<0>"', bare))
    except ValueError:
        return None
    return found if isinstance(found, list) else None
