"""Every completion of a model must get a verdict and cause no fault of the sandbox.

The completions are programs that are cut, spliced, misindented, garbled or hostile.
"""

import asyncio
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from codejudge import Level, Limits, Sandbox, Suite, Verdict
from tests.fixtures.attacks_on_judges import FORGING, LYING, TAMPERING


@dataclass(frozen=True)
class Task:
    program: str
    suite: Suite


TASKS = (
    Task(
        '''def largest_gap(numbers):
    """The largest difference between neighbours of the sorted numbers."""
    ordered = sorted(numbers)
    best = 0
    for left, right in zip(ordered, ordered[1:]):
        if right - left > best:
            best = right - left
    return best
''',
        Suite.check(
            """
def check(candidate):
    assert candidate([1, 5, 2]) == 3
    assert candidate([]) == 0
    assert abs(candidate([0.5, 2.0]) - 1.5) < 1e-6
""",
            "largest_gap",
        ),
    ),
    Task(
        """import re
from collections import Counter

def words(text):
    return re.findall(r"[a-z]+", text.lower())

def commonest(text, n):
    counts = Counter(words(text))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:n]
""",
        Suite.asserts(
            (
                'assert commonest("a b a", 1) == [("a", 2)]',
                'assert commonest("", 3) == []',
                'assert words("Über x-ray") == ["ber", "x", "ray"]',
            )
        ),
    ),
    Task(
        """def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps

def digits(n):
    return [int(d) for d in str(n)]
""",
        Suite.asserts(
            (
                "assert collatz(6) == 8",
                "assert digits(collatz(27)) == [1, 1, 1]",
                "assert collatz(1) == 0",
            )
        ),
    ),
    Task(
        '''class Account:
    """Money that is somebody's."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount))
        return self.balance

    def transfer(self, other, amount):
        if amount > self.balance:
            return False
        self.balance -= amount
        other.deposit(amount)
        self.history.append(("transfer", amount))
        return True
''',
        Suite.unittest(
            """
import unittest

class AccountTest(unittest.TestCase):
    def setUp(self):
        self.first, self.second = Account("ann", 10), Account("bob")

    def test_deposit(self):
        self.assertEqual(self.first.deposit(5), 15)
        with self.assertRaises(ValueError):
            self.first.deposit(-1)

    def test_transfer(self):
        self.assertTrue(self.first.transfer(self.second, 4))
        self.assertEqual((self.first.balance, self.second.balance), (6, 4))
        self.assertEqual(self.second.history, [("deposit", 4)])

    def test_too_much(self):
        self.assertFalse(self.first.transfer(self.second, 11))
        self.assertIsInstance(self.second, Account)
"""
        ),
    ),
    Task(
        """def apply_all(functions, value):
    for function in functions:
        value = function(value)
    return value

def rotate(grid):
    return [list(row) for row in zip(*grid[::-1])]
""",
        Suite.asserts(
            (
                "assert apply_all([abs, lambda x: x + 1], -3) == 4",
                "assert rotate([[1, 2], [3, 4]]) == [[3, 1], [4, 2]]",
                "assert apply_all([], {1}) == {1}",
            )
        ),
    ),
)
TOKENS = (
    "while True:", "return", "return self", "yield", "lambda:", "import os", "import numpy as np",
    "raise SystemExit", "0", "-1", "None", "10 ** 10 ** 10", "[[]] * 10 ** 9", "'A' * 10 ** 10",
    "float('nan')", "def", "class", "(", ")", "]", ":", "=", "==", "async", "await", "del",
    "global value", "exit()", "print(", "input()", "open('x')", "__import__('os')._exit(0)", "...",
    "recurse = lambda: recurse()", "try:", "except:", "finally:", "@property", "*", "**", "//",
    "assert False", "\\", '"""', "#", "self", "eval(", "globals().clear()", "sorted",
    "__builtins__", "yield from iter(int, 1)", "pass", "\t", "    ",
)  # fmt: skip
ODD_CHARACTERS = "\0\ud800\u202e\ufeff\u00a0é中🎵\x0c\r\x1a’“—×"

Mutation = Callable[[random.Random, str, str], str]
"""Arguments: the generator, a program, and another program to take parts from."""


def cut(draw: random.Random, text: str, _: str) -> str:
    return text[: draw.randrange(len(text) + 1)]


def splice(draw: random.Random, text: str, other: str) -> str:
    return text[: draw.randrange(len(text) + 1)] + other[draw.randrange(len(other) + 1) :]


def put_token(draw: random.Random, text: str, _: str) -> str:
    words = text.split(" ")
    words[draw.randrange(len(words))] = draw.choice(TOKENS)
    return " ".join(words)


def swap_names(draw: random.Random, text: str, other: str) -> str:
    names = [word for word in (text + other).replace("(", " ").split() if word.isidentifier()] or [
        "x"
    ]
    return text.replace(draw.choice(names), draw.choice(names))


def misindent(draw: random.Random, text: str, _: str) -> str:
    lines = text.split("\n")
    at = draw.randrange(len(lines))
    lines[at] = draw.choice([" ", "\t", "        ", ""]) + lines[at].lstrip()
    return "\n".join(lines)


def shuffle_lines(draw: random.Random, text: str, _: str) -> str:
    lines = text.split("\n")
    first, second = draw.randrange(len(lines)), draw.randrange(len(lines))
    lines[first], lines[second] = lines[second], lines[first]
    return "\n".join(lines[:first] if draw.random() < 0.1 else lines)


def put_odd_characters(draw: random.Random, text: str, _: str) -> str:
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(ODD_CHARACTERS) * draw.choice([1, 1, 100]) + text[at:]


def drop_characters(draw: random.Random, text: str, _: str) -> str:
    at = draw.randrange(len(text) + 1)
    return text[:at] + text[at + draw.choice([1, 1, 5, 30]) :]


def chat(draw: random.Random, text: str, _: str) -> str:
    return draw.choice(
        [
            "Sure! Here it is:\n\n```python\n{}```\nIt works.",
            "```\n{}",
            "<think>\n{}</think>",
            ">>> {}",
        ]
    ).format(text)


def repeat(draw: random.Random, text: str, _: str) -> str:
    return text * draw.choice([2, 3, 200]) + text[: draw.randrange(20)]


def noise(draw: random.Random, text: str, _: str) -> str:
    return " ".join(
        draw.choice([*TOKENS, "\n", "\n    ", *text.split()]) for _ in range(draw.randrange(60))
    )


def attack(draw: random.Random, text: str, _: str) -> str:
    added = draw.choice(ATTACKS)
    return added + text if draw.random() < 0.5 else text + added


ATTACKS = tuple((TAMPERING | FORGING | LYING).values())
MUTATIONS: tuple[Mutation, ...] = (
    cut, splice, put_token, put_token, swap_names, misindent, shuffle_lines, put_odd_characters,
    drop_characters, chat, repeat, noise, attack,
)  # fmt: skip


def completions(seed: int, count: int) -> list[tuple[str, Suite]]:
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        task, other = draw.choice(TASKS), draw.choice(TASKS)
        text = task.program
        for _ in range(draw.choice([1, 1, 2, 3])):
            text = draw.choice(MUTATIONS)(draw, text, other.program) or " "
        made.append((text, task.suite))
    return made


def verdicts(sandbox: Sandbox, programs: list[tuple[str, Suite]]) -> list[Verdict]:
    async def judged() -> list[Verdict]:
        return await asyncio.gather(*(sandbox.judge([text], suite) for text, suite in programs))

    return asyncio.run(judged())


@pytest.mark.skipif(
    sys.platform != "linux", reason="programs that fill the memory need a limit of address space"
)
@pytest.mark.parametrize("count", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_completion_gets_a_verdict_and_no_fault(count: int) -> None:
    programs = completions(count, count)
    with Sandbox(
        workers=2, minimum=Level.SECCOMP, limits=Limits(wall_seconds=0.5, memory_mb=256)
    ) as sandbox:
        found = verdicts(sandbox, programs)
        servers = set(sandbox._servers._idle)
        assert all(
            verdict.passed
            for verdict in verdicts(sandbox, [(task.program, task.suite) for task in TASKS] * 2)
        )
        assert set(sandbox._servers._idle) == servers
    for verdict, (_, suite) in zip(found, programs, strict=True):
        assert [case.name for case in verdict.cases] == [case.name for case in suite.cases]
    outcomes = {case.status for verdict in found for case in verdict.cases}
    assert outcomes >= {"passed", "failed", "not_run"}
    assert {verdict.failure for verdict in found} >= {None, "syntax", "raised"}
