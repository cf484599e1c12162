"""How many tests does a program pass that only looks up the examples of its prompt?

    python benchmarks/look_up.py HumanEval.jsonl

The rows are those of `code_generation`. It prints the mean share of the tests that pass, once with
all tests and once with `environment.grade_examples: false`.
"""

import json
import sys
from pathlib import Path

from codejudge import Sandbox
from motet_tasks.coding.problems import read_problem
from motet_tasks.coding.shown_examples import look_up, unseen


def shares(path: Path) -> list[tuple[float, float]]:
    """Return for each problem the share of all tests and that of the tests that are not shown."""
    found = []
    with Sandbox() as sandbox:
        for line in path.read_text(encoding="utf-8").splitlines():
            problem = read_problem(json.loads(line))
            program = [problem.prelude, look_up(problem.examples, problem.entry_point)]
            left = unseen(problem.suite, problem.examples, problem.entry_point)
            suites = problem.suite, problem.suite.choose(left)
            whole, rest = (sandbox.judge_sync(program, suite).share for suite in suites)
            found.append((whole, rest))
    return found


def main() -> None:
    found = shares(Path(sys.argv[1]))
    whole, rest = (sum(column) / len(found) for column in zip(*found, strict=True))
    print(f"{len(found)} problems: {whole:.2f} of all tests, {rest:.2f} with grade_examples: false")


if __name__ == "__main__":
    main()
