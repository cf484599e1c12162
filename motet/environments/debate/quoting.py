"""Quotes other agents' text in a prompt so that it cannot imitate the prompt or another agent."""

import re

MARK = "> "
"""Prefix of every quoted line. A quotation ends at the first line without it. Quoted text cannot
contain a line without it."""

_CONTROL = re.compile(
    r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that are invisible, or that change the direction of visible text."""
_TOKEN = re.compile(r"<(?=[a-zA-Z/|!\uff5c<])|(?<=[|\uff5c])>|\[(?=/?[A-Z_]{2,}\])|<(?=\uff5c)")
"""Places where a special token of a chat template may begin or end: <|im_start|>, </s>,
<start_of_turn>, [INST]."""


def quoted(text: str) -> str:
    """Quote `text`: put MARK before every line and break up special tokens.

    Every kind of line break starts a new quoted line. The result contains nothing that a tokenizer
    reads as the start or end of a message.
    """
    lines = _CONTROL.sub(" ", "\n".join(text.splitlines())).strip("\n").split("\n")
    return "\n".join(f"{MARK}{_TOKEN.sub(_apart, line)}".rstrip() for line in lines)


def _apart(sign: re.Match[str]) -> str:
    """Insert a space inside a special token. A model still reads it as text, but a tokenizer does
    not recognise the token."""
    return f" {sign.group()}" if sign.group() == ">" else f"{sign.group()} "
