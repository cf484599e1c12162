"""Run every fault test, also the slow ones, on two processes.

The last line of the output is `N passed, N failed`.
"""

import sys
from pathlib import Path

import pytest


class Count:
    """Counts passed and failed tests. A file that cannot be collected counts as failed."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)


def main(arguments: list[str]) -> int:
    """Run pytest with `arguments`. Without a path among them, run all files of this folder."""
    count, here = Count(), str(Path(__file__).parent)
    places = [] if any(Path(word.split("::")[0]).exists() for word in arguments) else [here]
    code = pytest.main(["-n", "2", *places, *arguments], plugins=[count])
    print(f"{len(count.passed - count.failed)} passed, {len(count.failed)} failed")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
