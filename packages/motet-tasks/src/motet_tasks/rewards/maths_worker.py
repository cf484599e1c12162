"""The subprocess that parses and compares mathematics.

maths.py starts it by its path, so nothing of Motet is imported here. Each line of input is one JSON
request, {"text": ..., "gold": ... or null}. Each line of output is its reply, {"answer": ...,
"right": ...}.
"""

import json
import logging
import os
import resource
import sys
from typing import Any

MEMORY = 2 << 30
"""Bytes of address space. Some terms would otherwise fill the machine's memory."""


def main() -> None:
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output that libraries print must not mix with the replies
    from math_verify import parse, verify
    from sympy import Float, Rational

    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def read(text: str) -> list[Any]:
        found: list[Any] = parse(text, parsing_timeout=None)
        return found

    read(r"\boxed{1}")  # build the grammar now: it is built at the first use
    print("ready", file=answers)
    for line in sys.stdin:
        question = json.loads(line)
        found = read(question["text"])
        right = False
        if found and question["gold"] is not None:
            right = bool(
                verify(read(rf"\boxed{{{question['gold']}}}"), found, timeout_seconds=None)
            )
        # 0.5 and 1/2 must be the same answer in a vote
        said = [Rational(str(term)) if isinstance(term, Float) else term for term in found[:1]]
        print(json.dumps({"answer": str(said[0]) if said else None, "right": right}), file=answers)


if __name__ == "__main__":
    main()
