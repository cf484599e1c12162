"""A reward for TRL's GRPOTrainer: the share of its tests that a completion passes.

    python packages/codejudge/examples/trl_reward.py     # three completions, without TRL

With TRL, a dataset has a column `tests`, a list of assert statements per row:

    GRPOTrainer(model=..., reward_funcs=reward, train_dataset=dataset, args=...).train()
"""

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from codejudge import Limits, Sandbox, Suite

_BLOCK = re.compile(r"^```([\w+-]*)[^\n]*\n(.*?)(?:^```|\Z)", re.DOTALL | re.MULTILINE)
_DEFINES = re.compile(r"^(?:async )?(?:def|class) ", re.MULTILINE)


@cache
def sandbox() -> Sandbox:
    """One sandbox per process, with one worker per core. It ends with the process."""
    return Sandbox(limits=Limits(cpu_seconds=2, memory_mb=512))


def reward(
    completions: Sequence[str | Sequence[Mapping[str, str]]],
    tests: Sequence[Sequence[str]],
    **columns: object,
) -> list[float]:
    """Return the share of passed tests of every completion, from 0 to 1.

    A completion is a text, or its messages in the conversational format. TRL passes everything by
    name: the completions, the columns of the dataset (here `tests`), and more. A program that does
    not end, crashes or cheats fails its tests.

    Raises SandboxFault if the sandbox itself failed, which says nothing about a completion.
    """
    programs = [program(completion) for completion in completions]
    suites = [Suite.asserts(tuple(statements)) for statements in tests]
    pairs = list(zip(programs, suites, strict=True))
    with ThreadPoolExecutor() as pool:  # threads also work in a notebook, where an event loop runs
        verdicts = pool.map(lambda pair: sandbox().judge_sync([pair[0]], pair[1]), pairs)
        return [verdict.share for verdict in verdicts]


def program(completion: str | Sequence[Mapping[str, str]]) -> str:
    """Return the last block of Python that defines something, else the last one; all of the
    completion, if it has none."""
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    blocks: list[str] = [
        code for label, code in _BLOCK.findall(text) if label in ("", "py", "python", "python3")
    ]
    return ([code for code in blocks if _DEFINES.search(code)] or blocks or [text])[-1]


if __name__ == "__main__":
    tests = ["assert double(2) == 4", "assert double(-3) == -6"]
    completions = [
        "Twice a number is its sum with itself:\n```python\ndef double(x):\n    return x + x\n```",
        "def double(x):\n    return 4",
        "def double(x):\n    while True: pass",
    ]
    print(reward(completions=completions, tests=[tests] * 3))
