"""Runs every fault test, the slow ones too, on two processes; the last line is `N passed, N failed`."""

import sys
from pathlib import Path

import pytest


class Count:
    """How many tests passed and how many failed, a file that cannot be read among the latter."""

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
    """`arguments` are pytest's; where none of them is a path, all files of this folder are run."""
    count, here = Count(), str(Path(__file__).parent)
    places = [] if any(Path(word.split("::")[0]).exists() for word in arguments) else [here]
    code = pytest.main(["-n", "2", *places, *arguments], plugins=[count])
    print(f"{len(count.passed - count.failed)} passed, {len(count.failed)} failed")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
