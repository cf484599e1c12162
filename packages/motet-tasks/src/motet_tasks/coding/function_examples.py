"""One agent writes a function, the other writes examples of its use with the expected results.

Neither sees what the other writes. Examples that agree with the function are paid, so the two
learn to mean the same function. The rule is that of CoMLRL's examples/leetcode-func-print.py:

    0     the first text defines no function, or the second does not call it or redefines it
    0.5   both texts together are a program
    0.1   for each example that prints what it says, at most 5 different ones

An example is a line such as `print(is_even(4))  # Expected output: True`. Its arguments must be
literals: the sandbox calls the function with them.
"""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import PositiveInt

from codejudge import Call, Returned, Sandbox
from codejudge.source import calls, definition, parse_bounded
from motet.core import Environment, Message, Prompt, Reply, Task, Transition
from motet.errors import ConfigError
from motet.settings import Settings
from motet_tasks.rewards.extract import extract
from motet_tasks.rewards.spoken import spoken
from motet_tasks.scaling import Scaling

WRITER, TESTER = "writer", "tester"
PROGRAM, EXAMPLE = 0.5, 0.1
_LINE = re.compile(r"^\s*(print\(.*\))\s*#\s*(?:Expected\s+output:?)?\s*(.*\S)", re.MULTILINE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class FunctionTask:
    """A function to write: its name, what it does, and the results for some arguments."""

    name: str
    does: str
    arguments: tuple[str, ...]
    """Python literals."""
    results: tuple[str, ...]
    solution: str = ""


TASKS = (
    FunctionTask(
        "is_palindrome", "tells whether a string reads the same in both directions",
        ("'level'", "'motet'", "'noon'"), ("True", "False", "True"),
        "def is_palindrome(s):\n    return s == s[::-1]",
    ),
    FunctionTask(
        "fibonacci", "returns the n-th Fibonacci number, where 0 gives 0 and 1 gives 1",
        ("3", "6", "9"), ("2", "8", "34"),
        "def fibonacci(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n"
        "    return a",
    ),
    FunctionTask(
        "count_vowels", "counts the vowels a, e, i, o and u in a string",
        ("'choir'", "'rhythm'", "'aria'"), ("2", "0", "3"),
        "def count_vowels(s):\n    return sum(c in 'aeiou' for c in s)",
    ),
    FunctionTask(
        "is_prime", "tells whether a whole number is prime",
        ("2", "9", "13"), ("True", "False", "True"),
        "def is_prime(n):\n    return n > 1 and all(n % k for k in range(2, n))",
    ),
)  # fmt: skip


class FunctionAndExamples(Environment[FunctionTask]):
    """One turn. Both agents get the same reward."""

    branches = True
    most_turns = 1

    class Options(Settings):
        """Options of the function and examples environment."""

        examples: PositiveInt = 5
        """How many examples are paid, and asked for."""
        reward: Scaling = Scaling()
        """Maps the levels, 0 to 1 with five examples, to the reward."""

    def __init__(self, options: Options, *, sandbox: Sandbox) -> None:
        self.options, self.sandbox = options, sandbox
        self.agents: Sequence[str] = (WRITER, TESTER)

    def tasks(self, split: str) -> list[Task]:
        """Return the embedded tasks. They are few, so both splits have all of them."""
        if split not in ("train", "eval"):
            raise ConfigError(f"no split {split!r}; expected one of train, eval")
        return [Task(task.name, asdict(task)) for task in TASKS]

    async def start(self, task: Task, seed: int) -> FunctionTask:
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in task.fields.items()
        }
        return FunctionTask(**fields)

    def observe(self, state: FunctionTask) -> Mapping[str, Prompt]:
        known = "\n".join(
            f"{state.name}({argument}) is {result}"
            for argument, result in zip(state.arguments, state.results, strict=True)
        )
        task = f"The Python function `{state.name}` {state.does}.\n{known}\n\n"
        count, more = self.options.examples, self.options.examples - len(state.arguments)
        which = f"those above, and {more} edge cases of your own" if more >= 0 else "some of these"
        asked = {
            WRITER: "Write this function. Write only its code.",
            TESTER: (
                f"Somebody else writes it. Write {count} examples of its use: {which}. Do not "
                "write the function. Write one line for each, such as\n"
                f"print({state.name}({state.arguments[0]}))  "
                f"# Expected output: {state.results[0]}"
            ),
        }
        return {agent: (Message("user", task + text),) for agent, text in asked.items()}

    async def step(
        self, state: FunctionTask, replies: Mapping[str, Reply], seed: int
    ) -> Transition:
        """Raises: SandboxFault if the examples could not be run."""
        function, name = _function(replies[WRITER].text, state.name)
        examples = spoken(replies[TESTER].text)
        used = name != "" and _only_calls(examples, name)
        tests: tuple[tuple[tuple[Any, ...], str], ...] = ()
        if used:
            tests = tuple(dict.fromkeys(_examples(examples, name)))[: self.options.examples]
        right = await self._right(function, name, tests)
        levels = PROGRAM * used + EXAMPLE * right
        needed = min(len(state.arguments), self.options.examples)
        success = float(right == len(tests) >= needed)
        metrics = {
            "defined": float(name != ""),
            "used": float(used),
            "right": right / self.options.examples,
            "levels": levels,
            "success": success,
        }
        rewards = dict.fromkeys(self.agents, self.options.reward.reward(levels))
        return Transition(state, rewards, done=True, metrics=metrics, success=success)

    def solve(self, state: FunctionTask, seed: int) -> dict[str, str]:
        """Return the known function, and the known examples."""
        lines = [
            f"print({state.name}({argument}))  # Expected output: {result}"
            for argument, result in zip(state.arguments, state.results, strict=True)
        ]
        return {WRITER: state.solution, TESTER: "\n".join(lines)}

    async def _right(
        self, function: str, name: str, tests: Sequence[tuple[tuple[Any, ...], str]]
    ) -> int:
        if not tests:
            return 0
        report = await self.sandbox.run([function], [Call(name, args) for args, _ in tests])
        return sum(
            isinstance(answer, Returned) and _same(str(answer.value), expected)
            for answer, (_, expected) in zip(report.calls, tests, strict=True)
        )


def _function(text: str, wanted: str) -> tuple[str, str]:
    """Return the code and the name of the first function; empty strings if there is none."""
    code = extract(text, wanted)
    if code.tree is None:
        return "", ""
    if definition(code.tree, wanted) is not None:
        return code.text, wanted
    names = [node.name for node in code.tree.body if isinstance(node, ast.FunctionDef)]
    return (code.text, names[0]) if names else ("", "")


def _only_calls(examples: str, name: str) -> bool:
    """Return whether the examples are a program that calls the function and does not define it."""
    tree = parse_bounded("\n".join(line.strip() for line in _lines(examples)))
    return tree is not None and calls(tree, name) and not re.search(rf"def\s+{name}\b", examples)


def _lines(examples: str) -> list[str]:
    return [found[0] for found in _LINE.finditer(examples)]


def _examples(examples: str, name: str) -> list[tuple[tuple[Any, ...], str]]:
    """Return the arguments and the expected output of every example with literal arguments."""
    found = []
    for line in _LINE.finditer(examples):
        tree = parse_bounded(line[1])
        match tree.body if tree is not None else []:
            case [
                ast.Expr(ast.Call(ast.Name("print"), [ast.Call(ast.Name(called), args, [])], []))
            ]:
                try:
                    values = tuple(ast.literal_eval(argument) for argument in args)
                    hash(values)
                except (ValueError, TypeError):
                    continue
                if called == name:
                    found.append((values, line[2]))
    return found


def _same(printed: str, expected: str) -> bool:
    """Compare the first numbers of both texts; without numbers, compare the texts."""
    numbers = [_NUMBER.search(text) for text in (printed, expected)]
    if all(numbers):
        return numbers[0][0] == numbers[1][0]  # type: ignore[index]
    return printed.strip() == expected.strip()
