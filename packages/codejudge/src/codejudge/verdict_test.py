import json
from collections.abc import Sequence
from typing import Any

import pytest

from codejudge import CaseResult, Limits, Suite, verdict
from codejudge.errors import SandboxFault
from codejudge.protocol import BEGIN, DONE, END, READY, REPLY
from codejudge.verdict import JudgeRun, read
from tests.fixtures.messages import facts

SUITE = Suite.asserts(("assert f(1)", "assert f(2)", "assert f(3)"))
LIMITS = Limits(wall_seconds=2.0, cpu_seconds=1)
PASSED = [DONE, 0, "passed", "", ""]


def reply(
    *lines: Sequence[Any], secret: str = "", late: bool = False, much: bool = False,
    ended: int = 0, cpu: float = 0.0, theirs: int = 9, their_cpu: float = 0.0,
) -> bytes:  # fmt: skip
    written = b"".join(
        json.dumps([secret, *line], separators=(",", ":")).encode() + b"\n"
        for line in ([READY], *lines)
    )
    return REPLY.pack(late, much, ended, cpu, theirs, their_cpu, 0.5) + written


def statuses(attempt: JudgeRun) -> list[str]:
    return [f"{position}:{result.status}" for position, result in attempt.results.items()]


def test_the_lines_of_a_judge_are_results() -> None:
    failed = [DONE, 1, "failed", "AssertionError", "1 != 2"]
    attempt = read(
        reply([BEGIN, 0], PASSED, [BEGIN, 1], failed, [END, None, "", ""]), SUITE, LIMITS
    )
    assert attempt.results == {
        0: CaseResult("test 1", "passed"),
        1: CaseResult("test 2", "failed", "AssertionError", "1 != 2"),
    }
    assert (attempt.failure, attempt.seconds) == (None, 0.5)


@pytest.mark.parametrize(
    ("wire", "failure", "status"),
    [
        (reply([BEGIN, 0], late=True), "timeout", "timeout"),
        (reply([BEGIN, 0], ended=24, cpu=0.9), "timeout", "timeout"),
        (reply([BEGIN, 0], [END, "gone", "", ""], theirs=24), "timeout", "timeout"),
        (reply([BEGIN, 0], [END, "gone", "", ""], theirs=9, their_cpu=1.9), "timeout", "timeout"),
        (reply([BEGIN, 0], [END, "gone", "", ""], theirs=3 << 8), "exited", "failed"),
        (reply([BEGIN, 0], [END, "gone", "", ""], theirs=11), "crashed", "failed"),
        (reply([BEGIN, 0], [END, "garbled", "", ""]), "garbled", "failed"),
    ],
)
def test_how_a_candidate_ended_costs_the_test_that_ran(
    wire: bytes, failure: str, status: str
) -> None:
    attempt = read(wire, SUITE, LIMITS)
    assert (attempt.failure, statuses(attempt), attempt.hung) == (
        failure,
        [f"0:{status}"],
        failure == "timeout",
    )


def test_a_program_that_did_not_come_to_its_tests_says_why() -> None:
    attempt = read(reply([END, "program", "syntax", "bad"]), SUITE, LIMITS)
    assert (attempt.results, attempt.failure, attempt.message) == ({}, "syntax", "bad")
    assert read(reply(late=True), SUITE, LIMITS) == JudgeRun(
        {}, False, "timeout", "over 2 seconds", 0.5
    )


@pytest.mark.parametrize(
    "wire",
    [
        REPLY.pack(False, False, 0, 0.0, 9, 0.0, 0.5),
        REPLY.pack(True, False, 9, 0.0, 9, 0.0, 15.0) + b'["",3,"setup","OSError","no"]\n',
        reply([BEGIN, 0]),
        reply([BEGIN, 0], ended=11),
        reply([BEGIN, 7]),
        reply([DONE, 0, "perfect", "", ""]),
        reply(PASSED, PASSED),
        reply([END, None, "", ""], [BEGIN, 0]),
        reply([END, "setup", "", ""]),
    ],
)
def test_a_judge_that_fails_is_a_fault_and_no_verdict(wire: bytes) -> None:
    with pytest.raises(SandboxFault, match=facts("judge of the sandbox")):
        read(wire, SUITE, LIMITS)


def test_who_shares_a_folder_with_its_candidate_may_be_killed_with_it() -> None:
    attempt = read(
        reply([BEGIN, 0], ended=9), Suite(SUITE.kind, "", SUITE.statements, files=True), LIMITS
    )
    assert (attempt.failure, statuses(attempt)) == ("crashed", ["0:failed"])


def test_together_a_program_may_write_among_the_lines_but_not_know_their_secret() -> None:
    suite = Suite("asserts", "", SUITE.statements, together=True)
    fine = reply([BEGIN, 0], PASSED, [END, None, "", ""], secret="ab12")
    assert statuses(read(fine, suite, LIMITS)) == ["0:passed"]
    forged = fine.replace(b'["ab12",5,0', b'["ab13",5,0')
    assert read(forged, suite, LIMITS).failure == "garbled"
    assert read(forged, suite, LIMITS).results == {}
    assert read(reply([BEGIN, 0], secret="ab12", ended=11), suite, LIMITS).failure == "crashed"
    for line in (
        b"7\n",
        b"{}\n",
        b'"ab12"\n',
        b"null\n",
        b"[]\n",
        b'["ab12"]\n',
        b"[[]]\n",
        b"\n",
        b"\xff\n",
        b"0\n" * 9,
    ):
        assert read(fine + line, suite, LIMITS).failure == "garbled"


def attempts(*made: JudgeRun) -> tuple[list[tuple[int, ...]], Any]:
    """Return the list of requested tests, and a function that returns these attempts in turn."""
    asked: list[tuple[int, ...]] = []
    waiting = list(made)

    def attempt(part: Suite) -> JudgeRun:
        asked.append(part.chosen)
        return waiting.pop(0)

    return asked, attempt


def ran(*statuses: str, failure: Any = None) -> JudgeRun:
    results = {
        position: CaseResult("", status)  # type: ignore[arg-type]
        for position, status in enumerate(statuses)
    }
    return JudgeRun(
        results, failure == "timeout" and statuses[-1:] == ("timeout",), failure, failure or "", 1.0
    )


def judged(suite: Suite, attempt: Any) -> tuple[list[str], Any, float]:
    made = verdict.judge(suite, attempt)
    return [case.status for case in made.cases], made.failure, made.seconds


def test_a_test_that_hangs_costs_itself_and_the_rest_runs_again() -> None:
    asked, attempt = attempts(ran("passed", "timeout", failure="timeout"), ran("passed"))
    assert judged(SUITE, attempt) == (["passed", "timeout", "passed"], "timeout", 2.0)
    assert asked == [(0, 1, 2), (2,)]


def test_after_three_restarts_no_more() -> None:
    many = Suite.asserts(tuple(f"assert f({n})" for n in range(6)))
    asked, attempt = attempts(*[ran("timeout", failure="timeout")] * 4)
    assert judged(many, attempt) == (["timeout"] * 4 + ["not_run"] * 2, "timeout", 4.0)
    assert asked == [(0, 1, 2, 3, 4, 5), (1, 2, 3, 4, 5), (2, 3, 4, 5), (3, 4, 5)]


def test_what_ends_otherwise_does_not_start_again() -> None:
    asked, attempt = attempts(ran("passed", "failed", failure="exited"))
    assert judged(SUITE, attempt) == (["passed", "failed", "not_run"], "exited", 1.0)
    asked, attempt = attempts(ran(failure="timeout"))
    assert judged(SUITE, attempt) == (["not_run"] * 3, "timeout", 1.0), (
        "the set-up would take too long again"
    )
    assert len(asked) == 1


def test_only_chosen_tests_are_reported() -> None:
    asked, attempt = attempts(ran("failed", "passed"))
    assert judged(SUITE.choose((2, 1)), attempt) == (["failed", "passed"], None, 1.0)
    assert asked == [(1, 2)]


def test_a_suite_without_chosen_tests_is_refused() -> None:
    with pytest.raises(ValueError, match="none of its tests"):
        verdict.write(["x = 1"], SUITE.choose(()), LIMITS)
