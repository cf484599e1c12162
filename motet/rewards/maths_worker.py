"""The process in which maths is read and compared; maths.py starts it by its path, so that nothing of Motet is imported here.

One line of JSON is one question, {"text": ..., "gold": ... or null}, and one line is its answer, {"answer": ..., "right": ...}.
"""

import json
import logging
import os
import resource
import sys
from typing import Any

MEMORY = 2 << 30
"""Bytes: some terms would fill the machine."""


def main() -> None:
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    from math_verify import parse, verify
    from sympy import Float, Rational

    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    def read(text: str) -> list[Any]:
        found: list[Any] = parse(text, parsing_timeout=None)
        return found

    read(r"\boxed{1}")  # the grammar is built at the first use
    print("ready", file=answers)
    for line in sys.stdin:
        question = json.loads(line)
        found = read(question["text"])
        right = False
        if found and question["gold"] is not None:
            right = bool(verify(read(rf"\boxed{{{question['gold']}}}"), found, timeout_seconds=None))
        said = [
            Rational(str(term)) if isinstance(term, Float) else term for term in found[:1]
        ]  # 0.5 and 1/2 are one vote
        print(json.dumps({"answer": str(said[0]) if said else None, "right": right}), file=answers)


if __name__ == "__main__":
    main()
