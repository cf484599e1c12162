"""Measure programs per second in the sandbox, beside fresh interpreters, bare and under bubblewrap.

    python benchmarks/sandbox.py

Value mode calls a function five times. Test mode runs five asserts on it in another process. A
fresh interpreter gets the same program with the same calls. For test mode it gets the same asserts
in the same process, where the program could reach them. "two bubblewraps" starts one for the
program and one for its tests; test mode's protection needs that many (here the two do not even
communicate). Columns take turns within a round. A ratio is the median over the rounds. Prints one
table.
"""

import asyncio
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter

from codejudge import Call, Sandbox, Suite

SOURCE = "def main(xs):\n    return sum(x * {k} for x in xs if x > 2)\n"
ARGUMENTS = [list(range(n, n + 8)) for n in range(5)]
ROUNDS, PROGRAMS, WORKERS = 25, 30, os.cpu_count() or 1
RATIOS = (
    ("value", "fresh", "2.5"),
    ("value", "bubblewrap", "5"),
    ("test", "fresh + asserts", "1.5"),
    ("test", "bubblewrap + asserts", ""),
    ("test", "two bubblewraps", "5"),
)
"""Column whose speed is divided, column to divide by, and the least ratio that we aim for."""

Column = Callable[[Sequence[int]], None]
"""Runs one program per number. Each program is new, so that no result comes from a cache."""


def value(sandbox: Sandbox) -> Column:
    calls = [Call("main", (xs,)) for xs in ARGUMENTS]

    async def run(numbers: Sequence[int]) -> None:
        reports = await asyncio.gather(*(sandbox.run([SOURCE.format(k=k)], calls) for k in numbers))
        assert all(report.failure is None for report in reports)

    return lambda numbers: asyncio.run(run(numbers))


def test(sandbox: Sandbox) -> Column:
    suite = Suite.asserts(tuple(f"assert main({xs}) >= 0" for xs in ARGUMENTS))

    async def run(numbers: Sequence[int]) -> None:
        verdicts = await asyncio.gather(
            *(sandbox.judge([SOURCE.format(k=k)], suite) for k in numbers)
        )
        assert all(verdict.passed for verdict in verdicts)

    return lambda numbers: asyncio.run(run(numbers))


def interpreter(line: str, wall: Sequence[str] = (), each: int = 1) -> Column:
    """Start `each` fresh `python -I -S` per program, wrapped by `wall`.

    `line` is the statement that runs for each list of arguments.
    """
    ending = "\n".join(line.format(xs=xs) for xs in ARGUMENTS)

    def run(numbers: Sequence[int]) -> None:
        texts = [SOURCE.format(k=k) + ending for k in numbers for _ in range(each)]
        commands = [[*wall, _python(), "-I", "-S", "-c", text] for text in texts]
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda command: subprocess.run(command, check=True, env={}), commands))

    return run


def bubblewrap() -> list[str] | None:
    """Return a bubblewrap command, or None if bubblewrap is not installed.

    It creates new namespaces of every kind and gives no capability and no environment variable.
    Only the interpreter's own files are visible, read-only.
    """
    program = shutil.which("bwrap")
    if program is None:
        return None
    folders = [
        sys.base_prefix,
        *(folder for folder in ("/usr", "/lib", "/lib64") if Path(folder).exists()),
    ]
    binds = [part for folder in dict.fromkeys(folders) for part in ("--ro-bind", folder, folder)]
    return [
        program,
        "--unshare-all",
        "--cap-drop",
        "ALL",
        "--clearenv",
        "--new-session",
        "--die-with-parent",
        *binds,
    ]


def _python() -> str:
    """Return the interpreter itself. The link of a virtual environment does not resolve inside
    bubblewrap."""
    return str(Path(sys.executable).resolve())


def main() -> None:
    with Sandbox(WORKERS) as sandbox:
        columns: dict[str, Column] = {
            "value": value(sandbox),
            "fresh": interpreter("main({xs})"),
            "test": test(sandbox),
            "fresh + asserts": interpreter("assert main({xs}) >= 0"),
        }
        wall = bubblewrap()
        if wall is not None:
            columns["bubblewrap"] = interpreter("main({xs})", wall)
            columns["bubblewrap + asserts"] = interpreter("assert main({xs}) >= 0", wall)
            columns["two bubblewraps"] = interpreter("main({xs})", wall, each=2)
        for number, column in enumerate(columns.values()):
            column(range(10**9 + 10 * number, 10**9 + 10 * number + 10))  # starts the servers
        rounds = [measured(columns, start * PROGRAMS) for start in range(ROUNDS)]
        print(
            f"level {sandbox.level.name}, {WORKERS} workers, {ROUNDS} rounds of {PROGRAMS}, "
            f"Python {platform.python_version()}\n"
        )
    print(f"{'':24}programs/s")
    for name in columns:
        print(f"{name:24}{median(PROGRAMS / seconds[name] for seconds in rounds):10.0f}")
    if wall is None:
        print("bubblewrap is not installed, so its rows are missing")
    print(f"\n{'ratio':32}median    rounds        wanted")
    for ours, theirs, wanted in RATIOS:
        if theirs in columns:
            ratios = sorted(seconds[theirs] / seconds[ours] for seconds in rounds)
            pair, spread = f"{ours} : {theirs}", f"{ratios[0]:.2f}-{ratios[-1]:.2f}"
            print(f"{pair:32}{median(ratios):6.2f}    {spread:14}{wanted}")


def measured(columns: dict[str, Column], start: int) -> dict[str, float]:
    """Return the seconds of every column for the same programs."""
    seconds = {}
    for name, column in columns.items():
        begun = perf_counter()
        column(range(start, start + PROGRAMS))
        seconds[name] = perf_counter() - begun
    return seconds


if __name__ == "__main__":
    main()
