import asyncio

import pytest

from codejudge import Limits, Sandbox, SandboxFault
from codejudge.source import Source
from codejudge.suite import CaseResult, Suite, Verdict
from motet_tasks.rewards.code import WEIGHTS, Program, returns_value, score_program
from motet_tasks.rewards.extract import extract
from tests.fixtures.messages import says

CHECK = """
def check(candidate):
    assert candidate([]) == 0
    assert candidate([3]) == 9
    assert candidate([1, 2]) == 5
    assert candidate([1, -2, 3]) == 14
"""
SUITE = Suite.check(CHECK, "total")

AUX = "def aux(xs):\n    return [x * x for x in xs]\n"
AUX_ALL = "def aux(xs):\n    return sum(x * x for x in xs)\n"
AUX_BROKEN = "def aux(xs):\n    squares = [x * x for x in xs\n    return squares\n"
AUX_SILENT = "def aux(xs):\n    print([x * x for x in xs])\n"
TOGETHER = "def total(xs):\n    return sum(aux(xs))\n"
BY_ITSELF = "def total(xs):\n    return sum(x * x for x in xs)\n"
BROKEN = "def total(xs):\n    return sum(x * x for x in xs\n"
WRONG = "def total(xs):\n    return None\n"
HALF = "def total(xs):\n    return 0 if not xs else 9\n"
HALF_TOGETHER = "def total(xs):\n    return sum(aux(xs)) if len(xs) < 2 else 0\n"
WRAPPER = "def total(xs):\n    result = aux(xs)\n    return result\n"
IGNORING = "def total(xs):\n    aux(xs)\n    return sum(x * x for x in xs)\n"
HALF_IGNORING = "def total(xs):\n    squares = aux(xs)\n    return 0 if not xs else 9\n"
TRY = "try:\n    from helper import aux\nexcept ImportError:\n    pass"
STUB = "def total(xs):\n    pass\n"
NOT_COMPILED = "def total(xs):\n    nonlocal y\n    return sum(aux(xs))\n"

LEVELS = {
    "nothing": ("I cannot.", "I cannot either.", 0.0),
    "aux alone": (AUX, "", 0.4),
    "aux, and main returns nothing": (AUX, STUB, 0.4),
    "aux returns nothing, and there is no main": (AUX_SILENT, "", 0.0),
    "main alone, broken": ("", BROKEN, 0.6),
    "aux, and main is broken": (AUX, BROKEN, 1.0),
    "aux is broken, and main is not": (AUX_BROKEN, BY_ITSELF, 1.0),
    "aux, and main parses but cannot be compiled": (AUX, NOT_COMPILED, 1.0),
    "main alone, all wrong": ("", WRONG, 1.1),
    "main calls an aux that is not there": ("", TOGETHER, 1.1),
    "main calls an aux that returns nothing": (AUX_SILENT, TOGETHER, 1.1),
    "both, all wrong": (AUX, WRONG, 1.5),
    "both, and main calls aux, but nothing passes": (
        AUX,
        "def total(xs):\n    return str(aux(xs))\n",
        1.5,
    ),
    "main alone, half of the tests": ("", HALF, 1.6),
    "both, half of the tests, no call": (AUX, HALF, 2.0),
    "main alone, all tests": ("", BY_ITSELF, 2.1),
    "both, all tests, no call": (AUX, BY_ITSELF, 2.5),
    "half of the tests, a thin wrapper": (
        "def aux(xs):\n    return 0 if not xs else 9\n",
        WRAPPER,
        2.5,
    ),
    "all tests, a thin wrapper": (AUX_ALL, WRAPPER, 3.0),
    "half of the tests, aux ignored": (AUX, HALF_IGNORING, 3.0),
    "half of the tests, together": (AUX, HALF_TOGETHER, 3.5),
    "all tests, aux ignored": (AUX, IGNORING, 3.5),
    "all tests, together": (AUX, TOGETHER, 4.0),
}


ALONE = "def total(xs):\n{}    return sum(x * x for x in xs)\n"
READ_FROM_THE_TEXT = {
    "a value that is overwritten": (
        AUX,
        "def total(xs):\n    y = aux(xs)\n    y = sum(x * x for x in xs)\n    return y\n",
        3.5,
        0.0,
    ),
    "a wrapper around a wrapper": (
        AUX_ALL,
        "def inner(xs):\n    return aux(xs)\n\ndef total(xs):\n    return inner(xs)\n",
        3.0,
        1.0,
    ),
    "a wrapper in a class": (
        AUX_ALL,
        "class Solution:\n    def total(self, xs):\n        return aux(xs)\n",
        3.0,
        1.0,
    ),
    "a value that is printed": (AUX, ALONE.format("    print(aux(xs))\n"), 4.0, 0.0),
    "a branch never taken": (
        AUX,
        ALONE.format("    if False:\n        return aux(xs)\n"),
        4.0,
        0.0,
    ),
    "a call behind the return": (AUX, ALONE.format("") + "    return aux(xs)\n", 4.0, 0.0),
    "a lambda that nobody calls": (AUX, ALONE.format("    f = lambda: aux(xs)\n"), 4.0, 0.0),
    "a wrapper with a line more": (
        AUX_ALL,
        "def total(xs):\n    n = str(xs)\n    return aux(xs)\n",
        4.0,
        1.0,
    ),
}


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(workers=1, limits=Limits(wall_seconds=3.0, cpu_seconds=1)) as running:
        yield running


def program(aux, main, prelude="", **helpers):
    """Make a program from completions, as an environment does."""
    parts = {"aux": aux, **helpers}
    codes = {name: extract(text, name) for name, text in parts.items() if text is not None}
    return Program("total", extract(main, "total"), codes, Source(prelude))


def score(sandbox, aux, main, suite=SUITE, **more):
    return asyncio.run(score_program(program(aux, main, **more), suite, sandbox))


@pytest.mark.parametrize(("aux", "main", "levels"), LEVELS.values(), ids=LEVELS.keys())
def test_every_level_is_worth_what_it_says(sandbox, aux, main, levels):
    found = score(sandbox, aux, main)
    assert found.levels == pytest.approx(levels)
    assert found.terms["success"] == float(found.terms["tests_passed"] == 1.0)
    assert set(found.terms) == {*WEIGHTS, "success", "needs_aux"}
    assert all(0.0 <= value <= 1.0 for value in found.terms.values())


@pytest.mark.parametrize(
    ("aux", "main", "levels", "needed"), READ_FROM_THE_TEXT.values(), ids=READ_FROM_THE_TEXT.keys()
)
def test_what_the_text_does_not_show_is_left_to_the_diagnostic(sandbox, aux, main, levels, needed):
    found = score(sandbox, aux, main)
    assert (found.levels, found.terms["success"]) == (pytest.approx(levels), 1.0)
    assert found.terms["needs_aux"] == needed


@pytest.mark.parametrize(
    ("main", "levels", "needed"),
    [
        (TOGETHER, 4.0, 1.0),
        (HALF_TOGETHER, 3.5, 1.0),
        (BY_ITSELF, 2.5, 0.0),
        (IGNORING, 3.5, 0.0),
        # cases that the syntax tree cannot tell
        (
            "def total(xs):\n    own = sum(x * x for x in xs)\n"
            "    return own if xs else len(aux(xs))\n",
            4.0,
            0.0,
        ),
        (
            "def total(xs):\n    if len(aux(xs)) < 0:\n        return 1\n"
            "    return sum(x * x for x in xs)\n",
            4.0,
            0.0,
        ),
        ("def total(xs):\n    return sum(x * x for x in xs) + 0 * sum(aux(xs))\n", 4.0, 0.0),
        (
            "def total(xs):\n    first, *rest = [0, *aux(xs)]\n    return first + sum(rest)\n",
            4.0,
            1.0,
        ),
    ],
)
def test_the_helper_is_needed_where_fewer_tests_pass_when_it_says_nothing(
    sandbox, main, levels, needed
):
    found = score(sandbox, AUX, main)
    assert (found.levels, found.terms["needs_aux"]) == (pytest.approx(levels), needed)


def test_only_a_program_that_calls_its_helper_is_run_twice():
    class Counting:
        asked = 0

        async def judge(self, sources, suite):
            self.asked += 1
            return Verdict((CaseResult("1", "passed" if self.asked == 1 else "failed"),))

    for main, times in ((BY_ITSELF, 1), (TOGETHER, 2)):
        judge = Counting()
        assert score(judge, AUX, main).terms["needs_aux"] == float(times == 2)
        assert judge.asked == times


def test_names_that_two_parts_have_cost_nobody_the_reward(sandbox):
    own = "from math import *\nmemo = {}\ndef max(a, b):\n    return a\n"
    aux = f"{own}def aux(xs):\n    memo[0] = max(1, 2)\n    return [pow(x, 2) for x in xs]\n"
    main = (
        "memo = {}\ndef total(xs):\n    assert not memo\n"
        "    return max([0, pow(int(sum(aux(xs))), 1, 1000)])\n"
    )
    assert score(sandbox, aux, main).levels == pytest.approx(4.0)


def test_the_levels_of_a_team_add_up_to_4_and_those_of_one_agent_to_2_1(sandbox):
    assert sum(weight for weight in WEIGHTS.values() if weight > 0) == pytest.approx(4.0)
    alone = score(sandbox, None, BY_ITSELF)
    assert alone.levels == pytest.approx(2.1)
    assert set(alone.terms) == {"main_defined", "parses", "tests_passed", "success"}


def test_terms_of_levels_that_were_not_reached_are_zero(sandbox):
    assert score(sandbox, AUX, "").terms == {
        **dict.fromkeys([*WEIGHTS, "success", "needs_aux"], 0.0),
        "aux_defined": 1.0,
    }


@pytest.mark.parametrize(
    "own",
    [
        f"{AUX}\n{TOGETHER}",
        "aux = lambda xs: [x * x for x in xs]\n" + TOGETHER,
        "def total(xs):\n    def aux(xs):\n        return [x * x for x in xs]\n"
        "    return sum(aux(xs))\n",
        "def total(xs, aux=None):\n    aux = lambda xs: [x * x for x in xs]\n"
        "    return sum(aux(xs))\n",
    ],
)
def test_a_main_with_an_aux_of_its_own_has_not_called_its_partner(sandbox, own):
    found = score(sandbox, AUX, own)
    assert (found.terms["success"], found.terms["calls_aux"], found.levels) == (
        1.0,
        0.0,
        pytest.approx(2.5),
    )


def test_the_helpers_aux_is_the_one_that_runs(sandbox):
    assert (
        score(sandbox, "def aux(xs):\n    return [0]\n", f"{AUX}\n{TOGETHER}").terms["tests_passed"]
        == 0.25
    )
    assert score(sandbox, "No.", f"{AUX}\n{TOGETHER}").terms["tests_passed"] == 0.0


def test_the_mains_function_is_the_one_that_runs(sandbox):
    assert score(sandbox, f"{AUX}\n{BY_ITSELF}", WRONG).terms["tests_passed"] == 0.0
    assert score(sandbox, f"{AUX}\n{BY_ITSELF}", "No.").levels == pytest.approx(0.4)


@pytest.mark.parametrize(
    "line",
    ["from helper import aux", "import aux", "import math, aux", "from aux import aux as aux", TRY],
)
def test_an_import_of_aux_can_only_mean_the_partners(sandbox, line):
    assert score(sandbox, AUX, f"{line}\n{TOGETHER}").levels == pytest.approx(4.0)
    assert score(sandbox, f"{line}\n{AUX}", TOGETHER).levels == pytest.approx(4.0)


def test_an_import_of_something_else_under_its_name_is_no_call_of_the_partner(sandbox):
    found = score(sandbox, AUX, f"from builtins import sum as aux\n{TOGETHER}")
    assert found.terms["calls_aux"] == 0.0


def test_a_call_that_main_never_comes_to_does_not_count(sandbox):
    assert (
        score(sandbox, AUX, f"def other(xs):\n    return aux(xs)\n\n{BY_ITSELF}").terms["calls_aux"]
        == 0.0
    )
    through = (
        "def squares(xs):\n    return aux(xs)\n\ndef total(xs):\n    return sum(squares(xs))\n"
    )
    assert score(sandbox, AUX, through).levels == pytest.approx(4.0)


def test_the_share_of_two_helpers_is_averaged_and_the_most_is_still_4(sandbox):
    both = "def total(xs):\n    return aux2(aux1(xs)) + 0\n"
    first, second = AUX.replace("aux", "aux1"), "def aux2(xs):\n    return sum(xs)\n"
    assert score(sandbox, None, both, aux1=first, aux2=second).levels == pytest.approx(4.0)
    one = score(
        sandbox, None, "def total(xs):\n    return sum(aux1(xs))\n", aux1=first, aux2=second
    )
    assert one.terms["calls_aux"] == one.terms["beyond_wrapper"] == 0.5
    assert one.levels == pytest.approx(0.4 + 0.6 + 0.5 + 1.0 + 0.25 + 0.5)
    missing = score(sandbox, None, BY_ITSELF, aux1=first, aux2="")
    assert missing.levels == pytest.approx(0.2 + 0.6 + 0.5 + 1.0)


def test_what_the_task_gives_is_part_of_the_program(sandbox):
    prelude = "import math\n\ndef squared(x):\n    return int(math.pow(x, 2))\n"
    aux = "def aux(xs):\n    return [squared(x) for x in xs]\n"
    assert score(sandbox, aux, TOGETHER, prelude=prelude).levels == pytest.approx(4.0)
    assert score(sandbox, aux, TOGETHER).terms["tests_passed"] == 0.25


def test_a_timeout_is_a_failed_test(sandbox):
    hanging = "def total(xs):\n    while len(xs) == 3:\n        pass\n    return sum(aux(xs))\n"
    found = score(sandbox, AUX, hanging)
    assert (found.terms["tests_passed"], found.terms["success"], found.terms["calls_aux"]) == (
        0.75,
        0.0,
        1.0,
    )


@pytest.mark.parametrize(
    "start", ["raise SystemExit", "import os; os._exit(0)", "while True: pass", "x = [0] * 10**12"]
)
def test_a_program_that_does_not_come_to_its_tests_fails_them(sandbox, start):
    prelude = start  # any code that extraction might let through
    assert score(sandbox, AUX, TOGETHER, prelude=prelude).levels == pytest.approx(1.5)


def test_a_broken_sandbox_is_a_fault_and_never_a_zero():
    class Broken:
        async def judge(self, sources, suite):
            raise SandboxFault("gone")

    with pytest.raises(SandboxFault):
        score(Broken(), AUX, TOGETHER)


def test_the_sandbox_gets_the_prelude_then_the_helpers_then_main_and_only_what_reached_its_level():
    asked = []

    class Spy:
        async def judge(self, sources, suite):
            asked.append(list(sources))
            return Verdict((CaseResult("1", "failed"),))

    score(Spy(), AUX, TOGETHER, prelude="import math")
    score(Spy(), "nothing", BROKEN)
    score(Spy(), AUX_SILENT, BY_ITSELF)
    assert asked == [["import math", AUX.strip(), TOGETHER.strip()], [BY_ITSELF.strip()]]


def noted(notes, *wanted: tuple[bool, str]) -> bool:
    """Return whether these are the notes: each right or not, with its facts."""
    return len(notes) == len(wanted) and all(
        right is wished and says(note, said)
        for (right, note), (wished, said) in zip(notes, wanted, strict=True)
    )


def test_notes_say_what_was_found_as_far_as_the_levels_were_reached(sandbox):
    found = score(sandbox, AUX_SILENT, BROKEN).notes
    assert found.keys() == {"aux", "total"}
    assert noted(found["aux"], (False, "`aux` … not defined … returns a value"))
    assert noted(
        found["total"],
        (True, "`total` … defined … returns a value"),
        (False, "`total` cannot be parsed … line 2: '(' was never closed"),
    )
    notes = score(sandbox, AUX, IGNORING).notes
    assert noted(
        notes["total"],
        (True, "`total` … defined … returns a value"),
        (True, "`total` … parsed"),
        (True, "`total` calls `aux`"),
        (False, "`total` throws away … `aux`"),
        (True, "`total` … work of its own"),
    )
    assert notes["aux"][2:] == notes["total"][2:4]
    last = score(sandbox, AUX, BY_ITSELF).notes["total"][-1:]
    assert noted(last, (False, "`total` does not call `aux`"))
    assert score(sandbox, AUX_ALL, WRAPPER).notes["total"][-1][0] is False


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("def aux(x):\n    return (x", True),
        ("def aux(x): return (x", True),
        ("def aux(x):\n    y = (x\n    return y", True),
        ("def aux(x):\n    y = (x", False),
        ("def aux(x):\n    y = (x\n    return", False),
        ("def aux(x):\n    y = (x\nreturn y", False),
        ("def auxiliary(x):\n    return (x", False),
        ("", False),
    ],
)
def test_what_cannot_be_parsed_is_read_by_its_lines(code, value):
    assert returns_value(Source(code), "aux") is value
