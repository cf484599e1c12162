"""Another's words in a prompt, so that they can pose neither as the prompt's own nor as anybody else's."""

import re

MARK = "> "
"""Before every quoted line. What ends a quotation is a line without it, and no quoted text can make one."""

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""What is not seen, or turns around what is."""
_TOKEN = re.compile(r"<(?=[a-zA-Z/|!\uff5c<])|(?<=[|\uff5c])>|\[(?=/?[A-Z_]{2,}\])|<(?=\uff5c)")
"""Where a special token of a chat template may begin or end: <|im_start|>, </s>, <start_of_turn>, [INST]."""


def quoted(text: str) -> str:
    """`text` with a mark before every line, however lines are told apart, and with nothing in it that a tokenizer takes for
    the beginning or the end of a message."""
    lines = _CONTROL.sub(" ", "\n".join(text.splitlines())).strip("\n").split("\n")
    return "\n".join(f"{MARK}{_TOKEN.sub(_apart, line)}".rstrip() for line in lines)


def _apart(sign: re.Match[str]) -> str:
    """A space where the token would go on: models read it the same, and tokenizers do not."""
    return f" {sign.group()}" if sign.group() == ">" else f"{sign.group()} "
