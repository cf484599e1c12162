import asyncio

import pytest

from codejudge import CaseResult, SandboxFault, Suite, Verdict
from codejudge.source import Source
from motet_tasks.rewards.code import Program
from motet_tasks.rewards.repair import (
    RepairWeights,
    faulty_lines,
    kept,
    located,
    named_lines,
    score_repair,
    weighed,
)
from tests.fixtures.messages import says

BUGGY = """\
def f(xs):
    n = 1
    for x in xs:
        n = n + x
    if n > 9:
        return n
    return n"""
SUITE = Suite.asserts(("assert f([1]) == 1", "assert f([]) == 0"))


@pytest.mark.parametrize(
    ("solution", "lines"),
    [
        (BUGGY.replace("n = 1", "n = 0"), {2}),
        (BUGGY.replace("    n = 1\n", ""), {2}),  # an extra line
        (BUGGY.replace("    if", "    n = 0\n    if"), {4, 5}),  # a line is missing between these
        (BUGGY + "\n    return 0", {7}),
        ("import os\n" + BUGGY, {1}),
        (BUGGY.replace("n = 1", "n = 0").replace("> 9", "> 8"), {2, 5}),
        (BUGGY, set()),
    ],
)
def test_the_fault_is_where_program_and_solution_differ(solution, lines):
    assert faulty_lines(BUGGY, solution) == lines


@pytest.mark.parametrize(
    ("review", "lines"),
    [
        ("Line 2 is wrong.", {2}),
        ("**Line 2**: n should be 0", {2}),
        ("The bug is in LINE #5", {5}),
        ("lines 2-4, or line 6", {2, 3, 4, 6}),
        ("`n = 1` starts too high", {2}),
        ("`n=1` starts too high", set()),
        ("it says `n = 10`", set()),
        ("for x in xs:\n n = n + x", {3, 4}),
        ("`return n` is the second fault", {6}),  # the first of two equal lines
        ("line 7, `return n`", {7}),
        ("`if n > 9:` is never true", {5}),
        ("outline 3", set()),
        ("line 99999999999999999999", {999999999}),
        ("", set()),
        ("\0²", set()),
    ],
)
def test_a_line_is_named_by_its_number_or_by_its_whole_text(review, lines):
    assert named_lines(review, BUGGY) == lines


def test_of_two_equal_lines_the_one_at_fault_is_meant():
    assert named_lines("`return n` is wrong", BUGGY, frozenset({7})) == {7}


def test_naming_every_line_earns_the_share_of_the_faulty_ones():
    faulty = frozenset({2})
    assert located("line 2", BUGGY, faulty) == 1.0
    assert located("line 2 or line 3", BUGGY, faulty) == 0.5
    assert located("lines 1 to 7", BUGGY, faulty) == pytest.approx(1 / 7)
    assert located(BUGGY, BUGGY, faulty) == pytest.approx(1 / 6)  # six different line texts
    assert located("lines 1 - 1000000000", BUGGY, faulty) < 0.002
    assert located("Lines 2 and 3 are wrong.", BUGGY, faulty) == 0.5
    assert located("lines 1, 2 and 3", BUGGY, faulty) == pytest.approx(1 / 3)
    assert located("lines 2 through 3, or 5", BUGGY, faulty) == pytest.approx(1 / 3)
    assert located("Line number 2 is wrong, 3 tests fail", BUGGY, faulty) == 1.0
    assert located("In line 2, 3 is added", BUGGY, faulty) == 1.0
    assert located("line 8", BUGGY, faulty) == located("no idea", BUGGY, faulty) == 0.0


def test_kept_is_the_share_of_the_lines_that_are_still_there():
    assert kept(BUGGY, BUGGY) == 1.0
    assert kept(BUGGY, BUGGY.replace("n = 1", "n = 0")) == pytest.approx(6 / 7)
    assert kept(BUGGY, "def g(): pass") == 0.0
    assert kept("", "x") == 1.0


class Runner:
    """A sandbox that passes programs with `n = 0` in them."""

    def __init__(self):
        self.ran = []

    async def judge(self, sources, suite):
        self.ran.append(sources)
        right = "n = 0" in sources[-1]
        return Verdict(
            (CaseResult("1", "passed" if right else "failed"), CaseResult("2", "passed"))
        )


def score(code, sandbox=None, prelude=""):
    program = Program("f", Source(code), prelude=Source(prelude))
    return asyncio.run(score_repair(program, BUGGY, SUITE, sandbox or Runner()))


@pytest.mark.parametrize(
    ("code", "terms"),
    [
        ("", (0.0, 0.0, 0.0, 0.0)),
        ("def g(xs): return 1", (0.0, 0.0, 0.0, 0.0)),
        ("def f(xs):\n  return (", (0.0, 0.0, 0.0, 0.0)),
        (BUGGY, (1.0, 0.5, 0.0, 1.0)),
        (BUGGY.replace("n = 1", "n = 0"), (1.0, 1.0, 1.0, 6 / 7)),
    ],
)
def test_what_each_repair_earns(code, terms):
    names = ("parses", "tests_passed", "success", "kept")
    assert score(code).terms == pytest.approx(dict(zip(names, terms, strict=True)))


def test_the_best_attempt_earns_3_and_the_faulty_program_itself_less_than_half_of_it():
    def levels(code, review):
        faulty = faulty_lines(BUGGY, BUGGY.replace("n = 1", "n = 0"))
        return weighed(
            {"located": located(review, BUGGY, faulty), **score(code).terms}, RepairWeights()
        )

    assert levels(BUGGY.replace("n = 1", "n = 0"), "line 2") == 3.0
    assert levels(BUGGY, "") == 1.0


def test_what_is_given_runs_before_the_repair():
    sandbox = Runner()
    score(BUGGY, sandbox, prelude="import math")
    assert sandbox.ran == [["import math", BUGGY]]


def test_what_only_the_compiler_refuses_does_not_parse():
    class Compiler:
        async def judge(self, sources, suite):
            return Verdict((CaseResult("1", "not_run"),), "syntax", "'break' outside loop")

    found = score("def f(xs):\n break\n return 1", Compiler())
    assert found.terms["parses"] == 0.0
    right, note = found.notes[-1]
    assert not right
    assert says(note, "program … cannot be read: 'break' outside loop")


def test_a_broken_sandbox_is_a_fault_and_never_a_zero():
    class Broken:
        async def judge(self, sources, suite):
            raise SandboxFault("gone")

    with pytest.raises(SandboxFault):
        score(BUGGY, Broken())
