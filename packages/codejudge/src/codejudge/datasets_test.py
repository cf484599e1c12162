"""Run the tests of public datasets on the datasets' own solutions.

Skipped if the data is missing.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from codejudge import Level, Limits, Sandbox, Suite, Verdict
from codejudge.needs import needs_files, needs_object
from tests.fixtures.wide import widely

DATA = Path(__file__).parents[5] / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not DATA.exists() or sys.platform != "linux", reason="no datasets at ../shared/data"
)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(minimum=Level.SECCOMP, limits=Limits(wall_seconds=60.0, cpu_seconds=20)) as made:
        yield made


def judged(sandbox: Sandbox, programs: Sequence[tuple[str, Suite]]) -> list[Verdict]:
    async def all_of_them() -> list[Verdict]:
        return await asyncio.gather(*(sandbox.judge([source], suite) for source, suite in programs))

    return asyncio.run(all_of_them())


def test_every_solution_of_humaneval_passes_and_no_empty_body_does(sandbox: Sandbox) -> None:
    found = rows("humaneval/test.jsonl")
    suites = [Suite.check(row["test"], row["entry_point"]) for row in found]
    solved = judged(
        sandbox,
        [
            (row["prompt"] + row["canonical_solution"], suite)
            for row, suite in zip(found, suites, strict=True)
        ],
    )
    assert [
        row["task_id"] for row, verdict in zip(found, solved, strict=True) if not verdict.passed
    ] == []
    empty = judged(
        sandbox,
        [(row["prompt"] + "    pass\n", suite) for row, suite in zip(found, suites, strict=True)],
    )
    assert [
        row["task_id"] for row, verdict in zip(found, empty, strict=True) if verdict.passed
    ] == []
    assert {verdict.failure for verdict in (*solved, *empty)} == {None}


@pytest.mark.parametrize("split", widely(["train", "validation"], keep=["validation"]))
def test_every_solution_of_mbpp_passes(split: str, sandbox: Sandbox) -> None:
    found = rows(f"mbpp/{split}.jsonl")
    suites = [
        Suite.asserts((*row["test_list"], *row["challenge_test_list"]), row["test_setup_code"])
        for row in found
    ]
    verdicts = judged(
        sandbox, [(row["code"], suite) for row, suite in zip(found, suites, strict=True)]
    )
    assert [
        row["task_id"] for row, verdict in zip(found, verdicts, strict=True) if not verdict.passed
    ] == []
    nothing = judged(sandbox, [("", suite) for suite in suites])
    assert not any(verdict.passed for verdict in nothing)


def test_every_check_of_coophumaneval_is_read() -> None:
    suites = [
        Suite.check(row["test"], row["entry_point"]) for row in rows("coophumaneval/test.jsonl")
    ]
    assert min(len(suite.cases) for suite in suites) >= 1


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
def test_classes_fare_apart_from_their_tests_as_they_do_together(
    every: int, sandbox: Sandbox
) -> None:
    found = rows("classeval/test.jsonl")[1::every] if every > 1 else rows("classeval/test.jsonl")
    suites = [_suite(row) for row in found]
    assert not any(suite.together for suite in suites)
    apart = judged(
        sandbox, [(row["solution_code"], suite) for row, suite in zip(found, suites, strict=True)]
    )
    jails = [Suite.unittest(suite.source, together=True, files=suite.files) for suite in suites]
    together = judged(
        sandbox, [(row["solution_code"], suite) for row, suite in zip(found, jails, strict=True)]
    )
    assert [_passes(verdict) for verdict in apart] == [_passes(verdict) for verdict in together]
    solved = sum(verdict.passed for verdict in apart)
    assert solved > 0.7 * len(found), "the rest need packages, a date, a host's name"


PLAIN = """
import sys, unittest
class Passed(unittest.TestResult):
    def addSuccess(self, test): print("passed", test.id().partition(".")[2], file=sys.__stdout__)
names = sys.argv[1:]
for name in names:
    owner, _, method = name.partition(".")
    unittest.TestSuite([globals()[owner](method)]).run(Passed())
"""


@pytest.mark.slow
def test_classes_fare_as_in_a_plain_interpreter(sandbox: Sandbox, tmp_path: Path) -> None:
    differ = []
    # The first expects that a read-only file cannot be written, but root can write it.
    # The second places mines at random.
    apart = ("ClassEval_50", "ClassEval_58")
    found = [row for row in rows("classeval/test.jsonl") if row["task_id"] not in apart]
    verdicts = judged(sandbox, [(row["solution_code"], _suite(row)) for row in found])
    for row, verdict in zip(found, verdicts, strict=True):
        if verdict.failure == "raised" and "No module named" in verdict.message:
            continue
        names = [case.name for case in verdict.cases]
        folder = tmp_path / row["task_id"]
        folder.mkdir()
        (folder / "plain.py").write_text(row["solution_code"] + "\n" + row["test"] + PLAIN)
        command = [sys.executable, "plain.py", *names]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        passed = {
            line.removeprefix("passed ")
            for line in done.stdout.splitlines()
            if line.startswith("passed ")
        }
        if [name in passed for name in names] != _passes(verdict):
            differ.append((row["task_id"], done.stderr[-300:]))
    assert differ == []


def _suite(row: dict[str, Any]) -> Suite:
    files = needs_files(row["test"], row["solution_code"])
    return Suite.unittest(row["test"], together=needs_object(row["test"]), files=files)


def _passes(verdict: Verdict) -> list[bool]:
    return [case.status == "passed" for case in verdict.cases]
