"""Quotes other agents' text in a prompt so that it cannot imitate the prompt or another agent."""

import re

MARK = "> "
"""Prefix of every quoted line. A quotation ends at the first line without it. Quoted text cannot
contain a line without it."""

_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that are invisible, or that change the direction of visible text."""


def quoted(text: str) -> str:
    """Quote `text`: put MARK before every line.

    Every kind of line break starts a new quoted line.
    """
    lines = _CONTROL.sub(" ", "\n".join(text.splitlines())).strip("\n").split("\n")
    return "\n".join(f"{MARK}{line}".rstrip() for line in lines)
