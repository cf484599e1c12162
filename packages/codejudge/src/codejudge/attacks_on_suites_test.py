"""Run every lying value against every kind of test, and every attack program against its suite.

Each attack comes with an honest program that must pass the same suite. A control runs the attacks
in plain Python, where the tests believe them.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from codejudge import Level, Limits, Sandbox, Suite, Verdict
from codejudge.attacks_test import EVERY_PROTECTION, PROTECTIONS
from tests.fixtures.attacks_on_suites import (
    _SETUP,
    HONEST,
    LIARS,
    NUMPY_HONEST,
    NUMPY_LIARS,
    NUMPY_SHAPES,
    ROWS,
    SHAPES,
    AttackRow,
)

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has the locks that hold attackers"
)

LIMITS = Limits(wall_seconds=20, cpu_seconds=5)
SUITE = Suite.asserts(SHAPES, _SETUP, "solve")
ALL_LIARS = LIARS | {f"numpy_{name}": program for name, program in NUMPY_LIARS.items()}
NUMPY_SUITE = Suite.asserts(NUMPY_SHAPES, "import numpy as np", "solve")


def made(protection: str, packages: tuple[str, ...] = ()) -> Iterator[Sandbox]:
    maximum, user = PROTECTIONS[protection]
    if user is not None and os.getuid() != 0:
        pytest.skip("this host is an ordinary user already")
    with Sandbox(
        workers=1, maximum=maximum, user=user, limits=LIMITS, packages=packages
    ) as sandbox:
        yield sandbox


@pytest.fixture(scope="module", params=EVERY_PROTECTION)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    yield from made(request.param)


@pytest.fixture(scope="module", params=EVERY_PROTECTION)
def numpy_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    pytest.importorskip("numpy")
    yield from made(request.param, ("numpy",))


def judged(sandbox: Sandbox, program: str, suite: Suite) -> Verdict:
    (server,) = sandbox._servers._idle
    verdict = sandbox.judge_sync([program], suite)
    assert sandbox._servers._idle == [server], "it cost us a server"
    assert len(verdict.cases) == len(suite.cases)
    return verdict


def passed(verdict: Verdict, suite: Suite) -> list[str]:
    texts = {case.name: case.text for case in suite.cases}
    return [texts[case.name] for case in verdict.cases if case.status == "passed"]


def wrong(verdict: Verdict, suite: Suite) -> list[object]:
    texts = {case.name: case.text for case in suite.cases}
    return [(texts[case.name], case) for case in verdict.cases if case.status != "passed"]


def test_an_honest_program_passes_every_shape(sandbox: Sandbox) -> None:
    assert wrong(judged(sandbox, HONEST, SUITE), SUITE) == []


@pytest.mark.parametrize("name", LIARS)
def test_no_liar_passes_any_shape(name: str, sandbox: Sandbox) -> None:
    verdict = judged(sandbox, LIARS[name], SUITE)
    assert passed(verdict, SUITE) == []
    assert {case.status for case in verdict.cases} == {"failed"}, "it met every shape"


def test_an_honest_program_with_arrays_passes_every_shape(numpy_sandbox: Sandbox) -> None:
    assert wrong(judged(numpy_sandbox, NUMPY_HONEST, NUMPY_SUITE), NUMPY_SUITE) == []


@pytest.mark.parametrize("name", ALL_LIARS)
def test_no_liar_passes_any_shape_of_arrays(name: str, numpy_sandbox: Sandbox) -> None:
    verdict = judged(numpy_sandbox, ALL_LIARS[name], NUMPY_SUITE)
    assert passed(verdict, NUMPY_SUITE) == []
    assert {case.status for case in verdict.cases} == {"failed"}, "it met every shape"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_suite_believes_the_honest_program_and_not_the_other(
    row: AttackRow, sandbox: Sandbox
) -> None:
    assert wrong(judged(sandbox, row.honest, row.suite), row.suite) == []
    assert not judged(sandbox, row.attack, row.suite).passed


# ------------------------------------------------------------ the control

CONTROL = """
import json, sys, traceback, unittest
found = {}
for name, program, setup, statements in json.load(sys.stdin):
    found[name] = []
    space = {"__name__": "candidate"}
    try: exec(setup, space); exec(program, space); exec(setup, space)
    except BaseException as error: traceback.print_exc(); continue
    for index, statement in enumerate(statements):
        try: exec(statement, space)
        except BaseException: continue
        found[name].append(index)
json.dump(found, sys.__stdout__)
"""
_RUN = (
    "import unittest\nresult = unittest.TestResult()\n"
    "T('test').run(result)\nassert result.wasSuccessful()"
)


def plain(requests: list[tuple[str, str, str, tuple[str, ...]]]) -> dict[str, list[int]]:
    """Return which statements pass in plain Python, in the same process as each program."""
    command = [sys.executable, "-c", CONTROL]
    done = subprocess.run(
        command, input=json.dumps(requests), capture_output=True, text=True, check=False
    )
    found: dict[str, list[int]] = json.loads(done.stdout)
    return found


def test_in_plain_python_every_liar_is_believed_by_some_shape() -> None:
    found = plain([(name, program, _SETUP, SHAPES) for name, program in LIARS.items()])
    assert [name for name in LIARS if not found[name]] == []
    assert len({index for each in found.values() for index in each}) > len(SHAPES) // 2


def beside(row: AttackRow) -> tuple[str, str, str, tuple[str, ...]]:
    match row.suite.kind:
        case "asserts":
            return row.name, row.attack, row.suite.source, row.suite.statements
        case "check":
            return (
                row.name,
                row.attack,
                "",
                (f"{row.suite.source}\ncheck({row.suite.entry_point})",),
            )
    return row.name, row.attack, "", (f"{row.suite.source}\n{_RUN}",)


def test_in_plain_python_the_programs_are_believed() -> None:
    found = plain([beside(row) for row in ROWS])
    assert [row.name for row in ROWS if row.fools != bool(found[row.name])] == []


def test_the_catalogue_is_as_large_as_it_says() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert len({*LIARS.values(), *NUMPY_LIARS.values(), *(row.attack for row in ROWS)}) >= 150
    assert Level.SECCOMP in {maximum for maximum, _ in PROTECTIONS.values()}
