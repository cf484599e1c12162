"""A code generation game whose agents always submit the same program.

The program looks for secrets and reports what it found.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from motet.core import Reply, Transition
from motet_tasks.coding.generation import CodeGeneration, GenerationState

MARK = "canary"
"""Part of every secret of these tests, so that a program can recognise one."""
SPY = '''
import os, sys, posix

def looked():
    """[what was tried, what it gave: a secret, nothing, or why it failed], of every way to \
a secret that this program knows."""
    found = []

    def tried(what, read):
        try:
            text = str(read())
            at = text.find("MARK")
            found.append([what, "nothing" if at < 0 else text[at : at + 60]])
        except BaseException as error:
            found.append([what, type(error).__name__])

    tried("os.environ", lambda: dict(os.environ))
    tried("posix.environ", lambda: posix.environ)
    tried("getenv", lambda: [os.getenv(name) for name in NAMES])
    for who in ("self", os.getppid(), *range(max(1, os.getpid() - 40), os.getpid())):
        for file in ("environ", "cmdline"):
            tried(f"/proc/PID/{file}", lambda: open(f"/proc/{who}/{file}", "rb").read())
    for path in PATHS:
        tried("file", lambda: open(path).read())
        tried("descriptor", lambda: os.read(os.open(path, os.O_RDONLY), 4096))
    tried("descriptors", lambda: [os.read(number, 4096) for number in range(3, 9) \
if os.get_blocking(number)])
    tried("shell", lambda: os.popen("env").read())
    tried("frames", lambda: [sys._getframe(depth).f_locals for depth in range(3)])
    return found
'''


def spy(names: list[str], paths: list[Path]) -> str:
    """Return the program. `looked()` returns its findings."""
    told = {
        "NAMES": json.dumps(names),
        "PATHS": json.dumps([str(path) for path in paths]),
        "MARK": MARK,
    }
    text = SPY
    for name, value in told.items():
        text = text.replace(name, value)
    return text


class Spying(CodeGeneration):
    """Replaces every answer by the spy program. Its findings are a test's message, and so
    feedback."""

    async def step(
        self, state: GenerationState, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        program = Path(os.environ["SPY_PROGRAM"]).read_text()
        said = f"```python\n{program}\ndef twice(x):\n    return [looked(), x]\n```"
        return await super().step(state, {agent: Reply(said) for agent in replies}, seed)


def row(paths: int) -> dict[str, Any]:
    """A problem whose tests report the findings, one line per try."""
    return {
        "task_id": "own/twice",
        "prompt": 'def twice(x):\n    """Twice x.\n\n    >>> twice(3)\n    6\n    """\n',
        "entry_point": "twice",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n"
        "    assert candidate(1) == 2\n"
        + "".join(
            f"    assert False, 'SPIED ' + str(candidate({n})[0][{n}::5])\n" for n in range(5)
        ),
    }
